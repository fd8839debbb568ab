package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
)

// withCachedDenial runs a test with a limiter that has a denial cache and an event that is denied.
// The server has received no request since.
func withCachedDenial(t *testing.T, test func(t *testing.T, s *server, l *Limiter)) {
	t.Helper()
	onFakeTime(t, func(t *testing.T, s *server) {
		client := s.client(t, func(o *rueidis.ClientOption) { o.DisableCache = false })
		l := limiter(t, client, func(c *Config) { c.DenialCache = 10 })
		for range 5 {
			mustAllow(t, l, "hot")
		}
		for range 3 { // the first finds the denial, the second its value, the third knows it
			wantEqual(t, "allowed", attemptOne(t, l, "hot").Allowed, false)
			pass(time.Millisecond)
		}
		s.clearCalls()
		test(t, s, l)
	})
}

// clearCalls clears the calls that scriptCalls and the like return.
func (s *server) clearCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran, s.received, s.gets = nil, nil, 0
}

// asked returns the number of GETs and script calls.
func (s *server) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets + len(s.received)
}

// TestRememberedDenials checks that a cached denial costs Redis nothing, and that its waits become
// shorter.
func TestRememberedDenials(t *testing.T) {
	withCachedDenial(t, func(t *testing.T, s *server, l *Limiter) {
		before := attemptOne(t, l, "hot").Reply
		pass(20 * time.Second)
		after := attemptOne(t, l, "hot").Reply
		wantEqual(t, "asked", s.asked(), 0)
		wantEqual(t, "allowed", after.Allowed, false)
		wantEqual(t, "wait", after.Row(0)[1], before.Row(0)[1]-20_000)
		wantEqual(t, "time", after.At, before.At+20_000)
		pass(time.Minute)
		attemptOne(t, l, "hot")
		wantEqual(t, "asked", s.asked() > 0, true)
	})
}

// TestChangeIsNoticed checks that once Redis has reported a change, the next request is sent.
func TestChangeIsNoticed(t *testing.T) {
	withCachedDenial(t, func(t *testing.T, s *server, l *Limiter) {
		other := limiter(t, s.client(t))
		if err := other.Reset(t.Context(), "hot"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mustAllow(t, l, "hot")
	})
}

// TestOwnResetIsNoticed checks that a Reset of the same limiter ends a denial at once.
func TestOwnResetIsNoticed(t *testing.T) {
	withCachedDenial(t, func(t *testing.T, _ *server, l *Limiter) {
		if err := l.Reset(t.Context(), "hot"); err != nil {
			t.Fatal(err)
		}
		mustAllow(t, l, "hot")
	})
}

// TestLostConnectionEndsDenials checks that cached denials end with the connection.
func TestLostConnectionEndsDenials(t *testing.T) {
	withCachedDenial(t, func(t *testing.T, s *server, l *Limiter) {
		s.cut()
		synctest.Wait()
		wantEqual(t, "allowed", attemptOne(t, l, "hot").Allowed, false)
		wantEqual(t, "asked", s.asked() > 0, true)
	})
}

// TestTimeoutCoversTheLookup checks that a lookup and the request after it share one Timeout, and
// that a caller that leaves during the lookup was not sent.
func TestTimeoutCoversTheLookup(t *testing.T) {
	withCachedDenial(t, func(t *testing.T, s *server, l *Limiter) {
		s.cut()
		synctest.Wait()
		s.hold()
		leaves, leave := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer leave()
		first := arrive(t.Context(), l, Allow, "hot", 1)
		second := arrive(leaves, l, Allow, "hot", 1)
		wantError(t, "one that waits for the look of another", second.wait().err, context.DeadlineExceeded)
		if !strings.Contains(second.err.Error(), "nothing was sent") {
			t.Error(second.err)
		}
		wantEqual(t, "took", second.took, 300*time.Millisecond)
		wantError(t, "the one that looks", first.wait().err, ErrOutage)
		wantEqual(t, "took", first.took, time.Second)
		s.release()
		synctest.Wait()
		wantEqual(t, "script calls", len(s.receivedCalls()), 0)
		wantIdle(t, l)
	})
	withCachedDenial(t, func(t *testing.T, s *server, l *Limiter) {
		s.cut()
		synctest.Wait()
		s.always(action{delay: 600 * time.Millisecond})
		got := attemptOne(t, l, "hot")
		wantError(t, "a slow look and a slow script", got.err, ErrUncertain)
		wantEqual(t, "took", got.took, time.Second)
	})
}

// TestLookupThatFails checks that a lookup fails only in an outage. The script reports every other
// problem.
func TestLookupThatFails(t *testing.T) {
	for _, test := range []struct {
		action action
		err    error
	}{
		{action{reply: "*2\r\n:100000\r\n-WRONGTYPE Operation against a key holding the wrong kind of value"}, nil},
		{refusal("LOADING"), ErrOutage},
		{action{cut: true}, ErrOutage},
		{action{hang: true}, ErrOutage},
	} {
		withCachedDenial(t, func(t *testing.T, s *server, l *Limiter) {
			s.cut()
			synctest.Wait()
			s.chooseActions(func(c command) action {
				if c.name == "GET" {
					return test.action
				}
				return action{}
			})
			got := attemptOne(t, l, "hot")
			wantError(t, test.action.reply, got.err, test.err)
			wantEqual(t, "allowed", got.Allowed, false)
		})
	}
}
