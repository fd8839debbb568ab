package send

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/servertest"
)

// TestBreaker checks that three consecutive failures open the breaker for a second, that one
// request then probes Redis, and that all requests are sent once a probe has succeeded.
func TestBreaker(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		s.Always(servertest.Refusal("ERR broken"))
		for range 2 {
			wantError(t, "broken", askOne(t, l, "a").err, health.ErrOutage)
		}
		s.Next(servertest.Action{})
		mustCount(t, l, "a") // so that the failures are not consecutive
		servertest.Pass(time.Second)
		for range 3 {
			wantEqual(t, "reports so far", l.log.read(), nil)
			wantError(t, "broken", askOne(t, l, "a").err, health.ErrOutage)
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
		servertest.Pass(time.Second)
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
			breakShard(t, s, l, "a")
			servertest.Pass(time.Second)
			s.Next(servertest.Action{Delay: test.late})
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Millisecond)
			defer cancel()
			probe := ask(ctx, l, "a")
			wantError(t, "probe", probe.err, health.ErrUncertain)
			servertest.Pass(999*time.Millisecond - probe.took)
			wantOpen(t, askOne(t, l, "b"))
			servertest.Pass(time.Millisecond)
			synctest.Wait()
			wantEqual(t, "open", l.first().IsOpen(), !test.closes)
			servertest.Pass(probe.took)
			mustCount(t, l, "b")
		})
	}
}

// breakShard opens the circuit breaker of the event's shard.
func breakShard(t *testing.T, s *servertest.Server, l *line, event string) {
	t.Helper()
	s.Next(servertest.Refusal("ERR broken"), servertest.Refusal("ERR broken"), servertest.Refusal("ERR broken"))
	for range 3 {
		wantError(t, "broken", askOne(t, l, event).err, health.ErrOutage)
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
				servertest.Pass(100 * time.Millisecond)
				if err := askOne(t, l, "a").err; !health.IsOutage(err) || strings.Contains(err.Error(), "circuit breaker") {
					t.Errorf("%+v: %v", f, err)
				}
			}
			wantOpen(t, askOne(t, l, "a"))
		})
	}
}

// TestBreakerPerMaster checks that an outage of one master does not affect the others.
func TestBreakerPerMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := servertest.NewCluster(2)
		l := newLine(t, servertest.ClusterClient(t, nodes))
		mustCount(t, l, "before") // so that the masters are known
		synctest.Wait()
		event := "event 0"
		bad := l.MasterOf(l.Key(event))
		for _, s := range nodes {
			s.Choose(func(c servertest.Command) servertest.Action {
				if c.Key == l.Key(event) {
					return servertest.Refusal("ERR broken")
				}
				return servertest.Action{}
			})
		}
		for range 3 {
			wantError(t, event, askOne(t, l, event).err, health.ErrOutage)
		}
		wantEqual(t, "reports", l.log.read(), []string{"0s: outage began"})
		for _, other := range numbered(200) {
			if l.MasterOf(l.Key(other)) == bad {
				wantOpen(t, askOne(t, l, other))
			} else {
				mustCount(t, l, other)
			}
		}
	})
}
