package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/window"
)

// The values of Outage in a configuration.
const (
	failOpen   = "open"
	failClosed = "closed"
)

// checkOutage returns an error if outage is neither FailOpen nor FailClosed. The error names the
// configured type.
func checkOutage(name, outage string) error {
	if outage != failOpen && outage != failClosed {
		return fmt.Errorf("slidegate: %s has the Outage %q; choose %q to let calls pass while a limiter gives no answer, or %q to refuse them", name, outage, failOpen, failClosed)
	}
	return nil
}

// A state is what decides requests. Higher states are worse. The log follows from a state to a
// worse one immediately, and to a better one after logDelay.
type state = int32

const (
	normal   state = iota // the limiter decides
	degraded              // the Fallback decides
	failing               // nothing decides
)

// logDelay is the time for which a state must not have occurred before a better state is
// logged. While one shard of a cluster is down and the others are up, both states alternate in
// quick succession.
const logDelay = 5 * time.Second

// Outages decides what happens to requests while their limiter does not answer, and logs once that
// an outage starts or ends. It is safe for concurrent use.
type Outages struct {
	// Set before use.
	Outage  string // what happens to requests in an outage; only with FailOpen do they proceed
	Request string // what Fail calls a request in the log: "request" or "call"
	Log     *slog.Logger

	logged atomic.Int32 // the last state that was logged; changes only while mu is held

	mu      sync.Mutex
	seen    time.Time // when the logged state last occurred
	limiter string    // the name of the limiter that did not answer, or ""
}

// Record records what decided a request: the Fallback if byFallback is set, nothing if there is
// only a cause, and the limiter otherwise. The cause is why the limiter did not decide. Record logs
// a change.
func (o *Outages) Record(byFallback bool, cause error) {
	now := normal
	switch {
	case byFallback:
		now = degraded
	case cause != nil:
		now = failing
	}
	if now == normal && o.logged.Load() == normal {
		return
	}
	failure := health.FailureIn(cause)
	changed, limiter := o.change(now, failure)
	if !changed {
		return
	}
	log := o.Log
	if limiter != "" {
		log = log.With("limiter", limiter)
	}
	if failure != nil {
		cause = failure // without the request's key, because an outage concerns all keys
	}
	switch now {
	case degraded:
		log.Warn("slidegate: the limiter's Fallback decides, by its own limits", "err", cause)
	case failing:
		log.Error("slidegate: the limiter cannot decide", "outage", o.Outage, "err", cause)
	default:
		log.Info("slidegate: the limiter decides again")
	}
}

// change records that the state now has occurred, with the given failure or nil. It reports whether
// to log it as a change, and the name of the limiter that does not answer, or did not.
func (o *Outages) change(now state, failure *health.Failure) (changed bool, limiter string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	logged := o.logged.Load()
	if now < logged && time.Since(o.seen) < logDelay {
		return false, ""
	}
	if now != normal {
		o.seen = time.Now()
	}
	o.logged.Store(now)
	if failure != nil {
		o.limiter = failure.Name
	}
	return now != logged, o.limiter
}

// Fail handles an error of the limiter, and reports whether the request proceeds nevertheless. It
// logs an outage once, and an error that concerns a single key each time.
func (o *Outages) Fail(err error) (proceeds bool) {
	if health.IsOutage(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrChoose) {
		o.Record(false, err)
	} else {
		o.Log.Error("slidegate: a "+o.Request+" got no decision", "outage", o.Outage, "err", err)
	}
	return o.Outage == failOpen
}

// Tolerate returns nil if a request may proceed, given the error err of a limiter at which it
// waited for a place or a turn. Otherwise it returns err. It checks for an outage before it checks
// for a deadline, because a network timeout also matches context.DeadlineExceeded.
func (o *Outages) Tolerate(ctx context.Context, err error) error {
	isOutage := health.IsOutage(err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, !isOutage && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, window.ErrEmptyEvent)):
		return err // the error concerns the request, not Redis
	case o.Fail(err):
		return nil
	}
	return err
}
