package pipeline

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// A cachedGet is a GET in its own goroutine, so that its caller can leave while the client waits
// for a connection.
type cachedGet struct {
	context.Context // Background, apart from Err

	over  atomic.Bool // the GET is done, or its caller has left
	done  chan struct{}
	value string
	hit   bool
	err   error
}

// Err returns an error once the caller has left, so that nothing more is sent for it.
func (g *cachedGet) Err() error {
	if g.over.Load() {
		return context.Canceled
	}
	return nil
}

// Get returns the value of a key, from the cache of the client if it has it. The client must be a
// Tracker, and keeps the value for at most ttl. Get returns no value if the breaker of the slot
// range is open, or if the value is not a string: a script will report what is wrong. Its error is
// ErrLeft if ctx ended.
func (p *Pipeline) Get(ctx context.Context, key string, timeout, ttl time.Duration) (value string, hit bool, err error) {
	slots := &p.ranges[p.Range(key)]
	if slots.isOpen() || slots.abandoned.Load() >= maxAbandoned {
		return "", false, nil
	}
	began, g := p.conn.elapsed(), &cachedGet{Context: context.Background(), done: make(chan struct{})}
	go g.run(p.conn.up.Load().tracker, slots, key, ttl)
	err = g.await(ctx, slots, newPatience(ctx, timeout, slots.usually()))
	if err == nil { // this does not close the breaker: a server that refuses to count still answers a GET
		return g.value, g.hit, nil
	}
	if errors.Is(err, ErrLeft) {
		return "", false, err
	}
	slots.record(ctx, began, p.conn.elapsed(), err)
	if err = explain(err, key, true); !IsOutage(err) {
		return "", false, nil
	}
	return "", false, err
}

func (g *cachedGet) run(tracker Tracker, slots *slotRange, key string, ttl time.Duration) {
	defer close(g.done)
	g.value, g.hit, g.err = tracker.Get(g, key, ttl)
	if !g.over.CompareAndSwap(false, true) {
		slots.abandoned.Add(-1)
	}
}

// await waits for the GET until the patience or ctx ends.
func (g *cachedGet) await(ctx context.Context, slots *slotRange, p patience) error {
	var over <-chan time.Time
	if p.timed {
		timer := time.NewTimer(p.left)
		defer timer.Stop()
		over = timer.C
	}
	var err error
	select {
	case <-g.done:
		return g.err
	case <-over:
		err = &expired{p, false}
	case <-ctx.Done():
		err = NotSent(ctx.Err())
	}
	slots.abandoned.Add(1)
	if !g.over.CompareAndSwap(false, true) { // it came just now
		slots.abandoned.Add(-1)
		<-g.done
		return g.err
	}
	return err
}
