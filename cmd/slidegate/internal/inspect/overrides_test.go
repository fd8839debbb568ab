package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/window"
)

// TestEventLikeHash checks that an event that begins with ~ is quoted, so that it cannot be mistaken
// for a hash.
func TestEventLikeHash(t *testing.T) {
	hash := "~" + strings.Repeat("A", 43)
	for shown, want := range map[string]string{
		(&usage{Event: hash, Hashed: true}).name():                   "~AAAAAAAAAAA…",
		(&usage{Event: hash}).name():                                 `"` + hash + `"`,
		(&overrideState{Tag: hash}).event():                          hash,
		(&overrideState{Tag: "%7E" + hash[1:], Event: hash}).event(): `"` + hash + `"`,
	} {
		if shown != want {
			t.Errorf("%s, not %s", shown, want)
		}
	}
}

// TestOneEnd checks that the override and the decision name the same end, even if it is in the
// middle of a second.
func TestOneEnd(t *testing.T) {
	at := time.Date(2025, 3, 4, 14, 0, 0, 300e6, time.UTC)
	st := &State{At: at}
	st.setOverride(&overrideState{Mode: string(window.OverrideBlock), does: "block", Until: at.Add(time.Hour), Why: "x"}, nil)
	if text := st.overrideText() + "; " + st.overruled(); text != "block until 15:00:01: x; DENIED by an override; it ends in 1h, at 15:00:01" {
		t.Error(text)
	}
}

// TestWaitEndsWithOverride checks that the wait under the limits of an override is at most the time
// until the override ends.
func TestWaitEndsWithOverride(t *testing.T) {
	at := time.Date(2026, 6, 1, 14, 0, 0, 0, time.UTC)
	st := &State{At: at, Decision: &Decision{RetryAfter: 3_600_000}}
	st.setOverride(&overrideState{Mode: string(window.OverrideLimits), Until: at.Add(4 * time.Second)}, nil)
	if st.RetryAfter != 4000 {
		t.Errorf("%d ms", st.RetryAfter)
	}
}
