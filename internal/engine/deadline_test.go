package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
)

// hangs are ways in which Redis does not answer in time.
var hangs = []struct {
	name  string
	begin func(*testing.T, *server, *Limiter)
}{
	{"nothing is executed", func(_ *testing.T, s *server, _ *Limiter) { s.hold() }},
	{"a command hangs", func(_ *testing.T, s *server, _ *Limiter) { s.always(action{hang: true}) }},
	{"commands are executed in silence", func(_ *testing.T, s *server, _ *Limiter) { s.always(action{silent: true}) }},
	{"commands take a minute", func(_ *testing.T, s *server, _ *Limiter) { s.always(action{delay: time.Minute}) }},
	{"a dial hangs", func(t *testing.T, s *server, l *Limiter) {
		s.die()
		if err := attemptOne(t, l, "before").err; !isOutage(err) { // from now on, the client knows that the connection broke
			t.Fatal(err)
		}
		s.holdDials()
		s.revive()
	}},
}

// TestTimeoutHolds checks that a caller gets an answer exactly when its timeout passes, whatever
// Redis does.
func TestTimeoutHolds(t *testing.T) {
	for _, pipelining := range []bool{true, false} {
		for _, hang := range hangs {
			t.Run(fmt.Sprintf("%s, AlwaysPipelining %v", hang.name, pipelining), func(t *testing.T) {
				onFakeTime(t, func(t *testing.T, s *server) {
					l := limiter(t, s.client(t, alwaysPipelining(pipelining)))
					mustAllow(t, l, "before")
					hang.begin(t, s, l)
					testTimeouts(t, l)
				})
			})
		}
	}
}

// testTimeouts checks how long callers wait for a Redis that answers none of them.
func testTimeouts(t *testing.T, l *Limiter) {
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
	}{
		{"cancelled", leaves, 200 * time.Millisecond},
		{"no deadline", t.Context(), time.Second},
		{"a deadline before the Timeout", soon, 300 * time.Millisecond},
		{"a deadline after the Timeout", late, time.Second},
	}
	var started []*caller
	for _, c := range callers {
		started = append(started, arrive(c.ctx, l, Allow, "event", 1))
	}
	for i, c := range callers {
		got := started[i].wait()
		wantEqual(t, c.name+": took", got.took, c.took)
		wantError(t, c.name, got.err, ErrUncertain)
		if c.ctx.Err() != nil && c.took < time.Second {
			wantError(t, c.name, got.err, c.ctx.Err())
		}
	}
}

// TestOwnContextEndsCallsWithoutTimeout checks that under a negative Timeout, only the context ends
// a call.
func TestOwnContextEndsCallsWithoutTimeout(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t), func(c *Config) { c.Timeout = -1 })
		s.always(action{delay: 5 * time.Second})
		wantEqual(t, "without a deadline", attemptOne(t, l, "a").took, 5*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		got := ask(ctx, l, Allow, "a", 1)
		wantEqual(t, "with one", got.took, 3*time.Second)
		wantError(t, "with one", got.err, ErrUncertain)
	})
}

// TestDeadlineAffectsNobodyElse checks one script call of three callers, two of whom leave. The
// third gets its answer, and the connection stays open.
func TestDeadlineAffectsNobodyElse(t *testing.T) {
	for _, pipelining := range []bool{true, false} {
		onFakeTime(t, func(t *testing.T, s *server) {
			l := limiter(t, s.client(t, alwaysPipelining(pipelining)))
			occupiers := occupySenders(t, s, l)
			hot := l.Key("hot")
			s.chooseActions(func(c command) action {
				if c.key == hot {
					return action{delay: 500 * time.Millisecond}
				}
				return action{}
			})
			short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			leaves, leave := context.WithCancel(t.Context())
			a, b := arrive(short, l, Allow, "hot", 1), arrive(leaves, l, Allow, "hot", 1)
			c := arrive(t.Context(), l, Allow, "hot", 1)
			filler := fillBatch(t, l)
			s.release()
			pass(200 * time.Millisecond)
			leave()
			wantError(t, "the one with a deadline", a.wait().err, ErrUncertain)
			wantError(t, "the one that leaves", b.wait().err, ErrUncertain)
			c.wait()
			wantEqual(t, "took", c.took, 500*time.Millisecond)
			wantEqual(t, "used", c.Row(0)[0], 3)
			wantEqual(t, "script calls", len(onEvent(l, s.scriptCalls(), "hot")), 1)
			for _, other := range append(occupiers, filler...) {
				wantError(t, "another", other.wait().err, nil)
			}
			wantEqual(t, "dials", s.dialed(), 1)
		})
	}
}

