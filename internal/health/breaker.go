package health

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/connection"
)

// A circuit breaker is closed, open or probing.
//
//   - From closed to open: Failed, at the third consecutive failure. For a second, Allows lets no
//     request through, unless ProbeSoon ends the second early.
//   - From open to probing: Allows, with the first request after that second.
//   - From probing to open: Failed, or when another second has passed.
//   - To closed: Succeeded, at any success.
//
// Requests that were sent earlier count, too: their failures prolong the second.
const (
	failuresInARow = 3

	// sameCut is how long after a failure a request may start and still count as part of that
	// failure, if its connection breaks. A client has several connections. If all of them break at
	// once, it may notice a broken connection only when it uses it.
	sameCut = 100 * time.Millisecond

	// RecoveryDelay is the time from when a breaker opens until the first probe, and the time
	// between probes.
	RecoveryDelay = time.Second

	// successResolution is the minimum time between two recorded successes. It limits writes to
	// memory that all callers share.
	successResolution = 100 * time.Millisecond
)

// A Breaker is one limiter's circuit breaker for a part of the servers, such as a master, so that one
// failing master of a cluster does not stop the others.
type Breaker struct {
	Name   string  // of the limiter
	Outage *Outage // of the limiter
	Part   int     // index of the part in the Outage

	failures    atomic.Int32 // consecutive failures
	until       atomic.Int64 // the earliest time for the next probe; 0 while the breaker is closed
	lastSuccess atomic.Int64 // when a request last succeeded, to a precision of successResolution
	lastFailure atomic.Int64
	failure     atomic.Pointer[Failure] // the error that callers get while the breaker is open

	mu sync.Mutex // held while the state changes, or a failed probe is reported
}

// Allows reports whether a request may be sent at the given time, and whether that request is a
// probe.
func (b *Breaker) Allows(now time.Duration) (allowed, probe bool) {
	until := b.until.Load()
	if until == 0 {
		return true, false
	}
	probe = now >= time.Duration(until) && b.until.CompareAndSwap(until, int64(now+RecoveryDelay))
	return probe, probe
}

// IsDue reports whether the breaker is closed, or a probe may be sent.
func (b *Breaker) IsDue(now time.Duration) bool {
	until := b.until.Load()
	return until == 0 || now >= time.Duration(until)
}

// ProbeSoon makes the next request a probe, if the breaker is open.
func (b *Breaker) ProbeSoon(now time.Duration) {
	if until := b.until.Load(); until != 0 {
		b.until.CompareAndSwap(until, max(1, int64(now)))
	}
}

// IsOpen reports whether the breaker is open or probing.
func (b *Breaker) IsOpen() bool { return b.until.Load() != 0 }

// Err returns the error that callers get while the breaker is open.
func (b *Breaker) Err() error { return b.failure.Load() }

// breakerOpen is the cause of the error that callers get while the breaker is open. It quotes the
// last error, but does not wrap it, because that error belongs to another call.
type breakerOpen struct{ last error }

func (o *breakerOpen) Error() string {
	return fmt.Sprintf("the circuit breaker is open, with the next probe within %v; last error: %v", RecoveryDelay, o.last)
}

// Record updates the breaker with the outcome of a request. It counts failures of Redis. It does
// not count a request that its caller canceled, that the script refused, or that a test made fail.
func (b *Breaker) Record(ctx context.Context, began, now time.Duration, err error) {
	if IsWell(err) {
		b.Succeeded(ctx, now)
		return
	}
	certain := connection.IsAnswer(err) || connection.NotRun(err)
	switch {
	case errors.Is(err, ErrOnPurpose):
	case !certain && ctx.Err() != nil && !IsExpired(err):
	default:
		b.Failed(ctx, began, now, err, !certain && !IsExpired(err))
	}
}

// Succeeded counts a success, which closes the breaker.
func (b *Breaker) Succeeded(ctx context.Context, now time.Duration) {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
	if now-time.Duration(b.lastSuccess.Load()) > successResolution {
		b.lastSuccess.Store(int64(now))
		b.Outage.answered(ctx)
	}
	if b.IsOpen() {
		b.set(ctx, 0, nil)
	}
}

// Failed counts a failure. It ignores a request that started before the last success, because that
// request proves nothing new. If cut is true, the connection broke. Such a request is also ignored
// if it started before the last failure or within sameCut after it: several connections that break
// at once count as one failure.
func (b *Breaker) Failed(ctx context.Context, began, now time.Duration, err error, cut bool) {
	last := b.lastFailure.Load()
	if int64(began) < b.lastSuccess.Load() || cut && last != 0 && int64(began) < last+int64(sameCut) {
		return
	}
	if !b.lastFailure.CompareAndSwap(last, int64(now)) && cut {
		return // another request was first
	}
	until := int64(now + RecoveryDelay)
	if old := b.until.Load(); old != 0 {
		if b.until.CompareAndSwap(old, until) {
			b.stays(ctx)
		}
		return
	}
	if b.failures.Add(1) >= failuresInARow {
		b.set(ctx, until, err)
	}
}

// stays reports a failure while the breaker is open.
func (b *Breaker) stays(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.IsOpen() {
		b.Outage.changed(ctx, b.Part, b.failure.Load())
	}
}

// set opens the breaker if until is not 0, and closes it otherwise. If that changes its state, set
// reports it.
func (b *Breaker) set(ctx context.Context, until int64, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	opens := until != 0
	if b.IsOpen() == opens {
		return // another request was first
	}
	var failure *Failure
	if opens {
		failure = &Failure{Name: b.Name, Counted: ErrOutage, Cause: &breakerOpen{cause}}
		b.failure.Store(failure)
	}
	b.until.Store(until)
	b.Outage.changed(ctx, b.Part, failure)
}
