package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/denials"
)

// noDeadline is the part of a client's context that never ends. With a deadline, rueidis would
// close a connection that other callers share. And the end of one caller's context would end a dial
// that others wait for.
type noDeadline struct{}

// Deadline reports that there is none.
func (noDeadline) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Done returns nil: the context never ends.
func (noDeadline) Done() <-chan struct{} { return nil }

// Value returns nil.
func (noDeadline) Value(any) any { return nil }

// A cachedGet is a GET for the denial cache in its own goroutine, so that its caller can leave
// while the client waits for a connection.
type cachedGet struct {
	noDeadline
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

// get returns the value of a key for the denial cache. It returns no value if the breaker of the
// slot range is open, or if the value is not a string: the script will report what is wrong.
func (s *redis) get(ctx context.Context, k string, timeout, ttl time.Duration) (value string, hit bool, err error) {
	var q request
	q.prepare(s, k, question{})
	if q.slotRange.isOpen() || q.slotRange.abandoned.Load() >= maxAbandoned {
		return "", false, nil
	}
	began, g := s.elapsed(), &cachedGet{done: make(chan struct{})}
	go g.run(s.conn.up.Load().tracker, q.slotRange, k, ttl)
	err = g.await(ctx, q.slotRange, timeout)
	if err == nil { // this does not close the breaker: a server that refuses to count still answers a GET
		return g.value, g.hit, nil
	}
	if errors.Is(err, denials.ErrLeft) {
		return "", false, err
	}
	q.slotRange.record(ctx, began, s.elapsed(), err)
	if err = explain(err, k, string(Peek)); !isOutage(err) {
		return "", false, nil
	}
	return "", false, err
}

func (g *cachedGet) run(tracker Tracker, r *slotRange, key string, ttl time.Duration) {
	defer close(g.done)
	g.value, g.hit, g.err = tracker.Get(g, key, ttl)
	if !g.over.CompareAndSwap(false, true) {
		r.abandoned.Add(-1)
	}
}

// await waits for the GET until the timeout passes or ctx ends.
func (g *cachedGet) await(ctx context.Context, r *slotRange, timeout time.Duration) error {
	var expired <-chan time.Time
	if timeout >= 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		expired = timer.C
	}
	var err error
	select {
	case <-g.done:
		return g.err
	case <-expired:
		err = fmt.Errorf("%w within %v", errExpired, rounded(timeout))
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", denials.ErrLeft, ctx.Err())
	}
	r.abandoned.Add(1)
	if !g.over.CompareAndSwap(false, true) { // it came just now
		r.abandoned.Add(-1)
		<-g.done
		return g.err
	}
	return err
}
