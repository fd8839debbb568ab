package inflight

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/window"
)

// A Lease holds units of an event until it is released or lost.
type Lease struct {
	limiter *Limiter
	event   string
	since   time.Time

	mu       sync.Mutex
	ref                      // identifies the lease in Redis and in the Fallback
	degraded bool            // the Fallback holds the units
	end      time.Time       // when the lease ends for its holder: earlier than in Redis
	renewAt  time.Time       // when to renew it next
	renewing bool            // a renewal is in flight
	failure  *health.Failure // why the last call to Redis about this lease failed
	cause    error           // why the lease is over
	over     bool            // the lease was released or lost
	ended    []func(error)   // cancel the contexts
}

// A ref identifies a lease to a store.
type ref struct {
	id    string // 8 random bytes
	n     int64  // never changes; neither does max
	max   int64
	token int64 // the token in Redis; 0 if the lease has never been there
}

// enter takes the lease's units from the store of by, if they are free. The time of the lease
// starts before the call.
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
	return decided{Decision{Used: a.used, Max: by.max, RetryAfter: a.wait, At: by.engine.Clock.Time(a.now)}, a.trace}, nil
}

// extend records that a call that started at began extended the lease by another TTL.
func (l *Lease) extend(began time.Time) {
	ttl := l.limiter.ttl
	l.end, l.renewAt = began.Add(ttl-ttl/10), began.Add(ttl/3)
	if last := l.since.Add(l.limiter.maxHold); l.end.After(last) {
		l.end = last
	}
}

// What a keeper can do with a lease.
const (
	stepWait = iota
	stepRenew
	stepCarry // let the Fallback hold it, because the reply of Redis may come too late
	stepLose
	stepOverdue // lose it, because of MaxHold
)

// step returns what to do with the lease now, and when to check it again. A lease that will be due
// soon is renewed already, so that many leases need few calls.
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
	l.renewing, l.renewAt = true, now.Add(ttl/10) // when to retry if this renewal fails
	return stepRenew, earlier(last, l.renewAt)
}

// state returns the lease's ref, and whether the Fallback carries the lease.
func (l *Lease) state() (r ref, carried bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ref, l.degraded
}

// keep records that Redis holds the lease under the ref as for another TTL. It returns false if the
// lease is over.
func (l *Lease) keep(began time.Time, as ref) bool {
	l.mu.Lock()
	was, carried, over := l.ref, l.degraded, l.over
	if !over {
		l.id, l.token, l.degraded, l.failure = as.id, as.token, false, nil
		l.extend(began)
	}
	l.mu.Unlock()
	if carried {
		_ = l.limiter.fallback.store.release(context.Background(), l.event, []ref{was})
	}
	return !over
}

// carry makes the Fallback hold the lease for another TTL, even if its places are all taken.
func (l *Lease) carry(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.limiter.fallback.store.(*local).carry(l.event, l.ref, l.limiter.ttl)
		l.degraded = true
		l.extend(began)
	}
}

// fail records why a call to Redis about the lease failed.
func (l *Lease) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = health.FailureIn(err)
}

// notRenewed returns the cause with which a lease that was not renewed ends.
func (l *Lease) notRenewed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := fmt.Errorf("%w: it was not renewed within its TTL of %v", ErrLost, l.limiter.ttl)
	if l.failure != nil {
		err = fmt.Errorf("%w: %w: %v", err, l.failure.Counted, l.failure.Cause) //nolint:errorlint // a timeout of Redis must not match a timeout of the caller
	}
	return err
}

// again takes units in Redis for a lease that the Fallback carries and that Redis does not hold. If
// the units are not free, the Fallback continues to carry the lease.
func (l *Lease) again(ctx context.Context) {
	began := time.Now()
	r, _ := l.state()
	r.id = newID()
	a, err := l.limiter.store.acquire(ctx, l.event, r, l.limiter.ttl, l.limiter.holder)
	switch r.token = a.token; {
	case err == nil && !a.held:
		l.carry(began)
	case err != nil:
		l.fail(err)
		l.carry(began)
		l.giveUp(r)
	case !l.keep(began, r): // the lease was released during the call
		l.giveUp(r)
	}
}

// giveUp releases in the background what Redis may hold under r.
func (l *Lease) giveUp(r ref) {
	go func() { _ = l.limiter.store.release(context.Background(), l.event, []ref{r}) }()
}

// Release gives the units back, even if ctx is done, and cancels the contexts of the lease. A
// second call does nothing, and neither does a call on a nil Lease. An error means that the units
// may stay taken until their TTL ends.
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

// lose ends a lease that its holder has not released, and gives its units back.
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
	if l.limiter.report.Observe != nil {
		go l.limiter.report.Observe(context.Background(), window.Observation{Limiter: l.limiter.engine.Name, Kind: kind, Units: l.n, Err: cause})
	}
}

// Context returns a context for the work that the lease protects. The context is canceled when
// parent is done and when the lease is released. If the lease is lost, or may be, its cause matches
// ErrLost. When parent is done, the lease is released, in case its holder never does so. Context
// panics if l is nil, which means that no place was free.
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

// Left returns how long the holder can still rely on the lease, according to the clock, or 0 if the
// lease is over. In a process that was suspended, Left returns 0 immediately, even before Context
// is canceled.
func (l *Lease) Left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return 0
	}
	return max(0, time.Until(l.end))
}

// Token returns a fencing token: a number that is greater than the tokens of all earlier leases of
// the event. Pass it to the system that the work writes to, so that the system can reject tokens
// smaller than one it has already seen. That works only if Max is 1. Token returns 0 while the
// Fallback holds the units.
func (l *Lease) Token() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.degraded {
		return 0
	}
	return l.token
}

// Degraded reports whether the Fallback holds the units, because Redis could not renew or grant
// them. They are held in addition to the units that Redis holds.
func (l *Lease) Degraded() bool {
	_, degraded := l.state()
	return degraded
}

// Cause returns why Redis does not hold the units, if Degraded, as in window.Decision. It returns
// nil while the lease is Degraded only because the reply to a renewal is late.
func (l *Lease) Cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.degraded {
		return nil
	}
	return l.failure.Err()
}
