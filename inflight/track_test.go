package inflight_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestTrack checks that a waiter in another process takes a place soon after it is released, or
// soon after a lease that is never released has expired, and that this takes few script calls.
func TestTrack(t *testing.T) {
	t.Parallel()
	calls := &redistest.Calls{}
	cfg := inflight.Config{Name: redistest.Key(t), Max: 1, TTL: ttl, Timeout: ttl / 3, Track: true}
	a := must(inflight.New(window.On(redistest.NewClient(t, nil)), cfg))
	b := must(inflight.New(window.On(redistest.NewClient(t, calls.Count)), cfg))
	var waits []time.Duration
	for range 50 {
		lease, got := taken(t, a, "e"), make(chan *inflight.Lease)
		go func() { got <- must(b.Acquire(t.Context(), "e")) }()
		for inflight.Waiting(b) == 0 {
		}
		<-time.After(20 * time.Millisecond)
		began := time.Now()
		release(t, lease)
		next := <-got
		waits = append(waits, time.Since(began))
		release(t, next)
	}
	slices.Sort(waits)
	t.Logf("a released place is taken after %v, 98 of 100 times after %v", waits[25], waits[48])
	if waits[10] > 40*time.Millisecond { // without Track it would be 25 ms on an idle machine, so the calls are counted too
		t.Errorf("%v", waits)
	}
	if n := calls.Scripts.Load(); n > 50*3+20 {
		t.Errorf("%d script calls", n)
	}
	inflight.Abandon(taken(t, a, "e"))
	lease := must(b.Acquire(t.Context(), "e"))
	release(t, lease)
}

// TestHot lets 256 callers in three processes, with Track, wait for five places. Each process must
// get its share.
func TestHot(t *testing.T) {
	t.Parallel()
	cfg := inflight.Config{Name: redistest.Key(t), Max: 5, Track: true, Timeout: 3 * time.Second}
	var mu sync.Mutex
	var shares [processes]int
	var group sync.WaitGroup
	over := time.Now().Add(redistest.UnlessShort(4*time.Second, time.Second))
	for p := range processes {
		l := must(inflight.New(window.On(redistest.NewClient(t, nil)), cfg))
		for range 256 / processes {
			group.Go(func() {
				for time.Now().Before(over) {
					lease := must(l.Acquire(t.Context(), "e"))
					mu.Lock()
					shares[p]++
					mu.Unlock()
					<-time.After(5 * time.Millisecond)
					release(t, lease)
				}
			})
		}
	}
	group.Wait()
	total := shares[0] + shares[1] + shares[2]
	if t.Logf("%d places taken: %v", total, shares); slices.Min(shares[:]) < total/10 {
		t.Errorf("shares of %d: %v", total, shares)
	}
}
