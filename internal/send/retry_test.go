package send

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/servertest"
)

// TestRetry checks that a request that certainly did not run is sent again after backoffs of 5, 10,
// 20 and 40 ms, and that any other request is sent only once.
func TestRetry(t *testing.T) {
	uncertain, certain := health.ErrUncertain, health.ErrOutage
	for _, test := range []struct {
		name    string
		actions []servertest.Action
		took    time.Duration
		err     error
		ran     int
	}{
		{"answered", []servertest.Action{{}}, 0, nil, 1},
		{"loading", []servertest.Action{servertest.Refusal("LOADING Redis is loading the dataset in memory")}, 5 * time.Millisecond, nil, 1},
		{"slots move", []servertest.Action{servertest.Refusal("TRYAGAIN later"), servertest.Refusal("TRYAGAIN later")}, 15 * time.Millisecond, nil, 1},
		{"no master", []servertest.Action{servertest.Refusal("CLUSTERDOWN The cluster is down"), servertest.Refusal("CLUSTERDOWN"), servertest.Refusal("CLUSTERDOWN")}, 35 * time.Millisecond, nil, 1},
		{"no master yet", []servertest.Action{servertest.Refusal("MASTERDOWN Link with MASTER is down"), servertest.Refusal("LOADING"), servertest.Refusal("LOADING"), servertest.Refusal("LOADING"), servertest.Refusal("LOADING")}, 115 * time.Millisecond, nil, 1},
		{"no script, twice", []servertest.Action{servertest.Refusal("NOSCRIPT No matching script."), servertest.Refusal("NOSCRIPT")}, 5 * time.Millisecond, nil, 1},
		{"an error of the server", []servertest.Action{servertest.Refusal("OOM command not allowed")}, 0, certain, 0},
		{"an error of the script", []servertest.Action{servertest.Refusal("ERR user_script:1: oops")}, 0, certain, 0},
		{"cut before", []servertest.Action{{Cut: true}}, 0, uncertain, 0},
		{"cut after", []servertest.Action{{Lose: true}}, 0, uncertain, 1},
		{"loading, then cut", []servertest.Action{servertest.Refusal("LOADING"), {Cut: true}}, 5 * time.Millisecond, uncertain, 0},
		{"loading, then lost", []servertest.Action{servertest.Refusal("LOADING"), {Lose: true}}, 5 * time.Millisecond, uncertain, 1},
		{"loading, then silent", []servertest.Action{servertest.Refusal("LOADING"), {Silent: true}}, time.Second, uncertain, 1},
	} {
		for _, pipelining := range []bool{true, false} {
			t.Run(fmt.Sprint(test.name, " ", pipelining), func(t *testing.T) {
				servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
					l := newLine(t, s.Client(t, servertest.AlwaysPipelining(pipelining)))
					s.Next(test.actions...)
					got := askOne(t, l, "event")
					wantEqual(t, "took", got.took, test.took)
					wantError(t, "error", got.err, test.err)
					servertest.Pass(time.Minute)
					wantEqual(t, "executed", s.Executed(), test.ran)
				})
			})
		}
	}
}

// TestRetryEnds checks that a caller gets the reason when there is no time for another retry, and
// after at most a second.
func TestRetryEnds(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		-1:                     995 * time.Millisecond, // 5 + 10 + 20 + 24 * 40
		time.Minute:            995 * time.Millisecond,
		200 * time.Millisecond: 155 * time.Millisecond, // 5 + 10 + 20 + 3 * 40
		100 * time.Millisecond: 75 * time.Millisecond,
		10 * time.Millisecond:  5 * time.Millisecond,
		5 * time.Millisecond:   0,
	} {
		servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
			l := newLine(t, s.Client(t), func(l *line) { l.Timeout = timeout })
			s.Always(servertest.Refusal("LOADING Redis is loading the dataset in memory"))
			got := askOne(t, l, "event")
			wantEqual(t, fmt.Sprint(timeout), got.took, want)
			wantError(t, fmt.Sprint(timeout), got.err, health.ErrOutage)
			if !strings.Contains(got.err.Error(), "LOADING") {
				t.Error(got.err)
			}
		})
	}
}

