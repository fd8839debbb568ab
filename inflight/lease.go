package inflight

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/pipeline"
	"github.com/slidegate/slidegate/window"
)

// A Lease holds units of an event until it is released, or lost.
type Lease struct {
	limiter *Limiter
	event   string
	since   time.Time

	mu       sync.Mutex
	ref                        // in Redis, and in the Fallback
	degraded bool              // the Fallback holds the units
	end      time.Time         // of the lease, as its holder sees it: earlier than in Redis
	renewAt  time.Time         // when to renew it next
	renewing bool              // a call is in flight
	failure  *pipeline.Failure // why the last call to Redis about this lease failed
	cause    error             // why it is over
	over     bool              // it was released or lost
	ended    []func(error)     // end the contexts
}

// A ref identifies a lease to a store.
type ref struct {
	id    string // 8 random bytes
	n     int64  // never changes; neither does max
	max   int64
	token int64 // in Redis; 0 if it has never been there
}

// enter takes the units from the store of a limiter, if they are free. The lease time starts before
// the call.
func (l *Lease) enter(ctx context.Context, by *Limiter) (decided, error) {
	r, began := l.ref, time.Now()
	r.max = by.max
	a, err := by.store.acquire(ctx, l.event, r, l.limiter.ttl, by.holder)
	if err != nil {
		return decided{trace: a.trace}, err
	}
	if a.held {
		l.extend(began)
	}
	if by == l.limiter {
		l.token = a.token
	}
	return decided{Decision{Used: a.used, Max: by.max, RetryAfter: a.wait, At: time.UnixMicro(a.now).UTC()}, a.trace}, nil
}

// extend records that a call that began at a time extended the lease by another TTL.
func (l *Lease) extend(began time.Time) {
	ttl := l.limiter.ttl
	l.end, l.renewAt = began.Add(ttl-ttl/10), began.Add(ttl/3)
	if last := l.since.Add(l.limiter.maxHold); l.end.After(last) {
		l.end = last
	}
}

// The actions of a keeper on a lease.
const (
	stepWait = iota
	stepRenew
	stepCarry // by the Fallback, because the reply of Redis may come too late
	stepLose
	stepOverdue // lose it because of MaxHold
)

// step returns what to do with the lease now, and when to check it again. It also renews a lease
// that will be due soon, so that many leases need few calls.
func (l *Lease) step(now time.Time) (do int, again time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ttl, safe := l.limiter.ttl, l.limiter.fallback != nil
	last := l.end
	if safe {
		last = l.end.Add(-ttl / 10)
	}
	switch {
	case !l.since.Add(l.limiter.maxHold).After(now):
		return stepOverdue, now.Add(ttl)
	case !l.end.After(now):
		return stepLose, now.Add(ttl)
	case l.renewing && safe && !last.After(now):
		return stepCarry, now.Add(ttl / 20)
	case l.renewing:
		return stepWait, earlier(last, now.Add(ttl/20))
	case l.renewAt.After(now.Add(ttl / 20)):
		return stepWait, earlier(l.end, l.renewAt)
	}
	l.renewing, l.renewAt = true, now.Add(ttl/10) // retry then, if this fails
	return stepRenew, earlier(last, l.renewAt)
}

// state returns the ref of the lease in the stores, and whether the Fallback carries it.
func (l *Lease) state() (r ref, carried bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ref, l.degraded
}

// keep records that Redis holds the lease under a ref for another TTL. It returns false if the
// lease is over.
func (l *Lease) keep(began time.Time, as ref) bool {
	l.mu.Lock()
	carried, over := l.degraded, l.over
	if !over {
		l.id, l.token, l.degraded, l.failure = as.id, as.token, false, nil
		l.extend(began)
	}
	l.mu.Unlock()
	if carried {
		_ = l.limiter.fallback.store.release(context.Background(), l.event, []ref{as})
	}
	return !over
}

// carry makes the Fallback hold the lease for another TTL, even if there is no room.
func (l *Lease) carry(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.limiter.fallback.store.(*local).carry(l.event, l.ref, l.limiter.ttl)
		l.degraded = true
		l.extend(began)
	}
}

// fail records why a call to Redis failed.
func (l *Lease) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = pipeline.FailureIn(err)
}

