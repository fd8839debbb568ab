package pipeline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/pipeline/servertest"
)

// TestPatience checks how long callers wait.
func TestPatience(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name                     string
		deadline, timeout, usual time.Duration // a deadline of 0 is none
		want                     patience
	}{
		{"the timeout", 0, 250 * ms, ms, patience{250 * ms, true, false}},
		{"the timeout comes first", 251 * ms, 250 * ms, ms, patience{250 * ms, true, false}},
		{"a tenth before the deadline", 100 * ms, 250 * ms, ms, patience{90 * ms, true, true}},
		{"at most 20 ms before", 900 * ms, time.Second, ms, patience{880 * ms, true, true}},
		{"at least 1 ms before", 7 * ms, 250 * ms, ms, patience{6 * ms, true, true}},
		{"too short", 5 * ms, 250 * ms, 0, patience{5 * ms, false, false}},
		{"shorter than four replies", 100 * ms, 250 * ms, 23 * ms, patience{100 * ms, false, false}},
		{"four replies", 100 * ms, 250 * ms, 22 * ms, patience{90 * ms, true, true}},
		{"no timeout", 100 * ms, -1, ms, patience{90 * ms, true, true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			if test.deadline > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), test.deadline)
			}
			defer cancel()
			if got := newPatience(ctx, test.timeout, test.usual); got != test.want {
				t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
			}
		})
	}
}

// TestShortDeadlinesFailTogether checks that callers with little time who wait at once are one
// failure, so that a short stall does not open the breaker. A Redis that hangs does.
func TestShortDeadlinesFailTogether(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		mustCount(t, l, "before")
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

// TestUsual checks the moving average of how long calls take, of which one in 100 ms is a sample,
// but not the first.
func TestUsual(t *testing.T) {
	b := &breaker{}
	for _, test := range []struct{ at, took, want time.Duration }{
		{time.Second / 2, time.Minute, 0},
		{time.Second, 8 * time.Millisecond, 8 * time.Millisecond},
		{time.Second + successResolution, time.Hour, 8 * time.Millisecond},
		{2 * time.Second, 16 * time.Millisecond, 9 * time.Millisecond},
		{3 * time.Second, time.Millisecond, 8 * time.Millisecond},
	} {
		b.record(t.Context(), test.at-test.took, test.at, nil)
		wantEqual(t, "usual", b.usually(), test.want)
	}
}
