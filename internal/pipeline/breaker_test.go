package pipeline

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/servertest"
)

// TestOutagesAreReportedInOrder checks that the last report of a breaker says whether it is open,
// even if many requests end at the same time.
func TestOutagesAreReportedInOrder(t *testing.T) {
	opened := 0
	for round := range 3000 {
		b := &breaker{outage: &outage{report: func(context.Context, string, *Failure) {}}}
		var callers sync.WaitGroup
		for c := range 4 {
			callers.Go(func() {
				for n := range 10 {
					ends := []error{&UnsentError{Cause: rueidis.ErrNoSlot}, nil}[min(1, (n+c+round)%5/4)]
					b.record(context.Background(), 1<<62, 1<<62, ends)
				}
			})
		}
		callers.Wait()
		if b.isOpen() {
			opened++
		}
		wantEqual(t, "reported", len(b.outage.failed) > 0, b.isOpen())
		b.record(context.Background(), 1<<62, 1<<62, nil)
	}
	if opened < 100 || opened > 2900 {
		t.Errorf("weak test: open after %d of 3000 rounds", opened)
	}
}

// TestBreaker checks that three consecutive failures open the breaker for a second, that one
// request then probes Redis, and that all requests are sent once a probe has succeeded.
func TestBreaker(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		s.Always(servertest.Refusal("ERR broken"))
		for range 2 {
			wantError(t, "broken", askOne(t, l, "a").err, ErrOutage)
		}
		s.Next(servertest.Action{})
		mustCount(t, l, "a") // so that the failures are not consecutive
		servertest.Pass(time.Second)
		for range 3 {
			wantEqual(t, "reports so far", l.log.read(), nil)
			wantError(t, "broken", askOne(t, l, "a").err, ErrOutage)
		}
		wantEqual(t, "reports", l.log.read(), []string{"1s: outage began"})
		sent := len(s.Received())

		servertest.Pass(time.Second - time.Nanosecond)
		wantOpen(t, askOne(t, l, "a"))
		wantEqual(t, "sent", len(s.Received()), sent)
		servertest.Pass(time.Nanosecond)
		testProbe(t, s, l, servertest.Refusal("ERR broken"))
		servertest.Pass(time.Second - time.Nanosecond)
		wantOpen(t, askOne(t, l, "a"))
		servertest.Pass(time.Nanosecond)
		wantEqual(t, "reports", l.log.read(), nil)
		s.Always(servertest.Action{})
		testProbe(t, s, l, servertest.Action{})
		wantEqual(t, "reports", l.log.read(), nil)
		mustCount(t, l, "b")
		servertest.Pass(calmTime)
		synctest.Wait()
		wantEqual(t, "reports", l.log.read(), []string{"4s: outage ended"})
	})
}

// testProbe checks that exactly one of five requests is sent, to which the server applies the
// action f.
func testProbe(t *testing.T, s *servertest.Server, l *line, f servertest.Action) {
	t.Helper()
	sent := len(s.Received())
	s.Next(f)
	s.Hold()
	probe := arrive(t.Context(), l, "probe")
	for range 4 {
		wantOpen(t, askOne(t, l, "a"))
	}
	s.Release()
	wantEqual(t, "succeeded", probe.wait().err == nil, f == servertest.Action{})
	wantEqual(t, "sent", len(s.Received()), sent+1)
}

// TestProbeThatLeaves checks that a probe whose caller has left before its deadline closes the breaker
// if the reply arrives within the timeout. Otherwise, the next probe is sent a second later.
func TestProbeThatLeaves(t *testing.T) {
	for _, test := range []struct {
		late   time.Duration
		closes bool
	}{{time.Second, true}, {time.Second + time.Millisecond, false}} {
		servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
			l := newLine(t, s.Client(t))
			breakRange(t, s, l, "a")
			servertest.Pass(time.Second)
			s.Next(servertest.Action{Delay: test.late})
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Millisecond)
			defer cancel()
			probe := ask(ctx, l, "a")
			wantError(t, "probe", probe.err, ErrUncertain)
			servertest.Pass(999*time.Millisecond - probe.took)
			wantOpen(t, askOne(t, l, "b"))
			servertest.Pass(time.Millisecond)
			synctest.Wait()
			wantEqual(t, "open", l.slots(0).isOpen(), !test.closes)
			servertest.Pass(probe.took)
			mustCount(t, l, "b")
		})
	}
}

// breakRange opens the circuit breaker of the event's slot range.
func breakRange(t *testing.T, s *servertest.Server, l *line, event string) {
	t.Helper()
	s.Next(servertest.Refusal("ERR broken"), servertest.Refusal("ERR broken"), servertest.Refusal("ERR broken"))
	for range 3 {
		wantError(t, "broken", askOne(t, l, event).err, ErrOutage)
	}
	wantOpen(t, askOne(t, l, event))
}

// TestFaultsThatOpenTheBreaker checks that each of several faults opens the breaker after three
// requests. The requests are sent some time apart, because connections that break together count as
// one failure.
func TestFaultsThatOpenTheBreaker(t *testing.T) {
	for _, f := range []servertest.Action{{Hang: true}, {Silent: true}, {Cut: true}, {Lose: true}, {Delay: time.Minute}, servertest.Refusal("LOADING"), servertest.Refusal("OOM"), {Reply: "+what?"}} {
		servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
			l := newLine(t, s.Client(t))
			s.Always(f)
			for range 3 {
				servertest.Pass(sameCut)
				if err := askOne(t, l, "a").err; !IsOutage(err) || strings.Contains(err.Error(), "circuit breaker") {
					t.Errorf("%+v: %v", f, err)
				}
			}
			wantOpen(t, askOne(t, l, "a"))
		})
	}
}

// TestConnectionsBreakAtOnce checks that connections that break within sameCut count as one
// failure, and that a connection that breaks later counts as another.
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

// TestNoFailures checks that failures of requests that started before a success are ignored, and
// so are requests whose callers left.
func TestNoFailures(t *testing.T) {
	b := &breaker{outage: &outage{report: func(context.Context, string, *Failure) { t.Error("opened") }}}
	b.record(t.Context(), 1*time.Second, 2*time.Second, nil)
	left, leave := context.WithCancel(t.Context())
	leave()
	for i := range 10 {
		b.record(t.Context(), 1*time.Second, 3*time.Second, &expired{})
		b.record(left, time.Duration(i+3)*time.Second, time.Duration(i+4)*time.Second, context.Canceled)
	}
}

// TestBreakerPerSlotRange checks that an outage of one sixty-fourth of the hash slots does not
// affect the others.
func TestBreakerPerSlotRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := servertest.NewCluster(2)
		l := newLine(t, servertest.ClusterClient(t, nodes))
		event := "event 0"
		bad := l.Range(l.Key(event))
		for _, s := range nodes {
			s.Choose(func(c servertest.Command) servertest.Action {
				if c.Key == l.Key(event) {
					return servertest.Refusal("ERR broken")
				}
				return servertest.Action{}
			})
		}
		for range 3 {
			wantError(t, event, askOne(t, l, event).err, ErrOutage)
		}
		wantEqual(t, "reports", l.log.read(), []string{"0s: outage began"})
		for _, other := range numbered(200) {
			if l.Range(l.Key(other)) == bad {
				wantOpen(t, askOne(t, l, other))
			} else {
				mustCount(t, l, other)
			}
		}
	})
}
