package inflight

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/internal/send"
	"github.com/slidegate/slidegate/window"
)

// A Decision is the answer to TryAcquire.
type Decision struct {
	Used       int64         // units that are held, including those of the new lease
	Max        int64         // the most units that can be held
	RetryAfter time.Duration // if denied, how long until the units fit, provided that no lease is released, which shortens it, or renewed, which lengthens it
	At         time.Time     // time of the decision, in UTC, on the Redis clock

	// Degraded reports whether the Fallback decided. Cause says why Redis did not, as in
	// window.Decision.
	Degraded bool
	Cause    error `json:"-"`
}

// decided is a Decision and the trace of its Redis call.
type decided struct {
	Decision

	trace send.Trace
}

// TryAcquire calls TryAcquireN with one unit.
func (l *Limiter) TryAcquire(ctx context.Context, event string) (*Lease, Decision, error) {
	return l.TryAcquireN(ctx, event, 1)
}

// TryAcquireN takes n units of the event if they are free. If they are not, the Lease and the error
// are nil. Release the Lease when the work is done.
//
// The errors are ErrEmptyEvent, ErrInvalidCost, ErrExceedsLimit, ErrOutage, ErrUncertain,
// ErrClosed, ctx.Err, and ErrLost if the process was suspended for so long that the new lease has
// already ended. Any other error names the key: its value is not a record of this library.
func (l *Limiter) TryAcquireN(ctx context.Context, event string, n int64) (*Lease, Decision, error) {
	return l.acquire(ctx, event, n, l.try)
}

// Acquire calls AcquireN with one unit.
func (l *Limiter) Acquire(ctx context.Context, event string) (*Lease, error) {
	return l.AcquireN(ctx, event, 1)
}

// AcquireN waits until n units of the event are free, and takes them. Callers in one process are
// served in order. There is no order across processes, and TryAcquire does not wait in line.
// Release the Lease when the work is done. AcquireN returns the same errors as TryAcquireN, and
// ErrFull.
func (l *Limiter) AcquireN(ctx context.Context, event string, n int64) (*Lease, error) {
	lease, _, err := l.acquire(ctx, event, n, l.wait)
	return lease, err
}

// acquire takes n units with take, which is try or wait, and reports the result.
func (l *Limiter) acquire(
	ctx context.Context, event string, n int64, take func(ctx context.Context, event string, n int64) (*Lease, decided, error),
) (*Lease, Decision, error) {
	if err := l.made().Check(ctx, limiter.Allow, event, n); err != nil {
		return nil, Decision{}, err
	}
	began := time.Now()
	lease, d, err := take(ctx, event, n)
	seen := window.Decision{Allowed: lease != nil, RetryAfter: d.RetryAfter, At: d.At, Degraded: d.Degraded, Cause: d.Cause}
	l.report.Attempt(ctx, l.base, limiter.Allow, window.Observation{Units: n, Decision: seen}, d.trace, err, began)
	if lease == nil && (err == nil || errors.Is(err, errLeft)) { // d is zero if the caller left before it asked
		denial := window.Denial{Limit: window.Limit{Max: cmp.Or(d.Max, l.max)}, Decision: window.Decision{RetryAfter: d.RetryAfter, At: time.Now().UTC()}}
		l.report.Denied(ctx, l.base, event, "", denial)
	}
	return lease, d.Decision, err
}

// try takes n units if they are free. In an outage, it takes them from the Fallback.
func (l *Limiter) try(ctx context.Context, event string, n int64) (*Lease, decided, error) {
	if l.closed.Load() {
		return nil, decided{}, l.base.Wrap(ErrClosed)
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	s := state{ref: ref{id: string(id[:]), n: n, max: l.max}, ttl: l.ttl, safe: l.fallback != nil}
	by, began := l, time.Now()
	s.last = began.Add(l.maxHold)
	a, err := l.store.acquire(ctx, event, s.ref, l.ttl, l.holder)
	trace := a.trace
	if cause := err; health.IsOutage(cause) {
		s.degraded, s.failure = true, health.FailureIn(cause)
		err = limiter.AskFallback(ctx, cause, l.fallback, func(ctx context.Context, f *Limiter) (err error) {
			if err = f.base.Check(ctx, limiter.Allow, event, n); err == nil {
				by, began = f, time.Now()
				a, err = f.store.acquire(ctx, event, ref{s.id, n, f.max, 0}, l.ttl, f.holder)
			}
			return err
		})
		if err != nil || !a.held { // the reply may be lost, or the call still in flight
			l.giveUp(event, s.ref)
		}
	}
	if err != nil {
		return nil, decided{trace: trace}, err
	}
	d := decided{Decision{a.used, by.max, a.wait, by.base.Clock.Time(a.now), s.degraded, s.failure.Err()}, trace}
	if !a.held {
		return nil, d, nil
	}
	if s.extend(began); !s.degraded {
		s.token = a.token
	}
	lease := &Lease{limiter: l, event: event, state: s}
	switch {
	case !l.keep(lease):
		err = ErrClosed
	case lease.Left() == 0: // the process was suspended during the call
		err = ErrLost
	default:
		return lease, d, nil
	}
	return nil, d, errors.Join(l.base.Wrap(err), lease.Release(ctx))
}
