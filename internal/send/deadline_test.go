package send

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/servertest"
)

// hangs lists ways in which Redis can fail to answer in time.
var hangs = []struct {
	name  string
	begin func(*testing.T, *servertest.Server, *line)
}{
	{"nothing is executed", func(_ *testing.T, s *servertest.Server, _ *line) { s.Hold() }},
	{"a command hangs", func(_ *testing.T, s *servertest.Server, _ *line) { s.Always(servertest.Action{Hang: true}) }},
	{"commands are executed in silence", func(_ *testing.T, s *servertest.Server, _ *line) { s.Always(servertest.Action{Silent: true}) }},
	{"commands take a minute", func(_ *testing.T, s *servertest.Server, _ *line) { s.Always(servertest.Action{Delay: time.Minute}) }},
	{"a dial hangs", func(t *testing.T, s *servertest.Server, l *line) {
		s.Die()
		if err := askOne(t, l, "before").err; !health.IsOutage(err) { // after this, the client knows that the connection broke
			t.Fatal(err)
		}
		s.SlowDials(time.Hour)
		s.Revive()
	}},
}

// TestTimeoutHolds checks that for each way of hanging, a caller gets an error exactly when its
// timeout passes.
func TestTimeoutHolds(t *testing.T) {
	for _, pipelining := range []bool{true, false} {
		for _, hang := range hangs {
			t.Run(fmt.Sprintf("%s, AlwaysPipelining %v", hang.name, pipelining), func(t *testing.T) {
				servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
					l := newLine(t, s.Client(t, servertest.AlwaysPipelining(pipelining)))
					mustCount(t, l, "before")
					hang.begin(t, s, l)
					testTimeouts(t, l)
				})
			})
		}
	}
}

// testTimeouts checks how long callers with various timeouts and deadlines wait if Redis does not
// answer.
func testTimeouts(t *testing.T, l *line) {
	t.Helper()
	soon, cancelSoon := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancelSoon()
	late, cancelLate := context.WithTimeout(t.Context(), time.Minute)
	defer cancelLate()
	leaves, leave := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, leave)
	callers := []struct {
		name string
		ctx  context.Context //nolint:containedctx // it is what differs
		took time.Duration
		too  error // another error that the error must match
	}{
		{"cancelled", leaves, 200 * time.Millisecond, context.Canceled},
		{"no deadline", t.Context(), time.Second, health.ErrUncertain},
		{"a deadline before the Timeout", soon, 300 * time.Millisecond, context.DeadlineExceeded},
		{"a deadline after the Timeout", late, time.Second, health.ErrUncertain},
	}
	var started []*attempt
	for _, c := range callers {
		started = append(started, arrive(c.ctx, l, "event"))
	}
	for i, c := range callers {
		got := started[i].wait()
		wantEqual(t, c.name+": took", got.took, c.took)
		wantError(t, c.name, got.err, health.ErrUncertain)
		wantError(t, c.name, got.err, c.too)
	}
}

// TestDeadlineAffectsNobodyElse checks that if two of three callers leave a script call, the third
// caller gets its answer, and the connection stays open.
func TestDeadlineAffectsNobodyElse(t *testing.T) {
	for _, pipelining := range []bool{true, false} {
		servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
			l := newLine(t, s.Client(t, servertest.AlwaysPipelining(pipelining)))
			occupiers := occupySenders(t, s, l)
			hot := l.Key("hot")
			s.Choose(func(c servertest.Command) servertest.Action {
				if c.Key == hot {
					return servertest.Action{Delay: 500 * time.Millisecond}
				}
				return servertest.Action{}
			})
			short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			leaves, leave := context.WithCancel(t.Context())
			a, b := arrive(short, l, "hot"), arrive(leaves, l, "hot")
			c := arrive(t.Context(), l, "hot")
			filler := fillBatch(t, l)
			s.Release()
			servertest.Pass(200 * time.Millisecond)
			leave()
			wantError(t, "the caller with a deadline", a.wait().err, health.ErrUncertain)
			wantError(t, "the caller that leaves", b.wait().err, health.ErrUncertain)
			c.wait()
			wantEqual(t, "took", c.took, 500*time.Millisecond)
			wantEqual(t, "used", c.count, 3)
			wantEqual(t, "script calls", len(onEvent(l, s.Ran(), "hot")), 1)
			for _, other := range append(occupiers, filler...) {
				wantError(t, "another", other.wait().err, nil)
			}
			wantEqual(t, "dials", s.Dialed(), 1)
		})
	}
}

