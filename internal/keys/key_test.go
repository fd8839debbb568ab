package keys_test

import (
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/keys"
)

// TestEvent checks that Event returns the event for each tag that is not a hash, and "" for any
// other text.
func TestEvent(t *testing.T) {
	for _, event := range []string{"alice@example.com", "ü {}%", "~a", "a b+c", strings.Repeat("x", 128), "\x00\xff"} {
		if got := keys.Event(keys.Tag(nil, event)); got != event {
			t.Errorf("%q becomes %q", event, got)
		}
	}
	for _, tag := range []string{keys.Tag([]byte("sixteen bytes..."), "alice"), keys.Tag(nil, strings.Repeat("x", 129)), "%", "%7d", "a b", "%41", ""} {
		if got := keys.Event(tag); got != "" {
			t.Errorf("%q has the event %q", tag, got)
		}
	}
}
