package inflight_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/window"
)

// TestPlaces checks that exactly Max units can be held at once, even through a limiter with another
// Max, and that a released place is free immediately.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(inflight.NewLocal(inflight.Config{Name: "jobs", Max: 3, Holder: "here"}))
		var leases []*inflight.Lease
		for range 3 {
			leases = append(leases, taken(t, l, "e"))
			<-time.After(time.Second)
		}
		d := denied(t, l, "e")
		equal(t, "denial", []int64{d.Used, d.Max, int64(d.RetryAfter / time.Second)}, []int64{3, 3, 7})
		release(t, taken(t, must(l.With(4)), "e"))
		release(t, leases[1])
		release(t, leases[1]) // does nothing
		if lease, d, err := l.TryAcquireN(t.Context(), "e", 2); lease != nil || err != nil || d.Used != 2 {
			t.Errorf("%v, %+v, %v", lease, d, err)
		}
		s := must(l.Inspect(t.Context(), "e"))
		if s.Used != 2 || len(s.Leases) != 2 || s.Leases[0].Holder != "here" || s.Leases[1].Token != leases[2].Token() {
			t.Errorf("%+v", s)
		}
		if !slices.IsSortedFunc(leases, func(a, b *inflight.Lease) int { return int(a.Token() - b.Token()) }) {
			t.Error("tokens do not increase")
		}
		for _, lease := range leases {
			release(t, lease)
		}
	})
}

// TestRenewal checks that leases last as long as their holder, up to MaxHold, and that their
// contexts are canceled when they are over.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost []window.Kind
		observe := func(_ context.Context, o window.Observation) {
			if o.Err != nil {
				lost = append(lost, o.Kind)
			}
		}
		l := must(inflight.NewLocal(inflight.Config{Name: "jobs", Max: 1, TTL: 3 * time.Second, MaxHold: time.Minute, Observe: observe}))
		lease := taken(t, l, "e")
		work := lease.Context(t.Context())
		<-time.After(59 * time.Second)
		if denied(t, l, "e"); work.Err() != nil || lease.Left() <= 0 || lease.Left() > time.Second {
			t.Error(work.Err(), lease.Left())
		}
		<-time.After(time.Second)
		synctest.Wait()
		if !errors.Is(context.Cause(work), inflight.ErrLost) || !strings.Contains(context.Cause(work).Error(), "held for MaxHold, which is 1m0s") || lease.Left() != 0 || lease.Context(t.Context()).Err() == nil {
			t.Error(context.Cause(work), lease.Left())
		}
		equal(t, "observed", lost, []window.Kind{inflight.KindOverdue})

		lease = taken(t, l, "e")
		parent, cancel := context.WithCancel(t.Context())
		work = lease.Context(parent)
		cancel()
		synctest.Wait()
		if lease.Left() > 0 || work.Err() == nil {
			t.Error("the lease outlives the parent of its context")
		}
		lease = taken(t, l, "e") // the place was released when the parent was done
		work = lease.Context(t.Context())
		release(t, lease)
		if !errors.Is(work.Err(), context.Canceled) || errors.Is(context.Cause(work), inflight.ErrLost) {
			t.Error(context.Cause(work))
		}
	})
}

// TestWaitersInOrder checks that waiters get places in the order in which they arrived, that a
// caller that gives up takes no place, and that Close releases everything.
func TestWaitersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(inflight.NewLocal(inflight.Config{Name: "jobs", Max: 2}))
		var mu sync.Mutex
		var order []int
		var group sync.WaitGroup
		for i := range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			if i%5 == 4 {
				ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
			}
			defer cancel()
			group.Go(func() {
				lease, err := l.Acquire(ctx, "e")
				if err != nil {
					if i%5 != 4 || !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				<-time.After(time.Second)
				release(t, lease)
			})
			synctest.Wait()
		}
		group.Wait()
		equal(t, "order", order, []int{0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 15, 16, 17, 18})

		leases := []*inflight.Lease{taken(t, l, "e"), taken(t, l, "e")}
		late := make(chan error)
		for range 2 {
			go func() {
				_, err := l.Acquire(t.Context(), "e")
				late <- err
			}()
		}
		synctest.Wait()
		if err := l.Close(t.Context()); err != nil || leases[0].Left() > 0 || leases[1].Left() > 0 {
			t.Error(err)
		}
		for range 2 {
			if err := <-late; !errors.Is(err, inflight.ErrClosed) {
				t.Error(err)
			}
		}
		equal(t, "held after Close", must(l.Inspect(t.Context(), "e")).Used, 0)
	})
}
