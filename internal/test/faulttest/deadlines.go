package faulttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// hangTime is how long Redis hangs in DeadlinesOfCallers: longer if the machine is so busy that the
// outage begins late.
const hangTime = 1500 * time.Millisecond

// DeadlinesOfCallers checks what 64 callers with various deadlines get while Redis hangs. They call
// until a second after the outage began. From its beginning, the Fallback, if any, must decide at
// least half of the calls. Without a Fallback, no call is decided. With -v, it prints a table row for
// each case.
func DeadlinesOfCallers(t *testing.T, open Open) {
	t.Parallel()
	deadlines := []time.Duration{20 * time.Millisecond, 0, 50 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond}
	for _, deadline := range redistest.UnlessShort(deadlines, deadlines[:2]) {
		t.Run(deadline.String(), func(t *testing.T) { // two at a time, because more would overload the machine
			for name, withFallback := range map[string]bool{"alone": false, "with a Fallback": true} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					(&hung{deadline: deadline, withFallback: withFallback}).test(t, open)
				})
			}
		})
	}
}

// hung is a test of callers of a Redis server that hangs.
type hung struct {
	deadline     time.Duration // 0 means none
	withFallback bool
	limiter      *window.Limiter

	mu           sync.Mutex
	decided      int
	since        int // calls that were made once the outage had begun
	decidedSince int
	took         []time.Duration
	began        time.Time
	opened       atomic.Int64 // time from the hang to the start of the outage, or 0
}

func (h *hung) test(t *testing.T, open Open) {
	server := redistest.Start(t)
	cfg := window.Config{Name: "deadlines", Limits: parsed("1000000/1h"), Observe: h.observe}
	if h.withFallback {
		cfg.Fallback = must(window.NewLocal(window.Config{Name: "local", Limits: cfg.Limits}))
	}
	h.limiter = must(window.New(open(t, server.Options(nil)), cfg))
	AwaitAnswer(t, h.limiter, "e")
	server.Pause(t)
	defer server.Resume(t)
	h.began = time.Now()
	timers := redistest.Timers(64, limiter.DefaultTimeout)
	redistest.AtOnce(64, func(c int) {
		for h.goesOn() {
			h.call(t, fmt.Sprint("event ", c))
		}
	})
	h.check(t, timers.Limit())
}

// goesOn reports whether callers make further calls.
func (h *hung) goesOn() bool {
	lasted, opened := time.Since(h.began), time.Duration(h.opened.Load())
	return lasted < hangTime || opened == 0 && lasted < time.Minute || opened > 0 && lasted < opened+time.Second
}

func (h *hung) observe(_ context.Context, o window.Observation) {
	if o.Kind == window.KindOutageBegan {
		h.opened.Store(int64(time.Since(h.began)))
	}
}

func (h *hung) call(t *testing.T, event string) {
	ctx, cancel := t.Context(), context.CancelFunc(func() {})
	if h.deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, h.deadline)
	}
	defer cancel()
	began, isOpen := time.Now(), h.opened.Load() > 0
	_, err := h.limiter.Allow(ctx, event)
	took := time.Since(began)
	if err != nil && !errors.Is(err, window.ErrOutage) && !errors.Is(err, window.ErrUncertain) && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	h.mu.Lock()
	h.took = append(h.took, took)
	if err == nil {
		h.decided++
	}
	if isOpen {
		h.since++
	}
	if isOpen && err == nil {
		h.decidedSince++
	}
	h.mu.Unlock()
	<-time.After(5 * time.Millisecond)
}

// check checks what the callers got. On a busy machine, many callers miss short deadlines. No call
// may take longer than limit.
func (h *hung) check(t *testing.T, limit time.Duration) {
	t.Helper()
	var sum time.Duration
	for _, took := range h.took {
		sum += took
	}
	opened := time.Duration(h.opened.Load())
	switch {
	case opened == 0:
		t.Error("no outage began")
	case h.withFallback && h.decidedSince < h.since/2:
		t.Errorf("in the outage, the Fallback decided %d of %d calls", h.decidedSince, h.since)
	case !h.withFallback && h.decided > 0:
		t.Errorf("%d calls were decided", h.decided)
	}
	longest, share := quantile(h.took, 1), 100*float64(h.decided)/float64(len(h.took))
	if longest > limit {
		t.Errorf("a call took %v, longer than %v", longest, limit)
	}
	t.Logf("| %v | %v | %.1f %% | %v | %v | %v |", h.deadline, h.withFallback, share, (sum / time.Duration(len(h.took))).Round(10*time.Microsecond), longest, opened.Round(time.Millisecond))
}

