package inspect

import (
	"strings"
	"testing"
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
