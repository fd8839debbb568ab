package pipeline

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/pipeline/servertest"
)

// early returns the patience of a caller that checks for silence before its deadline.
func early(left, deadline, least time.Duration) patience {
	return patience{left: left, timed: true, early: true, deadline: deadline, least: least}
}

// TestPatience checks the patience for various timeouts, deadlines and silences.
func TestPatience(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name                             string
		deadline, timeout, least, silent time.Duration // 0 means no deadline
		want                             patience
	}{
		{"the timeout", 0, 250 * ms, 5 * ms, 0, patience{left: 250 * ms, timed: true}},
		{"the timeout comes first", 270 * ms, 250 * ms, 5 * ms, 0, patience{left: 250 * ms, timed: true}},
		{"a deadline shortly after the timeout", 260 * ms, 250 * ms, 5 * ms, 0, early(240*ms, 260*ms, 5*ms)},
		{"a tenth before the deadline", 100 * ms, 250 * ms, 5 * ms, 0, early(90*ms, 100*ms, 5*ms)},
		{"at most 20 ms before", 900 * ms, time.Second, 5 * ms, 0, early(880*ms, 900*ms, 5*ms)},
		{"at least 1 ms before", 7 * ms, 250 * ms, 5 * ms, 0, early(6*ms, 7*ms, 5*ms)},
		{"too short", 5 * ms, 250 * ms, 5 * ms, time.Hour, patience{left: 5 * ms}},
		{"shorter than a silence", 100 * ms, 250 * ms, 91 * ms, 0, patience{left: 100 * ms}},
		{"as long as a silence", 100 * ms, 250 * ms, 90 * ms, 0, early(90*ms, 100*ms, 90*ms)},
		{"as long as the rest of a silence", 100 * ms, 250 * ms, 120 * ms, 30 * ms, early(90*ms, 100*ms, 120*ms)},
		{"shorter than the rest of a silence", 100 * ms, 250 * ms, 120 * ms, 29 * ms, patience{left: 100 * ms}},
		{"the timeout, as a silence is longer", 255 * ms, 250 * ms, 240 * ms, 0, patience{left: 250 * ms, timed: true}},
		{"no timeout", 100 * ms, -1, 5 * ms, 0, early(90*ms, 100*ms, 5*ms)},
		{"neither", 0, -1, 5 * ms, 0, patience{left: math.MaxInt64 / 2}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			if test.deadline > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), test.deadline)
			}
			defer cancel()
			if got := newPatience(ctx, test.timeout, test.least, test.silent); got != test.want {
				t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
			}
		})
	}
}

// TestShortDeadlinesFailTogether checks that simultaneous callers with little time count as one
// failure, so that a short stall does not open the breaker, but a Redis that hangs does.
func TestShortDeadlinesFailTogether(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		learn(t, l)
		s.Hold()
		for _, want := range []struct {
			after  time.Duration
			opened []string
		}{{100 * time.Millisecond, nil}, {200 * time.Millisecond, nil}, {300 * time.Millisecond, []string{"284ms: outage began 0"}}} {
			for time.Since(l.conn.made) < want.after {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				var callers []*caller
				for range 10 {
					callers = append(callers, start(ctx, l, "a"))
				}
				for _, c := range callers {
					if err := c.wait().err; !IsOutage(err) {
						t.Error(err)
					}
				}
				servertest.Pass(time.Millisecond)
				cancel()
			}
			wantEqual(t, "reports", l.log.read(), want.opened)
		}
		s.Release()
	})
}
