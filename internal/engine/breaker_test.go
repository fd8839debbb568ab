package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
)

// TestOutagesAreReportedInOrder checks that however requests end at once, an outage begins before it ends.
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

// A diary holds what a limiter reported.
type diary struct {
	mu      sync.Mutex
	entries []string
}

func (d *diary) keep(c *Config) {
	began := time.Now()
	c.Notify = func(_ context.Context, e Event) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.entries = append(d.entries, fmt.Sprintf("%v: %s %d", time.Since(began), e.Kind, e.Range))
	}
}

// read returns what was reported since it was last read.
func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries := d.entries
	d.entries = nil
	return entries
}

// wantRest checks that a request is refused because the circuit breaker is open.
func wantRest(t *testing.T, c *caller) {
	t.Helper()
	wantError(t, "at rest", c.err, ErrOutage)
	if c.took != 0 || !strings.Contains(c.err.Error(), "left alone") {
		t.Errorf("after %v: %v", c.took, c.err)
	}
}

// TestBreaker checks that three failures in a row open it, and it rests for a second. Then one request probes. Once a probe succeeds, all go.
func TestBreaker(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		var d diary
		l := limiter(t, s.client(t), d.keep)
		s.always(refusal("ERR broken"))
		for range 2 {
			wantError(t, "broken", attemptOne(t, l, "a").err, ErrOutage)
		}
		s.next(fate{})
		mustAllow(t, l, "a") // this makes it no row
		pass(time.Second)
		for range 3 {
			wantEqual(t, "reports so far", d.read(), nil)
			wantError(t, "broken", attemptOne(t, l, "a").err, ErrOutage)
		}
		wantEqual(t, "reports", d.read(), []string{"1s: outage began 0"})
		sent := len(s.receivedCalls())

		pass(time.Second - time.Nanosecond)
		wantRest(t, attemptOne(t, l, "a"))
		wantEqual(t, "sent", len(s.receivedCalls()), sent)
		pass(time.Nanosecond)
		testProbe(t, s, l, refusal("ERR broken"))
		pass(time.Second - time.Nanosecond)
		wantRest(t, attemptOne(t, l, "a"))
		pass(time.Nanosecond)
		wantEqual(t, "reports", d.read(), nil)
		s.always(fate{})
		testProbe(t, s, l, fate{})
		wantEqual(t, "reports", d.read(), []string{"3s: outage ended 0"})
		mustAllow(t, l, "b")
	})
}

// testProbe checks that of five callers one is sent, and meets its fate.
func testProbe(t *testing.T, s *server, l *Limiter, f fate) {
	t.Helper()
	sent := len(s.receivedCalls())
	s.next(f)
	s.hold()
	probe := arrive(t.Context(), l, Allow, "probe", 1)
	for range 4 {
		wantRest(t, attemptOne(t, l, "a"))
	}
	s.release()
	wantEqual(t, "succeeded", probe.wait().err == nil, f == fate{})
	wantEqual(t, "sent", len(s.receivedCalls()), sent+1)
}

// TestProbeThatLeaves checks that a probe whose caller leaves is no answer. The next one comes a second after it.
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
		wantRest(t, attemptOne(t, l, "b"))
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
	wantRest(t, attemptOne(t, l, event))
}

// TestTroublesThatOpenTheBreaker, each three times.
func TestTroublesThatOpenTheBreaker(t *testing.T) {
	for _, f := range []fate{{hang: true}, {silent: true}, {cut: true}, {lose: true}, {delay: time.Minute}, refusal("LOADING"), refusal("OOM"), {reply: "+what?"}} {
		onFakeTime(t, func(t *testing.T, s *server) {
			l := limiter(t, s.client(t))
			s.always(f)
			for range 3 {
				if err := attemptOne(t, l, "a").err; !isOutage(err) || strings.Contains(err.Error(), "left alone") {
					t.Errorf("%+v: %v", f, err)
				}
			}
			wantRest(t, attemptOne(t, l, "a"))
		})
	}
}

// TestNoFailures checks that what the caller ended, or the script refused, does not open the breaker.
func TestNoFailures(t *testing.T) {
	for _, test := range []struct {
		name string
		f    fate
		ctx  func(context.Context) (context.Context, context.CancelFunc)
	}{
		{"wrong type", refusal("WRONGTYPE key a"), context.WithCancel},
		{"foreign record", refusal("SLIDEGATE key a"), context.WithCancel},
		{"shorter deadline", fate{hang: true}, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 999*time.Millisecond)
		}},
		{"cancelled", fate{hang: true}, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond, cancel)
			return ctx, cancel
		}},
	} {
		onFakeTime(t, func(t *testing.T, s *server) {
			var d diary
			l := limiter(t, s.client(t), d.keep)
			s.always(test.f)
			for range 10 {
				ctx, cancel := test.ctx(t.Context())
				got := ask(ctx, l, Allow, "a", 1)
				if got.err == nil || isOutage(got.err) != test.f.hang {
					t.Errorf("%s: %v", test.name, got.err)
				}
				cancel()
			}
			s.always(fate{})
			s.cut()
			synctest.Wait()
			mustAllow(t, l, "a")
			wantEqual(t, test.name, d.read(), nil)
		})
	}
}

// TestConnectionBreaksOnce checks that however many requests were on a connection that breaks, it is one failure.
func TestConnectionBreaksOnce(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		for round := range 2 {
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

// TestLateFailures checks that requests that began before one that succeeded say nothing of what comes.
func TestLateFailures(t *testing.T) {
	b := &breaker{notify: func(context.Context, bool) { t.Error("opened") }}
	b.record(t.Context(), 1*time.Second, 2*time.Second, nil)
	for range 10 {
		b.record(t.Context(), 1*time.Second, 3*time.Second, errExpired)
	}
}
