package keys_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/slidegate/slidegate/internal/keys"
)

// TestTagger checks that many goroutines get the same tags that the function Tag returns, even for
// events that share a slot in the cache.
func TestTagger(t *testing.T) {
	for _, secret := range [][]byte{nil, []byte("sixteen bytes...")} {
		tagger := keys.NewTagger(secret)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for i := range 4000 {
					event := fmt.Sprint("event ", i%1000)
					if i%100 == 0 {
						event = strings.Repeat(event, 20)
					}
					if got, want := tagger.Tag(event), keys.Tag(secret, event); got != want {
						t.Errorf("%.20q has the tag %q, not %q", event, got, want)
					}
				}
			})
		}
		all.Wait()
	}
}

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
