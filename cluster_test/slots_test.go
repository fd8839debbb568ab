package cluster_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestSlots checks that each of 10,000 events, spread over all slots, has exactly one key, in the
// event's own slot.
func TestSlots(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		nodes, name, spread := redistest.Replicated(t), redistest.Key(t), map[int]bool{}
		client := nodes.NewClient(t, nil)
		l := must(k.newOnClient(client, window.Config{Name: name, Limits: []window.Limit{perMonth(1), window.PerHour(2)}}))
		var askers sync.WaitGroup
		for caller := range 16 {
			askers.Go(func() {
				for i := caller; i < 10_000; i += 16 {
					event := fmt.Sprint("203.0.113.", i)
					if d, err := l.Allow(t.Context(), event); err != nil || !d.Allowed {
						t.Errorf("%s: %+v %v", event, d, err)
					}
					if err := client.Do(t.Context(), client.B().Get().Key(k.key(name, event)).Build()).Error(); err != nil {
						t.Errorf("%s: %v", event, err)
					}
				}
			})
		}
		askers.Wait()
		for i := range 10_000 {
			spread[slotOf(fmt.Sprint("203.0.113.", i))/64] = true
		}
		if made := sampleKeys(t, nodes, name); len(made) != 10_000 || len(spread) != 256 {
			t.Errorf("%d keys, in %d of 256 parts of the slots", len(made), len(spread))
		}
	})
}

// hostile lists events that broke other limiters.
var hostile = []string{
	"}", "{", "{}", "}x", "a{b}c", "}{", "{}{user}", "\x00", "\xff\xfe", "~hash", "%7D", " ", "é", "\r\n", "w", ":w",
	strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("x", 129) + "y", hashed(strings.Repeat("x", 129)),
	strings.Repeat("{", 1000), strings.Repeat("}", 10<<20),
}

// hashed returns the form in which a long event is stored.
func hashed(event string) string {
	sum := sha256.Sum256([]byte(event))
	return "~" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// TestHostileEvents checks that every method treats each hostile string as a single event, without
// an error, and that none affects another.
func TestHostileEvents(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		nodes, name := redistest.Replicated(t), redistest.Key(t)
		l := must(k.newOnClient(nodes.NewClient(t, nil), window.Config{Name: name, Limits: []window.Limit{perMonth(1), window.PerHour(5)}}))
		taken := map[string]window.Decision{}
		for _, allowed := range []bool{true, false} {
			for _, event := range hostile {
				d, err := l.Allow(t.Context(), event)
				if err != nil || d.Allowed != allowed {
					t.Errorf("%.20q: %+v %v", event, d, err)
				}
				if allowed {
					taken[event] = d
				}
			}
		}
		whole := regexp.MustCompile(`^` + regexp.QuoteMeta(name) + `:\{[^{}]+\}:` + k.suffix + `$`)
		made := sampleKeys(t, nodes, name)
		for _, key := range made {
			if !whole.MatchString(key) {
				t.Errorf("an event left its braces: %q", key)
			}
		}
		if len(made) != len(hostile) {
			t.Errorf("%d keys for %d events: %q", len(made), len(hostile), made)
		}
		for i, event := range hostile {
			if err := l.Refund(t.Context(), event, taken[event]); err != nil {
				t.Errorf("%.20q: %v", event, err)
			}
			for j, other := range hostile {
				if d, err := l.Peek(t.Context(), other); err != nil || d.Allowed != (j <= i) {
					t.Errorf("%.20q after the refund of %.20q: %+v %v", other, event, d, err)
				}
			}
		}
		for _, event := range hostile {
			if err := l.Reset(t.Context(), event); err != nil {
				t.Errorf("%.20q: %v", event, err)
			}
		}
	})
}
