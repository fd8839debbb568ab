package window_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestWait checks on synctest's fake clock that Wait sleeps for RetryAfter plus at most 5%.
func TestWait(t *testing.T) {
	for name, cfg := range map[string]window.Config{
		"free": limits("1/5s", "3/1h"), "denials count": {Limits: parsed("1/5s", "3/1h"), CountDenied: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg.Name = "wait"
				l := must(window.NewLocal(cfg))
				for i, want := range []time.Duration{0, 5 * time.Second, 5 * time.Second} {
					begin := time.Now()
					d, err := l.Wait(t.Context(), "e")
					if took := time.Since(begin); err != nil || !d.Allowed || took < want || took > want+want/20 {
						t.Fatalf("wait %d took %v, not %v: %+v %v", i, took, want, d, err)
					}
				}
				begin := time.Now()
				if d, err := l.Wait(t.Context(), "e"); err != nil || !d.Allowed || time.Since(begin) < 59*time.Minute || time.Since(begin) > 61*time.Minute {
					t.Fatalf("after %v: %+v %v", time.Since(begin), d, err)
				}
			})
		})
	}
}

// TestWaitGivesUp checks that Wait returns immediately if the deadline comes too early, or if its
// context is canceled.
func TestWaitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(window.NewLocal(window.Config{Name: "wait", Limits: parsed("1/1m")}))
		must(l.Allow(t.Context(), "e"))
		begin := time.Now()

		short, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		d, err := l.Wait(short, "e")
		if !errors.Is(err, context.DeadlineExceeded) || d.Allowed || d.RetryAfter != time.Minute || time.Since(begin) != 0 {
			t.Errorf("after %v: %+v %v", time.Since(begin), d, err)
		}

		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		if d, err := l.Wait(gone, "e"); !errors.Is(err, context.Canceled) || d.Allowed || time.Since(begin) != time.Second {
			t.Errorf("after %v: %+v %v", time.Since(begin), d, err)
		}
		if _, err := l.Wait(gone, "e"); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that has left: %v", err)
		}
	})
}

// TestWaitUnderLoad lets callers wait for one event on a real Redis, and checks that the limit is
// kept.
func TestWaitUnderLoad(t *testing.T) {
	cfg := window.Config{Name: redistest.Key(t), Limits: parsed("3/30ms"), Timeout: time.Minute}
	l := must(window.New(window.On(redistest.Client(t)), cfg))
	decided := make(chan window.Decision)
	for range 4 {
		go func() {
			for range 6 {
				d, err := l.Wait(context.Background(), "e")
				if err != nil {
					t.Error(err)
				}
				decided <- d
			}
		}()
	}
	var log []allowedAttempt
	for range 24 {
		d := <-decided
		log = append(log, allowedAttempt{d.At, d.Counted})
	}
	holds(t, cfg.Limits[0], log)
}

// TestWaitAfterAStepBack checks that Wait repairs timestamps even if denied attempts count,
// although those of Wait do not. Otherwise callers would wait until a clock that stepped back has
// caught up.
func TestWaitAfterAStepBack(t *testing.T) {
	cfg := limits("5/1000s")
	cfg.CountDenied = true
	both(t, cfg, func(b bench) {
		b.allow("e", 5)
		b.clock.pass(-time.Hour)
		soon, cancel := context.WithTimeout(b.Context(), 50*time.Second) // shorter than the wait, so no sleep starts
		defer cancel()
		d, err := b.Wait(soon, "e")
		if !errors.Is(err, context.DeadlineExceeded) || d.Allowed || d.RetryAfter != 2000*time.Second || b.inspect("e").Limits[0].Used != 5 {
			b.Errorf("%v: %+v", err, d)
		}
		if b.clock.pass(d.RetryAfter); !b.peek("e", 1).Allowed {
			b.Errorf("after %v: %+v", d.RetryAfter, b.peek("e", 1))
		}
	})
}
