package send

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/servertest"
)

// TestSilence checks that a silence lasts while something is in flight, and ends with a reply.
func TestSilence(t *testing.T) {
	const ms = time.Millisecond
	s := &silence{}
	var first, second, third int
	for _, step := range []struct {
		name   string
		change func()
		now    time.Duration
		lasts  time.Duration
	}{
		{"nothing is sent", func() {}, 5 * ms, 0},
		{"two batches are sent", func() { first, second = s.sent(10*ms), s.sent(20*ms) }, 30 * ms, 20 * ms},
		{"the first one's connection breaks", func() { s.ended(40*ms, first, false) }, 50 * ms, 40 * ms},
		{"the second one's, too", func() { s.ended(50*ms, second, false) }, time.Second, 40 * ms},
		{"another is sent", func() { third = s.sent(2000 * ms) }, 2010 * ms, 50 * ms},
		{"a reply", func() { s.ended(2020*ms, third, true) }, 2030 * ms, 0},
		{"two more", func() { first, second = s.sent(2100*ms), s.sent(2110*ms) }, 2120 * ms, 20 * ms},
		{"a reply to the second", func() { s.ended(2130*ms, second, true) }, 2140 * ms, 0},
		{"a third one", func() { third = s.sent(2200 * ms) }, 2210 * ms, 10 * ms},
		{"the first one's connection breaks", func() { s.ended(2220*ms, first, false) }, 2230 * ms, 30 * ms},
		{"the third one's, too", func() { s.ended(2240*ms, third, false) }, time.Hour, 40 * ms},
	} {
		step.change()
		wantEqual(t, step.name, s.lasts(step.now), step.lasts)
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
		var callers []*attempt
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
		wantEqual(t, "open", l.first().IsOpen(), false)
		if late == 0 {
			t.Error("weak test: no caller was late")
		}
	})
}

// callWhileHung makes n calls at the given interval, each with a deadline of 100 ms, on a server
// that has replied once and then hangs. It calls after after each of them.
func callWhileHung(t *testing.T, s *servertest.Server, l *line, n int, interval time.Duration, after func()) (callers []*attempt) {
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

// TestSilenceIsFound checks that callers whose deadlines come before the timeout get an outage before
// their deadlines once a silence has lasted for the timeout, also if connections break. Until then,
// they get the errors of their contexts.
func TestSilenceIsFound(t *testing.T) {
	for interval, silent := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 100 * time.Millisecond, 300 * time.Millisecond: 300 * time.Millisecond, 3 * time.Second: 3 * time.Second,
	} {
		for _, cuts := range []bool{false, true} {
			servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
				l := newLine(t, s.Client(t), func(l *line) { l.Timeout = 250 * time.Millisecond })
				if cuts {
					silent = 100 * time.Millisecond // only the time counts until the connection breaks
				}
				for i, c := range callWhileHung(t, s, l, 8, interval, func() {
					if cuts {
						s.Cut()
						synctest.Wait()
					}
				}) {
					young := time.Duration(i)*silent < l.Timeout && time.Duration(i+1)*silent < l.Timeout
					if young && c.took != 100*time.Millisecond || time.Duration(i)*silent >= l.Timeout && c.took > 90*time.Millisecond || !health.IsOutage(c.err) {
						t.Errorf("every %v, cuts %v, call %d: %v after %v", interval, cuts, i, c.err, c.took)
					}
				}
				if !l.first().IsOpen() {
					t.Error("the breaker is closed")
				}
			})
		}
	}
}

// TestBrokenConnectionIsNoSilence checks that after a connection has broken, idle time does not count:
// the next caller can wait until its deadline.
func TestBrokenConnectionIsNoSilence(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		s.Next(servertest.Action{Delay: 10 * time.Millisecond, Cut: true})
		wantError(t, "cut", askOne(t, l, "e").err, health.ErrUncertain)
		servertest.Pass(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		s.Always(servertest.Action{Delay: 19 * time.Millisecond})
		wantError(t, "after it", ask(ctx, l, "e").err, nil)
		wantEqual(t, "reports", l.log.read(), nil)
	})
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
		wantEqual(t, "open", l.first().IsOpen(), false)
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
			wantError(t, "bad", hung.wait().err, health.ErrUncertain)
		})
	}
}
