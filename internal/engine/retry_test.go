package engine

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRetry checks that a request that certainly did not run is sent again after 5, 10, 20 and 40
// ms. Every other request is sent once.
func TestRetry(t *testing.T) {
	uncertain, certain := ErrUncertain, ErrOutage
	for _, test := range []struct {
		name    string
		actions []action
		took    time.Duration
		err     error
		ran     int
	}{
		{"answered", []action{{}}, 0, nil, 1},
		{"loading", []action{refusal("LOADING Redis is loading the dataset in memory")}, 5 * time.Millisecond, nil, 1},
		{"slots move", []action{refusal("TRYAGAIN later"), refusal("TRYAGAIN later")}, 15 * time.Millisecond, nil, 1},
		{"no master", []action{refusal("CLUSTERDOWN The cluster is down"), refusal("CLUSTERDOWN"), refusal("CLUSTERDOWN")}, 35 * time.Millisecond, nil, 1},
		{"no master yet", []action{refusal("MASTERDOWN Link with MASTER is down"), refusal("LOADING"), refusal("LOADING"), refusal("LOADING"), refusal("LOADING")}, 115 * time.Millisecond, nil, 1},
		{"no script, twice", []action{refusal("NOSCRIPT No matching script."), refusal("NOSCRIPT")}, 5 * time.Millisecond, nil, 1},
		{"an error of the server", []action{refusal("OOM command not allowed")}, 0, certain, 0},
		{"an error of the script", []action{refusal("ERR user_script:1: oops")}, 0, certain, 0},
		{"cut before", []action{{cut: true}}, 0, uncertain, 0},
		{"cut after", []action{{lose: true}}, 0, uncertain, 1},
		{"loading, then cut", []action{refusal("LOADING"), {cut: true}}, 5 * time.Millisecond, uncertain, 0},
		{"loading, then lost", []action{refusal("LOADING"), {lose: true}}, 5 * time.Millisecond, uncertain, 1},
		{"loading, then silent", []action{refusal("LOADING"), {silent: true}}, time.Second, uncertain, 1},
	} {
		for _, pipelining := range []bool{true, false} {
			t.Run(fmt.Sprint(test.name, " ", pipelining), func(t *testing.T) {
				onFakeTime(t, func(t *testing.T, s *server) {
					l := limiter(t, s.client(t, alwaysPipelining(pipelining)))
					s.next(test.actions...)
					got := attemptOne(t, l, "event")
					wantEqual(t, "took", got.took, test.took)
					wantError(t, "error", got.err, test.err)
					pass(time.Minute)
					wantEqual(t, "executed", s.executed(), test.ran)
				})
			})
		}
	}
}

// TestRetryEnds checks that a caller gets the reason when there is no time for another retry, and
// after a second at the latest.
func TestRetryEnds(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		-1:                     995 * time.Millisecond, // 5 + 10 + 20 + 24 * 40
		time.Minute:            995 * time.Millisecond,
		200 * time.Millisecond: 155 * time.Millisecond, // 5 + 10 + 20 + 3 * 40
		100 * time.Millisecond: 75 * time.Millisecond,
		10 * time.Millisecond:  5 * time.Millisecond,
		5 * time.Millisecond:   0,
	} {
		onFakeTime(t, func(t *testing.T, s *server) {
			l := limiter(t, s.client(t), func(c *Config) { c.Timeout = timeout })
			s.always(refusal("LOADING Redis is loading the dataset in memory"))
			got := attemptOne(t, l, "event")
			wantEqual(t, fmt.Sprint(timeout), got.took, want)
			wantError(t, fmt.Sprint(timeout), got.err, ErrOutage)
			if !strings.Contains(got.err.Error(), "LOADING") {
				t.Error(got.err)
			}
		})
	}
}