// HastyCallers checks that many callers with short deadlines neither open the circuit breaker of a
// healthy Redis, nor get decisions from the Fallback, even if they are the first callers. If the
// machine is so busy that Redis does not answer another client either, Redis is not healthy, and the
// callers try again.
func HastyCallers(t *testing.T, open Open) {
	crowds := []struct {
		callers  int
		deadline time.Duration
	}{{1000, time.Millisecond}, {10_000, 15 * time.Millisecond}, {10_000, time.Millisecond}, {1000, 8 * time.Millisecond}, {10_000, 30 * time.Millisecond}}
	for _, crowd := range redistest.UnlessShort(crowds, crowds[:2]) {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d callers, %v, first %v", crowd.callers, crowd.deadline, first), func(t *testing.T) { // one at a time, because more would overload the machine
				client := redistest.Client(t)
				for late := time.Now().Add(time.Minute); ; {
					pings := redistest.StartControl(1, func() { client.Do(t.Context(), client.B().Ping().Build()) })
					wrong := haste(t, open, crowd.callers, crowd.deadline, first)
					if longest := pings.Longest(); wrong == nil {
						return
					} else if longest < healthyPing || time.Now().After(late) {
						t.Fatalf("%v, though another client got its answers within %v", wrong, longest)
					}
				}
			})
		}
	}
}

// healthyPing is half of the time after which a limiter with many calls in flight considers Redis
// silent.
const healthyPing = 250 * time.Millisecond

// haste runs the given number of callers at once, and returns an error if the results are wrong.
func haste(t *testing.T, open Open, callers int, deadline time.Duration, first bool) error {
	t.Helper()
	const maxUnits = 500
	var seen Outages
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("500/1h")}))
	conn := open(t, redistest.Options(t, nil))
	if err := conn.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := must(window.New(conn, window.Config{Name: redistest.Key(t), Limits: parsed("500/1h"), Timeout: time.Minute, Fallback: local, Observe: seen.Observe}))
	if !first {
		AwaitAnswer(t, l, "warm")
	}
	var allowed, decided, degraded atomic.Int64
	redistest.AtOnce(callers, func(int) {
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		d, err := l.Allow(ctx, "e")
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err == nil {
			decided.Add(1)
		}
		if d.Degraded {
			degraded.Add(1)
		}
		if d.Allowed {
			allowed.Add(1)
		}
	})
	t.Logf("%d of %d were decided", decided.Load(), callers)
	if allowed.Load() > maxUnits || degraded.Load() > 0 || len(seen.Kinds()) > 0 {
		return fmt.Errorf("%d allowed, %d by the Fallback, reports %q", allowed.Load(), degraded.Load(), seen.Kinds())
	}
	return nil
}

// Uncertain measures the share of calls that return ErrUncertain after a server has died or hung,
// without a Fallback. For two seconds, 64 callers make an attempt every 5 ms each.
func Uncertain(b *testing.B, open Open) {
	for _, timeout := range []time.Duration{250 * time.Millisecond, time.Second} {
		for name, fail := range map[string]func(*redistest.Server){
			"killed": func(s *redistest.Server) { s.Kill(b) },
			"hung":   func(s *redistest.Server) { s.Pause(b) },
		} {
			b.Run(fmt.Sprintf("%s,%v", name, timeout), func(b *testing.B) {
				server := redistest.Start(b)
				l := must(window.New(open(b, server.Options(nil)), window.Config{Name: "uncertain", Limits: parsed("1000000/1h"), Timeout: timeout}))
				must(l.Allow(b.Context(), "e"))
				seen, ended := &recorder{}, make(chan struct{})
				go func() {
					defer close(ended)
					seen.load(b, l, 64, 2*time.Second)
				}()
				<-time.After(100 * time.Millisecond)
				seen.clear()
				fail(server)
				<-ended
				if name == "hung" {
					server.Resume(b)
				}
				all := float64(len(seen.outages) + len(seen.uncertain) + seen.good)
				b.ReportMetric(float64(len(seen.uncertain)), "uncertain")
				b.ReportMetric(100*float64(len(seen.uncertain))/all, "%uncertain")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