// notRenewed returns the cause for ending a lease that was not renewed.
func (l *Lease) notRenewed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := fmt.Errorf("%w: it was not renewed within its TTL of %v", ErrLost, l.limiter.ttl)
	if l.failure != nil {
		err = fmt.Errorf("%w: %w: %v", err, l.failure.Counted, l.failure.Cause) //nolint:errorlint // a timeout of Redis is none of the caller
	}
	return err
}

// again takes units in Redis for a lease that the Fallback carries, and that has ended in Redis. If
// they are not free, the Fallback continues to carry it.
func (l *Lease) again(ctx context.Context) {
	began := time.Now()
	was, _ := l.state()
	r := was
	r.id = newID()
	a, err := l.limiter.store.acquire(ctx, l.event, r, l.limiter.ttl, l.limiter.holder)
	switch r.token = a.token; {
	case err == nil && !a.held:
		l.carry(began)
	case err != nil:
		l.fail(err)
		l.carry(began)
		l.giveUp(r)
	case l.keep(began, r):
		_ = l.limiter.fallback.store.release(ctx, l.event, []ref{was})
	default: // it was released meanwhile
		l.giveUp(r)
	}
}

// giveUp releases what Redis may hold, in the background.
func (l *Lease) giveUp(r ref) {
	go func() { _ = l.limiter.store.release(context.Background(), l.event, []ref{r}) }()
}

// Release gives the units back, even if ctx has ended. A second call does nothing, and neither does
// a call on a nil Lease. An error means that the place may last until its TTL ends. Release ends
// the contexts of the lease.
func (l *Lease) Release(ctx context.Context) error {
	if l == nil {
		return nil
	}
	return group{l.limiter.core, l.event}.release(context.WithoutCancel(ctx), []*Lease{l})
}

// finish ends the lease for its holder. It returns false if it was already over.
func (l *Lease) finish(cause error) bool {
	l.limiter.keeper.remove(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.over, l.cause = true, cause
	for _, end := range l.ended {
		end(cause)
	}
	l.ended = nil
	return true
}

// lose ends a lease that its holder has not released, and gives up its units.
func (l *Lease) lose(kind window.Kind) {
	cause := l.notRenewed()
	if kind == KindOverdue {
		cause = fmt.Errorf("%w: it was held for MaxHold, which is %v", ErrLost, l.limiter.maxHold)
	}
	if cause = l.limiter.engine.Wrap(cause); !l.finish(cause) {
		return
	}
	r, carried := l.state()
	if l.giveUp(r); carried {
		_ = l.limiter.fallback.store.release(context.Background(), l.event, []ref{r})
	}
	l.limiter.lines.released(l.event)
	if l.limiter.observe != nil {
		go l.limiter.observe(context.Background(), window.Observation{Limiter: l.limiter.engine.Name, Kind: kind, Units: l.n, Err: cause})
	}
}

// Context returns a context for the work that the lease protects. It ends with parent, and when the
// lease is released. If the lease may be lost, it ends with the cause ErrLost. When parent ends,
// the lease is released, in case its holder never does. Context panics if the Lease is nil, because
// no place was free.
func (l *Lease) Context(parent context.Context) context.Context {
	if l == nil {
		panic("slidegate: this lease is nil, so its work must not start; check the lease and the error of TryAcquire first")
	}
	ctx, cancel := context.WithCancelCause(parent)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		cancel(l.cause)
		return ctx
	}
	stop := context.AfterFunc(parent, func() { _ = l.Release(parent) })
	l.ended = append(l.ended, func(cause error) {
		stop()
		cancel(cause)
	})
	return ctx
}

// Left returns how long the holder can rely on the lease, by the clock: 0 if it is over. A process
// that was stopped sees this at once, before Context ends.
func (l *Lease) Left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return 0
	}
	return max(0, time.Until(l.end))
}

// Token returns a number that is greater than those of all earlier leases of the event. Pass it to
// the system that the work writes to, which can reject a smaller one than it has seen. That works
// only with a Max of 1. It is 0 while the Fallback holds the units.
func (l *Lease) Token() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.degraded {
		return 0
	}
	return l.token
}

// Degraded reports whether the Fallback holds the units, because Redis could not renew or grant
// them. They come on top of those that Redis holds.
func (l *Lease) Degraded() bool {
	_, degraded := l.state()
	return degraded
}

// Cause returns why Redis does not hold the units, if Degraded, as in window.Decision. It is nil while the
// renewal of a lease has no reply yet.
func (l *Lease) Cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.degraded {
		return nil
	}
	return l.failure.Err()
}
