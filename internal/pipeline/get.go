package pipeline

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// A cachedGet is a Read that runs in its own goroutine, so that the caller can leave while the
// client waits for a connection.
type cachedGet struct {
	context.Context // Background, except for Err

	conn  *Connection
	slots *slotRange
	queue *queue
	began time.Duration

	over atomic.Bool // the Read is done, or its caller has left
	done chan struct{}
	copy Copy
	err  error
}

// Err returns an error once the caller has left, so that the client sends nothing more.
func (g *cachedGet) Err() error {
	if g.over.Load() {
		return context.Canceled
	}
	return nil
}

// errNoCopy means that a Tracker could not get a copy, although Redis has not failed.
var errNoCopy = errors.New("there is no copy")

// Get returns the contents of key, from the client's cache if possible. The client must be a
// Tracker. It caches the copy for at most ttl. Get returns a zero Copy and no error if the circuit
// breaker of the slot range is open, if the key holds a value of another type (a script call will
// report that), if the client gave up because the key's slot is moving, or if the reply is merely
// late. If ctx is done, the error matches ErrLeft.
func (p *Pipeline) Get(ctx context.Context, read Read, key string, timeout, ttl time.Duration) (Copy, error) {
	i := p.Range(key)
	slots := &p.ranges[i]
	if slots.isOpen() || slots.abandoned.Load() >= maxAbandoned {
		return Copy{}, nil
	}
	g := &cachedGet{
		Context: context.Background(), conn: p.conn, slots: slots, queue: p.laneOf(i).queue,
		began: p.conn.elapsed(), done: make(chan struct{}),
	}
	p.conn.callers.Add(1)
	defer p.conn.callers.Add(-1)
	patience := newPatience(ctx, timeout, g.queue.silence.least(), g.queue.silence.lasts(g.began))
	go g.run(read, key, ttl)
	came, err := g.await(ctx, patience)
	switch {
	case came && err == nil: // does not close the breaker: a server that cannot count may still answer a Read
		g.copy.Known = true
		return g.copy, nil
	case errors.Is(err, errNoCopy):
		return Copy{}, nil
	case err == nil || errors.Is(err, ErrLeft):
		return Copy{}, err
	}
	slots.record(ctx, g.began, p.conn.elapsed(), err)
	if err = explain(err, key, true); !IsOutage(err) {
		return Copy{}, nil
	}
	return Copy{}, err
}

func (g *cachedGet) run(read Read, key string, ttl time.Duration) {
	defer close(g.done)
	g.queue.silence.begin(g.began)
	g.copy, g.err = g.conn.up.Load().tracker.Get(g, read, key, ttl)
	g.queue.silence.end(g.began, g.conn.elapsed(), !g.copy.Hit && isAnswer(g.err))
	if !g.over.CompareAndSwap(false, true) {
		g.slots.abandoned.Add(-1)
	}
}

// await waits for the reply until the patience ends or ctx is done, and reports whether the reply
// arrived. If the reply is merely late, await returns no error.
func (g *cachedGet) await(ctx context.Context, p patience) (came bool, err error) {
	over, stop := p.timer()
	defer stop()
	select {
	case <-g.done:
		return true, g.err
	case <-over:
		if now := g.conn.elapsed(); !p.early || g.queue.isSilent(now, p.leastWhen(now-g.began), 0) {
			err = p.expired()
		}
	case <-ctx.Done():
		err = NotSent(ctx.Err())
	}
	g.slots.abandoned.Add(1)
	if !g.over.CompareAndSwap(false, true) { // the reply has just arrived
		g.slots.abandoned.Add(-1)
		<-g.done
		return true, g.err
	}
	return false, err
}
