package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Each of the 64 slot ranges has a circuit breaker, so that one failing shard of a cluster does not
// stop the others. After three failures in a row the breaker opens: the range gets no requests for
// a second. Then one request probes the range. If it succeeds, the breaker closes, and requests are
// sent again. If two masters share a range, its breaker counts the failures of both, and while it
// is open, neither gets requests of the range. A server that is not a cluster is one range.
const (
	failuresInARow = 3

	// sameCut is how long after a failure a request may start and still belong to the same failure,
	// if its connection breaks or its caller has little time. A client has several connections. If
	// all break at once, it may notice some only when it uses them.
	sameCut = 100 * time.Millisecond

	// RecoveryDelay is the time from the opening of a breaker to the first probe, and between
	// probes.
	RecoveryDelay = time.Second

	// successResolution limits how often a success is recorded, because that writes memory that all
	// callers share.
	successResolution = 100 * time.Millisecond
)

// breaker is the circuit breaker of a slot range for one limiter.
type breaker struct {
	name        string       // of the limiter
	failures    atomic.Int32 // in a row
	until       atomic.Int64 // when the next probe may be sent; 0 while the breaker is closed
	lastSuccess atomic.Int64 // when a request last succeeded, to successResolution
	lastFailure atomic.Int64
	failure     atomic.Pointer[Failure] // the error that callers get while the breaker is open

	mu     sync.Mutex                                 // held while the breaker opens, stays open or closes
	notify func(ctx context.Context, failed *Failure) // failed is nil if the breaker has closed
}

// allows reports whether a request may be sent now, and whether it is a probe.
func (b *breaker) allows(now time.Duration) (allowed, probe bool) {
	until := b.until.Load()
	if until == 0 {
		return true, false
	}
	probe = now >= time.Duration(until) && b.until.CompareAndSwap(until, int64(now+RecoveryDelay))
	return probe, probe
}

// isDue reports whether the breaker is closed, or a probe may be sent.
func (b *breaker) isDue(now time.Duration) bool {
	until := b.until.Load()
	return until == 0 || now >= time.Duration(until)
}

// probeSoon lets the next request probe if the breaker is open.
func (b *breaker) probeSoon(now time.Duration) {
	if until := b.until.Load(); until != 0 {
		b.until.CompareAndSwap(until, max(1, int64(now)))
	}
}

func (b *breaker) isOpen() bool { return b.until.Load() != 0 }

// err returns the error for callers while the breaker is open.
func (b *breaker) err() error { return b.failure.Load() }

// breakerOpen is the cause of that error. It does not match the error of the call that failed last,
// because that was another call.
type breakerOpen struct{ last error }

func (o *breakerOpen) Error() string {
	return fmt.Sprintf("the circuit breaker is open, with the next probe within %v; last error: %v", RecoveryDelay, o.last)
}

// record updates the breaker with the outcome of a request. It counts failures of Redis, but not a
// request that its caller ended, one that the script refused, or one that a test makes fail.
func (b *breaker) record(ctx context.Context, began, now time.Duration, err error) {
	if isWell(err) {
		b.succeeded(ctx, now)
		return
	}
	certain := isAnswer(err) || notRun(err)
	switch {
	case errors.Is(err, ErrOnPurpose):
	case !certain && ctx.Err() != nil && !IsExpired(err):
	default:
		b.failed(ctx, began, now, err, !certain && !waitedInFull(err))
	}
}

func (b *breaker) succeeded(ctx context.Context, now time.Duration) {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
	if now-time.Duration(b.lastSuccess.Load()) > successResolution {
		b.lastSuccess.Store(int64(now))
	}
	if b.isOpen() {
		b.set(ctx, 0, nil)
	}
}

// failed counts a failure. It ignores a request that started before the last success, because it
// proves nothing new. It also ignores one that fails together with others, because its connection
// broke or it waited only as long as its caller could, if it started before the last failure or
// within sameCut of it: connections that break at once, and a short stall of Redis, are one
// failure.
func (b *breaker) failed(ctx context.Context, began, now time.Duration, err error, together bool) {
	last := b.lastFailure.Load()
	if int64(began) < b.lastSuccess.Load() || together && last != 0 && int64(began) < last+int64(sameCut) {
		return
	}
	if !b.lastFailure.CompareAndSwap(last, int64(now)) && together {
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

// stays records that a probe has failed.
func (b *breaker) stays(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isOpen() {
		b.notify(ctx, b.failure.Load())
	}
}

// set opens the breaker until a time, or closes it, and calls notify.
func (b *breaker) set(ctx context.Context, until int64, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	opens := until != 0
	if b.isOpen() == opens {
		return // another request was first
	}
	var failure *Failure
	if opens {
		failure = &Failure{Name: b.name, Counted: ErrOutage, Cause: &breakerOpen{cause}}
		b.failure.Store(failure)
	}
	b.until.Store(until)
	b.notify(ctx, failure)
}
