package pace_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// TestOnDenied checks that OnDenied receives each Reserve that is not OK and each Wait whose turn
// would come too late, and nothing else: neither an attempt that gets a turn, nor a caller that
// gives up.
func TestOnDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []window.Denial
		secret := []byte("0123456789abcdef")
		l := must(pace.NewLocal(pace.Config{
			Name: "api", Limits: parsed("9/1s", "1/10s"), MaxAhead: 15 * time.Second, Secret: secret,
			OnDenied: func(_ context.Context, d window.Denial) { seen = append(seen, d) },
		}))
		for range 2 {
			must(l.Reserve(t.Context(), "e"))
		}
		must(l.Reserve(t.Context(), "e"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if l.Wait(ctx, "e") == nil {
			t.Error("Wait waited beyond the deadline")
		}
		gone, leave := context.WithCancel(t.Context())
		go func() { _ = l.Wait(gone, "e") }()
		synctest.Wait()
		leave()
		synctest.Wait()
		want := window.Denial{Limiter: "api", Event: keys.Tag(secret, "e"), Hashed: true, Limit: parsed("1/10s")[0], Decision: window.Decision{At: time.Now().UTC()}}
		reserved, waited := want, want
		reserved.RetryAfter, waited.RetryAfter = 5*time.Second, 20*time.Second
		equal(t, "denials", seen, []window.Denial{reserved, waited})
	})
}
