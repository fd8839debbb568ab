package pipeline

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/pipeline/servertest"
)

// TestSilence checks when a server counts as silent, and how long a silence must last to count as a
// failure. The first reply is not a sample of how long replies take, and a reply after a stall has
// little weight.
func TestSilence(t *testing.T) {
	const ms = time.Millisecond
	s := &silence{}
	for _, step := range []struct {
		began, ended time.Duration
		replied      bool
		want         time.Duration
	}{
		{0, time.Minute, true, slowness * assumedUsual},
		{0, 4 * ms, true, 16 * ms},
		{0, time.Hour, false, 16 * ms},
		{0, 12 * ms, true, 20 * ms},
		{0, time.Hour, true, slowness * (5*ms + (5*ms+minPatience)/8)},
	} {
		s.begin(step.began)
		s.end(step.began, step.ended, step.replied)
		wantEqual(t, "least", s.least(), step.want)
	}
	for range 50 {
		s.begin(0)
		s.end(0, ms, true)
	}
	wantEqual(t, "least", s.least(), minPatience)

	s.begin(1000 * ms)
	s.begin(1010 * ms)
	for _, step := range []struct {
		change      func()
		now, silent time.Duration
	}{
		{func() {}, 1030 * ms, 30 * ms},
		{func() { s.end(1010*ms, 1031*ms, true) }, 1040 * ms, 9 * ms},
		{func() { s.end(1000*ms, 1041*ms, false) }, 1050 * ms, 0},
		{func() { s.begin(1060 * ms) }, 1062 * ms, 2 * ms},
	} {
		step.change()
		wantEqual(t, "silent", s.lasts(step.now), step.silent)
	}
}

// TestBusyIsNotSilent checks that it does not count as a failure if callers' deadlines pass while
// their requests are queued and Redis replies to others.
func TestBusyIsNotSilent(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		learn(t, l)
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
		wantEqual(t, "failures", l.ranges[0].failures.Load(), 0)
		if late == 0 {
			t.Error("weak test: no caller was late")
		}
	})
}

// TestSilenceAmongReplies checks that a request whose reply is missing counts as a failure, even if
// other requests in its queue get their replies.
func TestSilenceAmongReplies(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t, servertest.AlwaysPipelining(false)))
		learn(t, l)
		bad := l.Key("bad")
		s.Choose(func(c servertest.Command) servertest.Action { return servertest.Action{Hang: c.Key == bad} })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		hung := arrive(ctx, l, "bad")
		for i := range 99 {
			short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			ask(short, l, fmt.Sprint("good ", i))
			cancel()
			servertest.Pass(time.Millisecond)
		}
		wantError(t, "bad", hung.wait().err, ErrUncertain)
		wantEqual(t, "took", hung.took, 90*time.Millisecond)
		wantEqual(t, "failures", l.ranges[0].failures.Load(), 1)
	})
}

// TestSilenceFoundLate checks that a caller that finds shortly before its deadline that Redis is
// not silent checks again at the deadline. If the timeout passes before the deadline, it ends the
// wait.
func TestSilenceFoundLate(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{time.Second: 40 * time.Millisecond, 38 * time.Millisecond: 38 * time.Millisecond} {
		servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
			l := newLine(t, s.Client(t), func(l *line) { l.Timeout = timeout })
			learn(t, l)
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
			defer cancel()
			s.Always(servertest.Action{Delay: 34 * time.Millisecond})
			arrive(t.Context(), l, "answered")
			s.Always(servertest.Action{Hang: true})
			hung := arrive(ctx, l, "hung")
			wantError(t, "hung", hung.wait().err, ErrUncertain)
			wantEqual(t, "took", hung.took, want)
			synctest.Wait()
			wantEqual(t, "failures", l.ranges[0].failures.Load(), 1)
		})
	}
}
