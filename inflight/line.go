package inflight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/health"
)

const (
	asksEvery = 50 * time.Millisecond
	yields    = 3 * time.Millisecond // head start for other processes after a place was released in this one
)

// A line holds the waiters for units of an event, first come, first served. Only the first waiter
// asks.
type line struct {
	waiters int64               // guarded by core.mu
	first   *semaphore.Weighted // held by the first waiter; serves the others in order
	freed   chan struct{}       // signals the first waiter that a place was released in this process
	full    atomic.Bool         // whether the last answer was a denial
}

// errLeft is in the error of a wait whose caller gave up.
var errLeft = errors.New("the caller left before units were free")

// wait waits until the caller is the first in line and n units are free, and takes them. If the
// caller gives up, its error includes ErrFull if the last answer to the first in line was a denial.
func (l *Limiter) wait(ctx context.Context, event string, n int64) (lease *Lease, d decided, err error) {
	on := l.join(event)
	defer l.leave(event, on)
	if on.first.Acquire(ctx, 1) == nil {
		defer on.first.Release(1)
		select {
		case <-on.freed: // a signal for an earlier first
		default:
		}
	}
	for ctx.Err() == nil {
		lease, d, err = l.try(ctx, event, n)
		denied := lease == nil && err == nil
		if denied || health.IsOutage(err) { // other errors concern only this caller
			on.full.Store(denied)
		}
		if !denied {
			break
		}
		on.sleep(ctx)
	}
	if lease == nil && err == nil {
		err = l.base.Wrap(fmt.Errorf("%w: %w", errLeft, ctx.Err()))
	}
	if err != nil && ctx.Err() != nil && !health.IsOutage(err) && on.full.Load() {
		err = fmt.Errorf("%w: %w", err, ErrFull)
	}
	return lease, d, err
}

// sleep waits for 50 ms ± 20%, or until a place is released in this process, or ctx is done.
func (on *line) sleep(ctx context.Context) {
	timer := time.NewTimer(time.Duration((0.8 + 0.4*rand.Float64()) * float64(asksEvery)))
	defer timer.Stop()
	select {
	case <-on.freed:
		_ = clock.Sleep(ctx, yields) // ctx.Err is checked next
	case <-timer.C:
	case <-ctx.Done():
	}
}

// join adds a caller to the line for the event.
func (c *core) join(event string) *line {
	c.mu.Lock()
	defer c.mu.Unlock()
	on := c.lines[event]
	if on == nil {
		on = &line{first: semaphore.NewWeighted(1), freed: make(chan struct{}, 1)}
		c.lines[event] = on
	}
	on.waiters++
	return on
}

// leave removes a caller from its line.
func (c *core) leave(event string, on *line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if on.waiters--; on.waiters == 0 {
		delete(c.lines, event)
	}
}

// released notifies the first in line for the event that a place was released. c.mu is locked.
func (c *core) released(event string) {
	if on := c.lines[event]; on != nil {
		select {
		case on.freed <- struct{}{}:
		default:
		}
	}
}
