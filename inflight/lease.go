package inflight

import (
	"context"
	"sync"
	"time"
)

// A Lease holds units of an event until it is released or lost.
type Lease struct {
	limiter *Limiter
	event   string

	// core.mu guards these fields until the lease is over. Then they no longer change, except cancels.
	state   state
	cause   error         // why the lease is over
	cancels []func(error) // cancel the contexts

	canceled sync.Once // guards cause and cancels when the lease is over
}

// Release gives the units back, even if ctx is done, and cancels the contexts of the lease. A
// second call does nothing, and neither does a call on a nil Lease. An error means that the units
// may stay taken until their TTL ends.
func (l *Lease) Release(ctx context.Context) error {
	if l == nil {
		return nil
	}
	return l.limiter.release(context.WithoutCancel(ctx), []*Lease{l})
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
	stop := context.AfterFunc(parent, func() { _ = l.Release(parent) })
	end := func(cause error) { stop(); cancel(cause) }
	l.limiter.mu.Lock()
	isOver := l.state.phase == over
	if !isOver {
		l.cancels = append(l.cancels, end)
	}
	l.limiter.mu.Unlock()
	if isOver {
		end(l.cause)
	}
	return ctx
}

// Left returns how long the holder can still rely on the lease, according to the clock, or 0 if the
// lease is over. In a process that was suspended, Left returns 0 immediately, even before Context
// is canceled.
func (l *Lease) Left() time.Duration {
	l.limiter.mu.Lock()
	defer l.limiter.mu.Unlock()
	if l.state.phase == over {
		return 0
	}
	return max(0, time.Until(l.state.end))
}

// Token returns a fencing token: a number that is greater than the tokens of all earlier leases of
// the event. Pass it to the system that the work writes to, so that the system can reject tokens
// smaller than one it has already seen. That works only if Max is 1. Token returns 0 while the
// Fallback holds the units.
func (l *Lease) Token() int64 {
	l.limiter.mu.Lock()
	defer l.limiter.mu.Unlock()
	if l.state.degraded {
		return 0
	}
	return l.state.token
}

// Degraded reports whether the Fallback holds the units, because Redis could not renew or grant
// them. They are held in addition to the units that Redis holds.
func (l *Lease) Degraded() bool {
	l.limiter.mu.Lock()
	defer l.limiter.mu.Unlock()
	return l.state.degraded
}

// Cause returns why Redis does not hold the units, if Degraded, as in window.Decision. It returns
// nil while the lease is Degraded only because the reply to a renewal is late.
func (l *Lease) Cause() error {
	l.limiter.mu.Lock()
	defer l.limiter.mu.Unlock()
	if !l.state.degraded {
		return nil
	}
	return l.state.failure.Err()
}

// cancel cancels the contexts of a lease that is over, or waits until another call has done so.
// core.mu is not locked, because canceling calls other code.
func (l *Lease) cancel() {
	l.canceled.Do(func() {
		for _, cancel := range l.cancels {
			cancel(l.cause)
		}
		l.cancels = nil
	})
}
