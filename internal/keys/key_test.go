package keys_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"sync"
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

// TestHider checks that many goroutines get the HMAC-SHA256 of their events.
func TestHider(t *testing.T) {
	secret := []byte("sixteen bytes...")
	hider := keys.NewHider(secret)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 1000 {
				event := strings.Repeat("e", i)
				mac := hmac.New(sha256.New, secret)
				mac.Write([]byte(event))
				if got, want := hider.Tag(event), "~"+base64.RawURLEncoding.EncodeToString(mac.Sum(nil)); got != want {
					t.Errorf("%d: %q, want %q", i, got, want)
				}
			}
		})
	}
	all.Wait()
}
