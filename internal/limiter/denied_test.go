package limiter

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/servertest"
)

// withCachedDenial runs test with a limiter whose denial cache contains a denial. At the start of
// test, the server's record of calls is empty.
func withCachedDenial(t *testing.T, test func(t *testing.T, s *servertest.Server, l *Limiter)) {
	t.Helper()
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := limiter(t, s.Client(t), func(c *Config) { c.DenialCache = 10 })
		for range 5 {
			mustAllow(t, l, "hot")
		}
		wantEqual(t, "allowed", attemptOne(t, l, "hot").Allowed, false)
		wantEqual(t, "asked", len(s.Received()), 6)
		s.ClearCalls()
		test(t, s, l)
	})
}

// TestRememberedDenials checks that for a second, a cached denial is repeated without a call to
// Redis, and that its waits become shorter. Under other limits, it is not repeated.
func TestRememberedDenials(t *testing.T) {
	withCachedDenial(t, func(t *testing.T, s *servertest.Server, l *Limiter) {
		before := attemptOne(t, l, "hot").Reply
		servertest.Pass(900 * time.Millisecond)
		after := attemptOne(t, l, "hot").Reply
		wantEqual(t, "asked", len(s.Received()), 0)
		wantEqual(t, "allowed", after.Allowed, false)
		for i := range 2 {
			used, retry, reset := before.Row(i)[0], before.Row(i)[1], before.Row(i)[2]
			wantEqual(t, "row", after.Row(i), []int64{used, max(0, retry-900), max(0, reset-900)})
		}
		wantEqual(t, "time", after.At, before.At+900)
		servertest.Pass(100 * time.Millisecond)
		attemptOne(t, l, "hot")
		wantEqual(t, "asked", len(s.Received()), 1)
		plan := l.Under([]Limit{{Max: 9, Per: time.Hour.Milliseconds()}})
		mustAllow(t, &plan, "hot")
	})
}

// TestDeniedCallersCostLittle checks that 64 callers that keep attempting a denied event cause a few
// calls a second, when the cached denial has ended.
func TestDeniedCallersCostLittle(t *testing.T) {
	withCachedDenial(t, func(t *testing.T, s *servertest.Server, l *Limiter) {
		var callers sync.WaitGroup
		for range 64 {
			callers.Go(func() {
				for range 300 {
					servertest.Pass(10 * time.Millisecond)
					wantEqual(t, "allowed", attemptOne(t, l, "hot").Allowed, false)
				}
			})
		}
		callers.Wait()
		if asked := len(s.Received()); asked < 3 || asked > 3*16 {
			t.Errorf("%d calls in 3 s", asked)
		}
	})
}

// TestLateDenial checks that a denial that was in flight during a Reset, or sent before the Reset
// ended, does not come back.
func TestLateDenial(t *testing.T) {
	withCachedDenial(t, func(t *testing.T, s *servertest.Server, l *Limiter) {
		servertest.Pass(time.Second)
		denied := servertest.Action{Reply: "*8\r\n:0\r\n:100000\r\n:5\r\n:60000\r\n:60000\r\n:5\r\n:0\r\n:3600000", Delay: 300 * time.Millisecond}
		s.Choose(func(c servertest.Command) servertest.Action {
			if c.Verb == verbReset {
				return servertest.Action{Delay: 200 * time.Millisecond}
			}
			return denied
		})
		before := start(t.Context(), l, Allow, "hot", 1)
		servertest.Pass(100 * time.Millisecond)
		reset := make(chan error)
		go func() { reset <- l.Reset(t.Context(), "hot") }()
		servertest.Pass(100 * time.Millisecond)
		during := start(t.Context(), l, Allow, "hot", 1)
		wantError(t, "Reset", <-reset, nil)
		wantEqual(t, "allowed", before.wait().Allowed, false)
		wantEqual(t, "allowed", during.wait().Allowed, false)
		s.Choose(func(servertest.Command) servertest.Action { return servertest.Action{} })
		mustAllow(t, l, "hot")
	})
}

// TestDenialsInAnOutage checks that a cached denial is still repeated while Redis does not answer,
// and that an attempt that Redis does not answer ends it.
func TestDenialsInAnOutage(t *testing.T) {
	withCachedDenial(t, func(t *testing.T, s *servertest.Server, l *Limiter) {
		s.Hold()
		wantEqual(t, "allowed", attemptOne(t, l, "hot").Allowed, false)
		wantError(t, "another number of units", ask(t.Context(), l, Allow, "hot", 2).err, health.ErrUncertain)
		wantError(t, "the cached denial", attemptOne(t, l, "hot").err, health.ErrUncertain)
		s.Release()
		synctest.Wait()
	})
}
