package redistest

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Control measures how slow this machine is while a test runs, so that the outcome of the test does
// not depend on it. Goroutines repeat something plain, such as waiting for a timer, as long as the
// test makes calls that have to end in time.
type Control struct {
	all     sync.WaitGroup
	over    atomic.Bool
	mu      sync.Mutex
	longest time.Duration
}

// StartControl starts the given number of goroutines, which repeat do.
func StartControl(goroutines int, do func()) *Control {
	c := &Control{}
	for range goroutines {
		c.all.Go(func() {
			for again := true; again; again = !c.over.Load() {
				began := time.Now()
				do()
				took := time.Since(began)
				c.mu.Lock()
				c.longest = max(c.longest, took)
				c.mu.Unlock()
			}
		})
	}
	return c
}

// Longest ends the control, and returns how long do took at the most.
func (c *Control) Longest() time.Duration {
	c.over.Store(true)
	c.all.Wait()
	return c.longest
}

// Limit ends the control, and returns how long a call may take for which the time in do was set: four
// times as long as do, because a call waits several times for its turn on a busy machine.
func (c *Control) Limit() time.Duration { return 4 * c.Longest() }

// Timers returns a Control of goroutines that wait for d.
func Timers(goroutines int, d time.Duration) *Control {
	return StartControl(goroutines, func() { <-time.After(d) })
}