// TestLeaversAreCertainlyNotSent checks that nothing is sent for a caller that leaves before its
// batch is built, and that its error states this.
func TestLeaversAreCertainlyNotSent(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t), func(l *line) { l.Timeout = -1 })
		mustCount(t, l, "before")
		occupiers := occupySenders(t, s, l)
		l.Timeout = 400 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		leaves, leave := context.WithCancel(t.Context())
		a, b := arrive(ctx, l, "a"), arrive(leaves, l, "b")
		c := arrive(t.Context(), l, "c")
		servertest.Pass(200 * time.Millisecond)
		leave()
		for _, left := range []struct {
			*attempt
			wantTook  time.Duration
			wantCause error
			wantText  string
		}{
			{a, 100 * time.Millisecond, context.DeadlineExceeded, "nothing was sent"},
			{b, 200 * time.Millisecond, context.Canceled, "nothing was sent"},
			{c, 400 * time.Millisecond, health.ErrOutage, "it was not sent within 400ms, the timeout"},
		} {
			left.wait()
			wantEqual(t, left.wantText, left.took, left.wantTook)
			wantError(t, left.wantText, left.err, left.wantCause)
			if errors.Is(left.err, health.ErrUncertain) || !strings.Contains(left.err.Error(), left.wantText) {
				t.Error(left.err)
			}
		}
		s.Release()
		for _, o := range occupiers {
			wantError(t, "an occupier", o.wait().err, nil)
		}
		synctest.Wait()
		wantEqual(t, "executed", s.Executed(), 1+maxSenders)
		wantEqual(t, "received", len(s.Received()), 1+maxSenders)
	})
}

// TestWhatDidNotRunStaysCertain checks that if a request was sent but did not run, and its caller
// leaves before the retry, the caller gets the reason why it did not run.
func TestWhatDidNotRunStaysCertain(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t), func(l *line) { l.Timeout = -1 })
		mustCount(t, l, "before")
		s.Next(servertest.Refusal("LOADING the data set"))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		pausing, stop := context.WithCancel(t.Context())
		repeated := arrive(ctx, l, "repeated")
		s.Next(servertest.Refusal("TRYAGAIN later"))
		paused := arrive(pausing, l, "paused")
		stop()
		occupySenders(t, s, l)
		for _, c := range []*attempt{paused, repeated} {
			wantError(t, "it did not run", c.wait().err, health.ErrOutage)
		}
		wantEqual(t, "took", repeated.took, 100*time.Millisecond)
		s.Release()
		synctest.Wait()
		wantEqual(t, "executed", s.Executed(), 1+maxSenders)
	})
}

// TestContextThatEndsWithTheTimeout checks that if the context is canceled when the timeout passes,
// the error matches one of the two causes.
func TestContextThatEndsWithTheTimeout(t *testing.T) {
	for range 8 { // because either can be noticed first
		servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
			l := newLine(t, s.Client(t), func(l *line) { l.Timeout = -1 })
			occupySenders(t, s, l)
			l.Timeout = 100 * time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(l.Timeout, cancel)
			if err := ask(ctx, l, "a").err; !errors.Is(err, context.Canceled) && !errors.Is(err, health.ErrOutage) {
				t.Error(err)
			}
		})
	}
}
