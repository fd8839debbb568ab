package pipeline

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/pipeline/servertest"
)

// TestSilence checks when a silence begins and ends, and whether a batch sent in the last 50 ms can
// end it.
func TestSilence(t *testing.T) {
	const ms = time.Millisecond
	s := &silence{}
	for _, step := range []struct {
		name   string
		change func()
		now    time.Duration
		lasts  time.Duration
		mayEnd bool
	}{
		{"nothing is sent", func() {}, 5 * ms, 0, false},
		{"two batches are sent", func() { s.sent(10 * ms); s.sent(20 * ms) }, 30 * ms, 20 * ms, true},
		{"the first one's connection breaks", func() { s.ended(10*ms, false) }, 69 * ms, 59 * ms, true},
		{"the second one is old", func() {}, 70 * ms, 60 * ms, false},
		{"a reply", func() { s.ended(20*ms, true) }, 80 * ms, 0, false},
		{"another two", func() { s.sent(160 * ms); s.sent(170 * ms) }, 180 * ms, 20 * ms, true},
		{"a reply to the second", func() { s.ended(170*ms, true) }, 190 * ms, 0, false},
		{"a third one", func() { s.sent(200 * ms) }, 210 * ms, 10 * ms, true},
		{"the first one's connection breaks", func() { s.ended(160*ms, false) }, 220 * ms, 20 * ms, true},
		{"all connections break", func() { s.ended(200*ms, false) }, 230 * ms, 30 * ms, false},
	} {
		step.change()
		wantEqual(t, step.name+": lasts", s.lasts(step.now), step.lasts)
		wantEqual(t, step.name+": may end", s.mayEnd(step.now, 50*ms), step.mayEnd)
	}
}

// TestBusyIsNotSilent checks that it does not count as a failure if callers' deadlines pass while
// their requests are queued and Redis replies to others.
func TestBusyIsNotSilent(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		mustCount(t, l, "before")
		s.Always(servertest.Action{Delay: 2 * time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		var callers []*caller
		for range 100 * maxBatch {
			callers = append(callers, start(ctx, l, "crowd"))
		}
		late := 0
		for _, c := range callers {
			if c.wait(); c.err == nil {
				continue
			}
			late++
			wantError(t, "late", c.err, context.DeadlineExceeded)
			wantEqual(t, "took", c.took, 20*time.Millisecond)
		}
		wantEqual(t, "failures", l.slots(0).failures.Load(), 0)
		if late == 0 {
			t.Error("weak test: no caller was late")
		}
	})
}

// callWhileHung makes n calls at the given interval, each with a deadline of 100 ms, on a server
// that has replied once and then hangs. It calls after after each of them.
func callWhileHung(t *testing.T, s *servertest.Server, l *line, n int, interval time.Duration, after func()) (callers []*caller) {
	t.Helper()
	mustCount(t, l, "before")
	s.Always(servertest.Action{Hang: true})
	for range n {
		next := time.After(interval)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		callers = append(callers, ask(ctx, l, "e"))
		cancel()
		after()
		<-next
	}
	return callers
}

// TestSilenceIsFound checks that only the first of some callers whose deadlines come before the
// timeout gets the error of its context when Redis hangs. Once the silence has lasted for the
// timeout, all others get an outage in time, also if connections break.
func TestSilenceIsFound(t *testing.T) {
	for _, interval := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second} {
		for _, cuts := range []bool{false, true} {
			servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
				l := newLine(t, s.Client(t), func(l *line) { l.Timeout = 250 * time.Millisecond })
				for i, c := range callWhileHung(t, s, l, 8, interval, func() {
					if cuts {
						s.Cut()
						synctest.Wait()
					}
				}) {
					young := time.Duration(i)*interval < l.Timeout
					if young != errors.Is(c.err, context.DeadlineExceeded) && c.took == 100*time.Millisecond || !young && c.took > 90*time.Millisecond || !IsOutage(c.err) {
						t.Errorf("every %v, cuts %v, call %d: %v after %v", interval, cuts, i, c.err, c.took)
					}
				}
				if !l.slots(0).isOpen() {
					t.Error("the breaker is closed")
				}
			})
		}
	}
}

// TestSilenceWithoutTimeout checks that with a negative Timeout, only the context ends a call, even
// if it takes long or if there is a silence.
func TestSilenceWithoutTimeout(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t), func(l *line) { l.Timeout = -1 })
		s.Next(servertest.Action{Delay: 5 * time.Second})
		wantEqual(t, "without a deadline", askOne(t, l, "e").took, 5*time.Second)
		for _, c := range callWhileHung(t, s, l, 8, time.Hour, func() {}) {
			wantError(t, "hung", c.err, context.DeadlineExceeded)
			wantEqual(t, "took", c.took, 100*time.Millisecond)
		}
		wantEqual(t, "failures", l.slots(0).failures.Load(), 0)
	})
}

// TestSilenceOfOneConnection checks that if one of the client's connections hangs, calls on the
// others are still sent and not delayed, whether there are many of them or few.
func TestSilenceOfOneConnection(t *testing.T) {
	for _, interval := range []time.Duration{0, 300 * time.Millisecond} {
		servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
			l := newLine(t, s.Client(t, func(o *rueidis.ClientOption) { o.PipelineMultiplex = 2 }), func(l *line) { l.Timeout = 250 * time.Millisecond })
			bad := l.Key("bad")
			s.Choose(func(c servertest.Command) servertest.Action { return servertest.Action{Hang: c.Key == bad} })
			hung := arrive(t.Context(), l, "bad")
			answered := 0
			for i := range 20 {
				servertest.Pass(interval)
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				if c := ask(ctx, l, fmt.Sprint("good ", i)); c.err == nil {
					wantEqual(t, "took", c.took, 0)
					answered++
				}
				cancel()
			}
			if answered < 5 {
				t.Errorf("every %v: %d of 20 were answered", interval, answered)
			}
			wantError(t, "bad", hung.wait().err, ErrUncertain)
		})
	}
}
