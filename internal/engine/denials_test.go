package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/pipeline"
	"github.com/slidegate/slidegate/internal/pipeline/servertest"
)

// withCachedDenial runs test with a limiter whose denial cache contains a denial. At the start of
// test, the server's record of calls is empty.
func withCachedDenial(t *testing.T, test func(t *testing.T, s *servertest.Server, l *Limiter)) {
	t.Helper()
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		client := s.Client(t, func(o *rueidis.ClientOption) { o.DisableCache = false })
		l := limiter(t, client, func(c *Config) { c.DenialCache = 10 })
		for range 5 {
			mustAllow(t, l, "hot")
		}
		for range 3 { // the first request gets the denial, the second gets the key's value, and the third uses the cache
			wantEqual(t, "allowed", attemptOne(t, l, "hot").Allowed, false)
			servertest.Pass(time.Millisecond)
		}
		s.ClearCalls()
		test(t, s, l)
	})
}

// TestRememberedDenials checks that a cached denial is repeated without a call to Redis, and that
// its waits become shorter.
func TestRememberedDenials(t *testing.T) {
	withCachedDenial(t, func(t *testing.T, s *servertest.Server, l *Limiter) {
		before := attemptOne(t, l, "hot").Reply
		servertest.Pass(20 * time.Second)
		after := attemptOne(t, l, "hot").Reply
		wantEqual(t, "asked", s.Asked(), 0)
		wantEqual(t, "allowed", after.Allowed, false)
		wantEqual(t, "wait", after.Row(0)[1], before.Row(0)[1]-20_000)
		wantEqual(t, "time", after.At, before.At+20_000)
		servertest.Pass(time.Minute)
		attemptOne(t, l, "hot")
		wantEqual(t, "asked", s.Asked() > 0, true)
	})
}

// TestChangeIsNoticed checks that after Redis has sent a notification of a change, the next request
// is sent.
func TestChangeIsNoticed(t *testing.T) {
	withCachedDenial(t, func(t *testing.T, s *servertest.Server, l *Limiter) {
		other := limiter(t, s.Client(t))
		if err := other.Reset(t.Context(), "hot"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mustAllow(t, l, "hot")
	})
}

// TestOwnResetIsNoticed checks that a Reset by the same limiter ends a cached denial immediately.
func TestOwnResetIsNoticed(t *testing.T) {
	withCachedDenial(t, func(t *testing.T, _ *servertest.Server, l *Limiter) {
		if err := l.Reset(t.Context(), "hot"); err != nil {
			t.Fatal(err)
		}
		mustAllow(t, l, "hot")
	})
}

// TestLostConnectionEndsDenials checks that cached denials are no longer used if the connection
// breaks.
func TestLostConnectionEndsDenials(t *testing.T) {
	withCachedDenial(t, func(t *testing.T, s *servertest.Server, l *Limiter) {
		s.Cut()
		synctest.Wait()
		wantEqual(t, "allowed", attemptOne(t, l, "hot").Allowed, false)
		wantEqual(t, "asked", s.Asked() > 0, true)
	})
}

// TestTimeoutCoversTheLookup checks that a lookup and the request after it share one Timeout, and
// that no request is sent for a caller that leaves during the lookup.
func TestTimeoutCoversTheLookup(t *testing.T) {
	withCachedDenial(t, func(t *testing.T, s *servertest.Server, l *Limiter) {
		s.Cut()
		synctest.Wait()
		s.Hold()
		leaves, leave := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, leave)
		dated, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		first := arrive(t.Context(), l, Allow, "hot", 1)
		second, third := arrive(leaves, l, Allow, "hot", 1), arrive(dated, l, Allow, "hot", 1)
		wantError(t, "a caller with a deadline, which asks itself", third.wait().err, pipeline.ErrUncertain)
		wantEqual(t, "took", third.took, 285*time.Millisecond)
		wantError(t, "a caller that waits for another's lookup", second.wait().err, context.Canceled)
		if !strings.Contains(second.err.Error(), "nothing was sent") {
			t.Error(second.err)
		}
		wantEqual(t, "took", second.took, 300*time.Millisecond)
		wantError(t, "the caller that looks up", first.wait().err, pipeline.ErrOutage)
		wantEqual(t, "took", first.took, time.Second)
		s.Release()
		synctest.Wait()
		wantEqual(t, "script calls", len(s.Received()), 1)
	})
	withCachedDenial(t, func(t *testing.T, s *servertest.Server, l *Limiter) {
		s.Cut()
		synctest.Wait()
		s.Always(servertest.Action{Delay: 600 * time.Millisecond})
		got := attemptOne(t, l, "hot")
		wantError(t, "a slow lookup and a slow script", got.err, pipeline.ErrUncertain)
		wantEqual(t, "took", got.took, time.Second)
	})
}

// TestLookupThatFails checks that a lookup that fails leaves the decision to the script, which also
// reports what is wrong. Only a lookup without a reply in time is an outage.
func TestLookupThatFails(t *testing.T) {
	for _, test := range []struct {
		action servertest.Action
		err    error
	}{
		{servertest.Action{Reply: "*2\r\n:100000\r\n-WRONGTYPE Operation against a key holding the wrong kind of value"}, nil},
		{servertest.Refusal("LOADING"), nil},
		{servertest.Action{Cut: true}, pipeline.ErrOutage}, // the client tries again until it is too late
		{servertest.Action{Hang: true}, pipeline.ErrOutage},
	} {
		withCachedDenial(t, func(t *testing.T, s *servertest.Server, l *Limiter) {
			s.Cut()
			synctest.Wait()
			s.Choose(func(c servertest.Command) servertest.Action {
				if c.Name == "GET" {
					return test.action
				}
				return servertest.Action{}
			})
			got := attemptOne(t, l, "hot")
			wantError(t, test.action.Reply, got.err, test.err)
			wantEqual(t, "allowed", got.Allowed, false)
		})
	}
}
