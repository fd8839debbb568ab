package pipeline

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/pipeline/servertest"
)

// withCache returns a line whose client caches the values that it reads.
func withCache(t *testing.T, s *servertest.Server) *line {
	t.Helper()
	return newLine(t, s.Client(t, func(o *rueidis.ClientOption) { o.DisableCache = false }))
}

// TestGet checks that a value comes from the client's cache until the value changes.
func TestGet(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := withCache(t, s)
		for _, want := range []struct {
			value string
			hit   bool
		}{{"1", false}, {"1", true}, {"2", false}} {
			if !want.hit {
				mustCount(t, l, "event")
			}
			c, err := l.Get(t.Context(), ReadValue, l.Key("event"), time.Second, time.Minute)
			wantError(t, "Get", err, nil)
			wantEqual(t, "value", c.Value, want.value)
			wantEqual(t, "hit", c.Hit, want.hit)
		}
	})
}

// TestGetEnds checks that a Get ends at its timeout or shortly before its deadline, either of which
// counts as an outage, or when its context is canceled, which does not. In no case is anything left
// behind.
func TestGetEnds(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := withCache(t, s)
		s.Hold()
		began := time.Now()
		_, err := l.Get(t.Context(), ReadValue, l.Key("a"), 300*time.Millisecond, time.Minute)
		wantError(t, "timeout", err, ErrOutage)
		wantEqual(t, "took", time.Since(began), 300*time.Millisecond)

		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err = l.Get(ctx, ReadValue, l.Key("b"), time.Second, time.Minute)
		wantError(t, "deadline", err, ErrOutage)
		wantError(t, "deadline", err, context.DeadlineExceeded)
		wantEqual(t, "took", time.Since(began), 480*time.Millisecond)

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(200*time.Millisecond, cancel)
		_, err = l.Get(ctx, ReadValue, l.Key("c"), time.Second, time.Minute)
		if !errors.Is(err, ErrLeft) || !errors.Is(err, context.Canceled) || IsOutage(err) {
			t.Errorf("its context ended: %v", err)
		}
		s.Release()
		servertest.Pass(time.Second)
		wantIdle(t, l)
		wantEqual(t, "failures", l.ranges[0].failures.Load(), 1)
	})
}

// TestGetWhileTheBreakerIsOpen checks that nothing is sent while the circuit breaker of the slot
// range is open.
func TestGetWhileTheBreakerIsOpen(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := withCache(t, s)
		breakRange(t, s, l, "a")
		asked := s.Asked()
		c, err := l.Get(t.Context(), ReadValue, l.Key("b"), time.Second, time.Minute)
		wantError(t, "Get", err, nil)
		wantEqual(t, "value", c.Value, "")
		wantEqual(t, "hit", c.Hit, false)
		wantEqual(t, "asked", s.Asked(), asked)
	})
}