// TestEachRequestIsRetriedByItself checks that only those requests of a batch are retried that did
// not run.
func TestEachRequestIsRetriedByItself(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		occupySenders(t, s, l)
		refusals := map[string][]string{
			l.Key("once"):   {"TRYAGAIN later"},
			l.Key("twice"):  {"LOADING", "LOADING"},
			l.Key("broken"): {"ERR broken"},
		}
		s.chooseActions(func(c command) action {
			if r := refusals[c.key]; len(r) > 0 {
				refusals[c.key] = r[1:]
				return refusal(r[0])
			}
			return action{}
		})
		wants := []struct {
			event string
			sent  int
			took  time.Duration
			err   error
		}{
			{"never", 1, 0, nil},
			{"once", 2, 5 * time.Millisecond, nil},
			{"broken", 1, 0, ErrOutage},
			{"twice", 3, 15 * time.Millisecond, nil},
			{"never either", 1, 0, nil},
		}
		var callers []*caller
		for _, want := range wants {
			callers = append(callers, arrive(t.Context(), l, Allow, want.event, 1))
		}
		fillBatch(t, l)
		s.release()
		for i, want := range wants {
			c := callers[i].wait()
			wantError(t, want.event, c.err, want.err)
			wantEqual(t, want.event+": took", c.took, want.took)
			wantEqual(t, want.event+": sent", len(onEvent(l, s.receivedCalls(), want.event)), want.sent)
		}
	})
}

// TestNothingIsSentTwice breaks connections under many requests, at every place of the pipeline.
func TestNothingIsSentTwice(t *testing.T) {
	for place := range 12 {
		onFakeTime(t, func(t *testing.T, s *server) {
			l := limiter(t, s.client(t))
			commands := 0
			s.chooseActions(func(command) action {
				commands++
				return action{cut: commands == place, lose: commands == place+12, delay: time.Millisecond}
			})
			var callers []*caller
			for i := range 40 {
				callers = append(callers, start(t.Context(), l, Allow, fmt.Sprint(i), 1))
			}
			for i, c := range callers {
				c.wait()
				pass(time.Second)
				ran := s.counter(l.Key(fmt.Sprint(i))).attempts
				switch {
				case ran > 1, c.err == nil && ran != 1:
					t.Errorf("%d executed, %v", ran, c.err)
				case c.err != nil && ran == 1:
					wantError(t, "executed", c.err, ErrUncertain)
				}
				if sent := len(onEvent(l, s.receivedCalls(), fmt.Sprint(i))); sent > 1 {
					t.Errorf("sent %d times", sent)
				}
			}
		})
	}
}

// TestDeadServer checks that if the server is dead from the start, all callers learn in time that
// nothing was counted.
func TestDeadServer(t *testing.T) {
	for _, slowness := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		onFakeTime(t, func(t *testing.T, s *server) {
			l := limiter(t, s.client(t), func(c *Config) { c.Timeout = 200 * time.Millisecond })
			s.die()
			s.slowDials(slowness)
			synctest.Wait()
			var callers []*caller
			for i := range 200 {
				callers = append(callers, start(t.Context(), l, Allow, fmt.Sprint(i%100), 1))
			}
			each := startEach(t.Context(), l, []string{"x", "y", "x"})
			for _, c := range callers {
				wantError(t, "a caller", c.wait().err, ErrOutage)
				if c.took > l.Timeout {
					t.Errorf("%v", c.took)
				}
			}
			for _, a := range each.wait().answers {
				wantError(t, "one of several", a.Err, ErrOutage)
			}
			wantEqual(t, "executed", s.executed(), 0)
		})
	}
}

// TestDeathInFlight checks that requests that were sent are uncertain, and that all others are
// certain.
func TestDeathInFlight(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		sent := occupySenders(t, s, l)
		queued := fillBatch(t, l)
		s.die()
		for _, c := range sent {
			wantError(t, "sent", c.wait().err, ErrUncertain)
		}
		for _, c := range queued {
			wantError(t, "queued", c.wait().err, ErrOutage)
		}
	})
}

// TestConnectionsThatBreakWhileABatchIsWritten checks that the commands of a batch stay as they
// are, because rueidis may still write a batch after reading its replies has failed.
func TestConnectionsThatBreakWhileABatchIsWritten(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		long := strings.Repeat("x", 100)
		for range 8 {
			callers := occupySenders(t, s, l)
			first := arrive(t.Context(), l, Allow, "first", 1)
			for i := range 200 { // more than a buffer holds
				callers = append(callers, start(t.Context(), l, Allow, fmt.Sprint(long, i), 1))
			}
			s.chooseActions(func(c command) action { return action{cut: c.key == l.Key("first")} })
			synctest.Wait()
			s.release()
			wantError(t, "first", first.wait().err, ErrUncertain)
			for _, c := range callers {
				c.wait()
			}
			s.chooseActions(nil)
			pass(2 * time.Second)
			mustAllow(t, l, fmt.Sprint(long, time.Now().Unix()))
		}
	})
}