// TestProbeIsNotRetried checks that if a server refuses connections immediately, a probe fails
// immediately too. Otherwise, once a second, a caller would wait for the whole timeout.
func TestProbeIsNotRetried(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		s.Always(servertest.Refusal("LOADING Redis is loading the dataset in memory"))
		for range 3 {
			wantError(t, "before", askOne(t, l, "event").err, health.ErrOutage)
		}
		for range 3 {
			<-time.After(health.RecoveryDelay)
			sent := len(s.Received())
			got := askOne(t, l, "event")
			wantEqual(t, "took", got.took, 0)
			wantEqual(t, "probes", len(s.Received())-sent, 1)
			wantError(t, "probe", got.err, health.ErrOutage)
		}
		s.Always(servertest.Action{})
		<-time.After(health.RecoveryDelay)
		mustCount(t, l, "event")
	})
}

// TestEachRequestIsRetriedByItself checks that only those requests in a batch that did not run are
// retried.
func TestEachRequestIsRetriedByItself(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		occupySenders(t, s, l)
		refusals := map[string][]string{
			l.Key("once"):   {"TRYAGAIN later"},
			l.Key("twice"):  {"LOADING", "LOADING"},
			l.Key("broken"): {"ERR broken"},
		}
		s.Choose(func(c servertest.Command) servertest.Action {
			if r := refusals[c.Key]; len(r) > 0 {
				refusals[c.Key] = r[1:]
				return servertest.Refusal(r[0])
			}
			return servertest.Action{}
		})
		wants := []struct {
			event string
			sent  int
			took  time.Duration
			err   error
		}{
			{"never", 1, 0, nil},
			{"once", 2, 5 * time.Millisecond, nil},
			{"broken", 1, 0, health.ErrOutage},
			{"twice", 3, 15 * time.Millisecond, nil},
			{"never either", 1, 0, nil},
		}
		var callers []*attempt
		for _, want := range wants {
			callers = append(callers, arrive(t.Context(), l, want.event))
		}
		fillBatch(t, l)
		s.Release()
		for i, want := range wants {
			c := callers[i].wait()
			wantError(t, want.event, c.err, want.err)
			wantEqual(t, want.event+": took", c.took, want.took)
			wantEqual(t, want.event+": sent", len(onEvent(l, s.Received(), want.event)), want.sent)
		}
	})
}

// TestNothingIsSentTwice checks that no request is executed twice if connections break under many
// requests, at every point of the pipeline.
func TestNothingIsSentTwice(t *testing.T) {
	for place := range 12 {
		servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
			l := newLine(t, s.Client(t))
			commands := 0
			s.Choose(func(servertest.Command) servertest.Action {
				commands++
				return servertest.Action{Cut: commands == place, Lose: commands == place+12, Delay: time.Millisecond}
			})
			var callers []*attempt
			for i := range 40 {
				callers = append(callers, start(t.Context(), l, fmt.Sprint(i)))
			}
			for i, c := range callers {
				c.wait()
				servertest.Pass(time.Second)
				ran := s.Counter(l.Key(fmt.Sprint(i))).Attempts
				switch {
				case ran > 1, c.err == nil && ran != 1:
					t.Errorf("%d executed, %v", ran, c.err)
				case c.err != nil && ran == 1:
					wantError(t, "executed", c.err, health.ErrUncertain)
				}
				if sent := len(onEvent(l, s.Received(), fmt.Sprint(i))); sent > 1 {
					t.Errorf("sent %d times", sent)
				}
			}
		})
	}
}

// TestDeathInFlight checks that if the server dies, the outcome is uncertain for requests that were
// sent, and certain for all others.
func TestDeathInFlight(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		sent := occupySenders(t, s, l)
		queued := fillBatch(t, l)
		s.Die()
		for _, c := range sent {
			wantError(t, "sent", c.wait().err, health.ErrUncertain)
		}
		for _, c := range queued {
			wantError(t, "queued", c.wait().err, health.ErrOutage)
		}
	})
}

// TestConnectionsThatBreakWhileABatchIsWritten checks that a batch's commands are not modified if
// reading the replies has failed, because rueidis may still be writing the batch.
func TestConnectionsThatBreakWhileABatchIsWritten(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		long := strings.Repeat("x", 100)
		for range 8 {
			callers := occupySenders(t, s, l)
			first := arrive(t.Context(), l, "first")
			for i := range 200 { // more than fits into a buffer
				callers = append(callers, start(t.Context(), l, fmt.Sprint(long, i)))
			}
			s.Choose(func(c servertest.Command) servertest.Action { return servertest.Action{Cut: c.Key == l.Key("first")} })
			synctest.Wait()
			s.Release()
			wantError(t, "first", first.wait().err, health.ErrUncertain)
			for _, c := range callers {
				c.wait()
			}
			s.Choose(nil)
			servertest.Pass(2 * time.Second)
			mustCount(t, l, fmt.Sprint(long, time.Now().Unix()))
		}
	})
}
