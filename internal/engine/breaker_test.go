package engine

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
)

// TestOutagesAreReportedInOrder checks that an outage is reported to begin before it ends, even if
// many requests end at once.
func TestOutagesAreReportedInOrder(t *testing.T) {
	open, reports := false, 0
	b := &breaker{notify: func(_ context.Context, opened bool) { // never two at once
		if open == opened {
			t.Errorf("report %d: opened %v", reports, opened)
		}
		open = opened
		reports++
	}}
	var callers sync.WaitGroup
	for c := range 4 {
		callers.Go(func() {
			for n := range 5_000 {
				ends := []error{&UnsentError{rueidis.ErrNoSlot}, nil}[min(1, (n+c)%5/4)]
				b.record(context.Background(), 1<<62, 1<<62, ends)
			}
		})
	}
	callers.Wait()
	if reports < 100 {
		t.Errorf("a poor test: %d reports", reports)
	}
}

// TestBreaker checks that three failures in a row open the breaker for a second. Then one request
// probes. Once a probe succeeds, all requests are sent.
func TestBreaker(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		var d reportLog
		l := limiter(t, s.client(t), d.record)
		s.always(refusal("ERR broken"))
		for range 2 {
			wantError(t, "broken", attemptOne(t, l, "a").err, ErrOutage)
		}
		s.next(action{})
		mustAllow(t, l, "a") // the failures are not in a row
		pass(time.Second)
		for range 3 {
			wantEqual(t, "reports so far", d.read(), nil)
			wantError(t, "broken", attemptOne(t, l, "a").err, ErrOutage)
		}
		wantEqual(t, "reports", d.read(), []string{"1s: outage began 0"})
		sent := len(s.receivedCalls())

		pass(time.Second - time.Nanosecond)
		wantOpen(t, attemptOne(t, l, "a"))
		wantEqual(t, "sent", len(s.receivedCalls()), sent)
		pass(time.Nanosecond)
		testProbe(t, s, l, refusal("ERR broken"))
		pass(time.Second - time.Nanosecond)
		wantOpen(t, attemptOne(t, l, "a"))
		pass(time.Nanosecond)
		wantEqual(t, "reports", d.read(), nil)
		s.always(action{})
		testProbe(t, s, l, action{})
		wantEqual(t, "reports", d.read(), []string{"3s: outage ended 0"})
		mustAllow(t, l, "b")
	})
}

// testProbe checks that one of five callers is sent, and gets this action.
func testProbe(t *testing.T, s *server, l *Limiter, f action) {
	t.Helper()
	sent := len(s.receivedCalls())
	s.next(f)
	s.hold()
	probe := arrive(t.Context(), l, Allow, "probe", 1)
	for range 4 {
		wantOpen(t, attemptOne(t, l, "a"))
	}
	s.release()
	wantEqual(t, "succeeded", probe.wait().err == nil, f == action{})
	wantEqual(t, "sent", len(s.receivedCalls()), sent+1)
}

// TestProbeThatLeaves checks that a probe whose caller leaves does not close the breaker. The next
// probe comes a second later.
func TestProbeThatLeaves(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		breakRange(t, s, l, "a")
		pass(time.Second)
		s.hold()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		wantError(t, "probe", ask(ctx, l, Allow, "a", 1).err, ErrUncertain)
		s.release()
		pass(900 * time.Millisecond)
		wantOpen(t, attemptOne(t, l, "b"))
		pass(100 * time.Millisecond)
		mustAllow(t, l, "b")
	})
}

// breakRange opens the circuit breaker of the slot range of an event.
func breakRange(t *testing.T, s *server, l *Limiter, event string) {
	t.Helper()
	s.next(refusal("ERR broken"), refusal("ERR broken"), refusal("ERR broken"))
	for range 3 {
		wantError(t, "broken", attemptOne(t, l, event).err, ErrOutage)
	}
	wantOpen(t, attemptOne(t, l, event))
}

// TestFaultsThatOpenTheBreaker checks that each of these faults opens the breaker after three
// requests. They are sent some time apart, because connections that break together are one failure.
func TestFaultsThatOpenTheBreaker(t *testing.T) {
	for _, f := range []action{{hang: true}, {silent: true}, {cut: true}, {lose: true}, {delay: time.Minute}, refusal("LOADING"), refusal("OOM"), {reply: "+what?"}} {
		onFakeTime(t, func(t *testing.T, s *server) {
			l := limiter(t, s.client(t))
			s.always(f)
			for range 3 {
				pass(sameCut)
				if err := attemptOne(t, l, "a").err; !isOutage(err) || strings.Contains(err.Error(), "left alone") {
					t.Errorf("%+v: %v", f, err)
				}
			}
			wantOpen(t, attemptOne(t, l, "a"))
		})
	}
}

// TestNoFailures checks that requests that their callers ended, or the script refused, do not open
// the breaker.
func TestNoFailures(t *testing.T) {
	for _, test := range []struct {
		name string
		f    action
		ctx  func(context.Context) (context.Context, context.CancelFunc)
	}{
		{"wrong type", refusal("WRONGTYPE key a"), context.WithCancel},
		{"foreign record", refusal("SLIDEGATE key a"), context.WithCancel},
		{"shorter deadline", action{hang: true}, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 999*time.Millisecond)
		}},
		{"cancelled", action{hang: true}, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond, cancel)
			return ctx, cancel
		}},
	} {
		onFakeTime(t, func(t *testing.T, s *server) {
			var d reportLog
			l := limiter(t, s.client(t), d.record)
			s.always(test.f)
			for range 10 {
				ctx, cancel := test.ctx(t.Context())
				got := ask(ctx, l, Allow, "a", 1)
				if got.err == nil || isOutage(got.err) != test.f.hang {
					t.Errorf("%s: %v", test.name, got.err)
				}
				cancel()
			}
			s.always(action{})
			s.cut()
			synctest.Wait()
			mustAllow(t, l, "a")
			wantEqual(t, test.name, d.read(), nil)
		})
	}
}

// TestConnectionBreaksOnce checks that a broken connection is one failure, however many requests
// were on it.
func TestConnectionBreaksOnce(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		for round := range 2 {
			pass(sameCut)
			callers := occupySenders(t, s, l)
			pass(time.Millisecond)
			s.cut()
			for _, c := range callers {
				wantError(t, "cut", c.wait().err, ErrUncertain)
			}
			s.release()
			wantEqual(t, "failures", int(l.redis.ranges[0].failures.Load()), round+1)
		}
		mustAllow(t, l, "a")
	})
}

// TestConnectionsBreakAtOnce checks that connections that break within sameCut are one failure, and
// that one that breaks later is another.
func TestConnectionsBreakAtOnce(t *testing.T) {
	b := &breaker{}
	for _, test := range []struct {
		began    time.Duration
		failures int32
	}{{0, 1}, {time.Millisecond, 1}, {sameCut, 1}, {sameCut + 2*time.Millisecond, 2}} {
		b.record(t.Context(), time.Second+test.began, time.Second+test.began+time.Millisecond, io.EOF)
		wantEqual(t, "failures", b.failures.Load(), test.failures)
	}
}

// TestLateFailures checks that failures of requests that began before a success are ignored.
func TestLateFailures(t *testing.T) {
	b := &breaker{notify: func(context.Context, bool) { t.Error("opened") }}
	b.record(t.Context(), 1*time.Second, 2*time.Second, nil)
	for range 10 {
		b.record(t.Context(), 1*time.Second, 3*time.Second, errExpired)
	}
}
