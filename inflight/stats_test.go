package inflight_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/inflight"
)

// TestStats checks that each lease counts as held from its first reply until it is released or
// lost, even if it comes from a limiter derived with With, and that callers count as waiting until
// they have a lease or give up.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(inflight.NewLocal(inflight.Config{Name: "jobs", Max: 3, MaxHold: time.Minute}))
		check := func(when string, held, waiting int64) {
			t.Helper()
			synctest.Wait()
			equal(t, when, l.Stats(), inflight.Stats{Limiter: "jobs", Held: held, Waiting: waiting})
		}
		check("before", 0, 0)
		first := taken(t, must(l.With(2)), "a")
		two, _, err := l.TryAcquireN(t.Context(), "a", 2)
		if err != nil || two.Degraded() {
			t.Fatal(two.Degraded(), err)
		}
		denied(t, l, "a")
		taken(t, l, "b")
		check("after three leases", 4, 0)
		ctx, leave := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{t.Context(), ctx} {
			go func() { _, _ = l.Acquire(ctx, "a") }()
			synctest.Wait()
		}
		check("while two wait", 4, 2)
		leave()
		check("after one has left", 4, 1)
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := l.Acquire(short, "a"); !errors.Is(err, inflight.ErrFull) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a waiter that was never the first: %v", err)
		}
		release(t, two)
		<-time.After(time.Second)
		check("after the other has a lease", 3, 0)
		release(t, first)
		release(t, first)
		check("after a release", 2, 0)
		<-time.After(time.Minute)
		check("after MaxHold", 0, 0)
	})
}
