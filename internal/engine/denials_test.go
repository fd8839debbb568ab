package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
)

// remembering runs a test with a limiter that has a denial cache, an event that is denied, and nothing asked of the server since.
func remembering(t *testing.T, test func(t *testing.T, s *server, l *Limiter)) {
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
		s.forgetCalls()
		test(t, s, l)
	})
}

// forgetCalls has scriptCalls and the like begin anew.
func (s *server) forgetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran, s.received, s.gets = nil, nil, 0
}

// asked returns how many GETs and script calls there were.
func (s *server) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets + len(s.received)
}

// TestRememberedDenials cost Redis nothing, and their waits become shorter.
func TestRememberedDenials(t *testing.T) {
	remembering(t, func(t *testing.T, s *server, l *Limiter) {
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
	remembering(t, func(t *testing.T, s *server, l *Limiter) {
		other := limiter(t, s.client(t))
		if err := other.Reset(t.Context(), "hot"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mustAllow(t, l, "hot")
	})
}

// TestOwnResetIsNoticed at once.
func TestOwnResetIsNoticed(t *testing.T) {
	remembering(t, func(t *testing.T, _ *server, l *Limiter) {
		if err := l.Reset(t.Context(), "hot"); err != nil {
			t.Fatal(err)
		}
		mustAllow(t, l, "hot")
	})
}

// TestLostConnectionEndsDenials checks that what the client kept is worth nothing without the connection.
func TestLostConnectionEndsDenials(t *testing.T) {
	remembering(t, func(t *testing.T, s *server, l *Limiter) {
		s.cut()
		synctest.Wait()
		wantEqual(t, "allowed", attemptOne(t, l, "hot").Allowed, false)
		wantEqual(t, "asked", s.asked() > 0, true)
	})
}

// TestTimeoutCoversTheLook checks that a look and the request after it take one Timeout together, and a caller that leaves meanwhile was not
// sent.
func TestTimeoutCoversTheLook(t *testing.T) {
	remembering(t, func(t *testing.T, s *server, l *Limiter) {
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
	remembering(t, func(t *testing.T, s *server, l *Limiter) {
		s.cut()
		synctest.Wait()
		s.always(fate{delay: 600 * time.Millisecond})
		got := attemptOne(t, l, "hot")
		wantError(t, "a slow look and a slow script", got.err, ErrUncertain)
		wantEqual(t, "took", got.took, time.Second)
	})
}

// TestLookThatFails checks that an outage is an error, anything else is left to the script.
func TestLookThatFails(t *testing.T) {
	for _, test := range []struct {
		fate fate
		err  error
	}{
		{fate{reply: "*2\r\n:100000\r\n-WRONGTYPE Operation against a key holding the wrong kind of value"}, nil},
		{refusal("LOADING"), ErrOutage},
		{fate{cut: true}, ErrOutage},
		{fate{hang: true}, ErrOutage},
	} {
		remembering(t, func(t *testing.T, s *server, l *Limiter) {
			s.cut()
			synctest.Wait()
			s.judgeBy(func(c command) fate {
				if c.name == "GET" {
					return test.fate
				}
				return fate{}
			})
			got := attemptOne(t, l, "hot")
			wantError(t, test.fate.reply, got.err, test.err)
			wantEqual(t, "allowed", got.Allowed, false)
		})
	}
}
