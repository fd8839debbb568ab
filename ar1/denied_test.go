package ar1_test

import (
	"context"
	"testing"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/window"
)

// TestOnDenied checks that OnDenied receives each denial of every method exactly once, and nothing
// else.
func TestOnDenied(t *testing.T) {
	var seen []window.Denial
	both(t, ar1.Config{Limits: limits("2/1h", "3/1d"), OnDenied: func(_ context.Context, d window.Denial) { seen = append(seen, d) }}, func(b bench) {
		seen = nil
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		b.allow("a", 2)
		d := b.allow("a", 1)
		b.peek("a", 1)
		b.allow("a", 1)
		b.allow("b", 1)
		if _, err := b.Wait(ctx, "a"); err == nil {
			b.Error("Wait waited although the wait is minutes")
		}
		want := window.Denial{Limiter: seen[0].Limiter, Event: "a", Limit: limits("2/1h")[0], RetryAfter: d.RetryAfter, At: d.At}
		for _, got := range seen {
			if got != want {
				b.Errorf("%+v, not %+v", got, want)
			}
		}
		if len(seen) != 3 {
			b.Errorf("%d denials, not 3", len(seen))
		}
	})
}

// TestOnDeniedHides checks that a denial carries the hash in the key instead of the event if there
// is a Secret.
func TestOnDeniedHides(t *testing.T) {
	var seen []window.Denial
	both(t, ar1.Config{Limits: limits("1/1h"), Secret: []byte("0123456789abcdef"), OnDenied: func(_ context.Context, d window.Denial) { seen = append(seen, d) }}, func(b bench) {
		seen = nil
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		b.allow("a", 1)
		b.allow("a", 1)
		_, _ = b.Wait(ctx, "a")
		s := must(b.Inspect(b.Context(), "a"))
		if d := seen[0]; len(seen) != 2 || seen[1] != d || !d.Hashed || s.Key != d.Limiter+":{"+d.Event+"}:a" {
			b.Errorf("%+v, the key is %s", seen, s.Key)
		}
	})
}
