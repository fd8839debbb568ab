package inflight_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/window"
)

// TestOnDenied checks that OnDenied receives each TryAcquire that is denied and each Acquire whose
// caller gives up, and nothing else.
func TestOnDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []window.Denial
		secret := []byte("0123456789abcdef")
		l := must(inflight.NewLocal(inflight.Config{
			Name: "jobs", Max: 2, Secret: secret, TTL: time.Minute, OnDenied: func(_ context.Context, d window.Denial) { seen = append(seen, d) },
		}))
		taken(t, l, "e")
		lease := taken(t, l, "e")
		denied(t, must(l.With(1)), "e")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Acquire(ctx, "e"); err == nil {
			t.Error("Acquire got units that are held")
		}
		release(t, lease)
		must(l.Acquire(t.Context(), "e"))
		if _, _, err := l.TryAcquireN(t.Context(), "e", 3); err == nil {
			t.Error("TryAcquireN got more than Max")
		}
		for i := range seen {
			seen[i].RetryAfter, seen[i].At = 0, time.Time{}
		}
		d := window.Denial{Limiter: "jobs", Event: keys.Tag(secret, "e"), Hashed: true, Limit: window.Limit{Max: 2}}
		one := d
		one.Limit.Max = 1
		equal(t, "denials", seen, []window.Denial{one, d})
		release(t, taken(t, l, "other"))
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