// TestLeaversAreCertainlyNotSent checks that a caller that leaves before its batch is built was not
// sent, and that its error says so.
func TestLeaversAreCertainlyNotSent(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t), func(c *Config) { c.Timeout = -1 })
		occupiers := occupySenders(t, s, l)
		l.Timeout = 400 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		leaves, leave := context.WithCancel(t.Context())
		a, b := arrive(ctx, l, Allow, "a", 1), arrive(leaves, l, Allow, "b", 1)
		c := arrive(t.Context(), l, Allow, "c", 1)
		pass(200 * time.Millisecond)
		leave()
		for _, left := range []struct {
			*caller
			wantTook  time.Duration
			wantCause error
			wantText  string
		}{
			{a, 100 * time.Millisecond, context.DeadlineExceeded, "nothing was sent"},
			{b, 200 * time.Millisecond, context.Canceled, "nothing was sent"},
			{c, 400 * time.Millisecond, ErrOutage, "it was not sent"},
		} {
			left.wait()
			wantEqual(t, left.wantText, left.took, left.wantTook)
			wantError(t, left.wantText, left.err, left.wantCause)
			if errors.Is(left.err, ErrUncertain) || !strings.Contains(left.err.Error(), left.wantText) {
				t.Error(left.err)
			}
		}
		s.release()
		for _, o := range occupiers {
			wantError(t, "an occupier", o.wait().err, nil)
		}
		synctest.Wait()
		wantEqual(t, "executed", s.executed(), maxSenders)
		wantEqual(t, "received", len(s.receivedCalls()), maxSenders)
	})
}

// TestLateCallersAreNotSent checks that a caller whose context has already ended is not sent.
func TestLateCallersAreNotSent(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, got := range append(l.AttemptEach(ctx, []string{"a", "b"}), Answer{Err: ask(ctx, l, Allow, "a", 1).err}) {
			wantError(t, "late", got.Err, context.Canceled)
			if isOutage(got.Err) || !strings.Contains(got.Err.Error(), "nothing was sent") {
				t.Error(got.Err)
			}
		}
		wantEqual(t, "received", len(s.receivedCalls()), 0)
	})
}

// TestWhatDidNotRunStaysCertain checks a caller whose request was sent and did not run, and that
// leaves before the retry. It gets the reason.
func TestWhatDidNotRunStaysCertain(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t), func(c *Config) { c.Timeout = -1 })
		s.next(refusal("LOADING the data set"))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		pausing, stop := context.WithCancel(t.Context())
		repeated := arrive(ctx, l, Allow, "repeated", 1)
		s.next(refusal("TRYAGAIN later"))
		paused := arrive(pausing, l, Allow, "paused", 1)
		stop()
		occupySenders(t, s, l)
		for _, c := range []*caller{paused, repeated} {
			wantError(t, "it did not run", c.wait().err, ErrOutage)
		}
		wantEqual(t, "took", repeated.took, 100*time.Millisecond)
		s.release()
		synctest.Wait()
		wantEqual(t, "executed", s.executed(), maxSenders)
	})
}

// TestManyConnections checks that if the client has several connections, one that hangs does not
// delay requests on the others.
func TestManyConnections(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		client := s.client(t, func(o *rueidis.ClientOption) { o.PipelineMultiplex = 2 })
		l := limiter(t, client)
		bad := l.Key("bad")
		s.chooseActions(func(c command) action { return action{hang: c.key == bad} })
		hung := arrive(t.Context(), l, Allow, "bad", 1)
		answered := 0
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if c := ask(ctx, l, Allow, fmt.Sprint("good ", i), 1); c.err == nil {
				wantEqual(t, "took", c.took, 0)
				answered++
			}
			cancel()
		}
		if answered < 5 {
			t.Errorf("%d of 20 were answered", answered)
		}
		wantError(t, "bad", hung.wait().err, ErrUncertain)
	})
}

// TestContextThatEndsWithTheTimeout checks that if context and timeout end at once, the error
// matches one of them.
func TestContextThatEndsWithTheTimeout(t *testing.T) {
	for range 8 { // since either can be noticed first
		onFakeTime(t, func(t *testing.T, s *server) {
			l := limiter(t, s.client(t), func(c *Config) { c.Timeout = -1 })
			occupySenders(t, s, l)
			l.Timeout = 100 * time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(l.Timeout, cancel)
			if err := ask(ctx, l, Allow, "a", 1).err; !errors.Is(err, context.Canceled) && !errors.Is(err, ErrOutage) {
				t.Error(err)
			}
		})
	}
}
