package send

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/health"
)

// A waiter is the state of a caller that waits for its request. The caller can leave at any time.
type waiter struct {
	ctx     context.Context
	timeout time.Duration // no timeout if negative
	began   time.Duration
	probes  bool          // the request finds out whether Redis replies again
	end     time.Duration // when the caller will leave, as far as is known
	early   bool          // end is shortly before the context's deadline, because that comes before the timeout
	timer   *time.Timer   // sends false to the request's done
	timed   bool          // the timer is running, or may have fired
	settled bool          // the request has its outcome

	retries retries
}

// While Redis hangs, requests whose callers have left accumulate. Once a limiter has maxAbandoned such
// requests to a master, and that has been silent for hangTime, no more requests are sent.
const (
	maxAbandoned = 4096
	hangTime     = 500 * time.Millisecond
)

var errTooMany = &connection.UnsentError{
	Cause: fmt.Errorf("%d requests are in flight whose callers have left", maxAbandoned), Reason: connection.ReasonTimeout,
}

// isRefused reports whether the request is not sent because too many others were abandoned. That is
// a failure, and isRefused sets the error.
func (r *Request) isRefused() bool {
	if r.shard.abandoned.Load() < maxAbandoned || r.shard.lane.queue.silence.lasts(r.began) < hangTime {
		return false
	}
	r.failed(r.began, errTooMany)
	r.Err = health.FailureOf(r.name(), health.ErrOutage, errTooMany)
	return true
}

// isSilent reports whether Redis has been silent for the timeout at the time now.
func (r *Request) isSilent(now time.Duration) bool {
	return r.timeout >= 0 && r.shard.lane.queue.silence.lasts(now) >= r.timeout
}

// setEnd computes when the caller will leave: when the timeout has passed, or a tenth before the
// context's deadline if that comes first. While Redis is silent, the caller really leaves then, so
// that there is time left to decide without Redis. Otherwise only the context ends a wait before
// the timeout: clients that choose their deadlines must not make the Fallback decide while Redis is
// healthy.
func (r *Request) setEnd() {
	r.probes = r.probe || r.isSilent(r.began)
	left := r.timeout
	if left < 0 {
		left = math.MaxInt64 / 2
	}
	r.early = false
	if deadline, dated := r.ctx.Deadline(); dated {
		if until := time.Until(deadline); until < left {
			left, r.early = until-until/10, true
		}
	}
	r.end, r.timed = r.began+left, r.timeout >= 0
	if r.early {
		r.timed = r.probes // without a probe, the context ends the wait
	}
	switch {
	case !r.timed:
	case r.timer == nil:
		r.timer = time.AfterFunc(left, func() { r.done <- false })
	default:
		r.timer.Reset(left)
	}
}

// wait waits until the request is settled, the time has passed, or the context is done.
func (r *Request) wait() {
	for !r.settled {
		select {
		case isDone := <-r.done:
			if isDone {
				r.receive()
			} else {
				r.leave(r.expired())
			}
		case <-r.retries.due:
			r.retry()
		case <-r.ctx.Done():
			r.leave(r.causeOfEnd())
		}
	}
	if r.timed && r.timer.Stop() {
		r.timed = false
	}
}

func (r *Request) expired() *health.Expired {
	return &health.Expired{After: max(0, r.end-r.began), Early: r.early}
}

// causeOfEnd returns why the caller leaves when its context is done. A deadline that has passed is a
// failure if the call is a probe, whose timer is late, or if Redis has become silent.
func (r *Request) causeOfEnd() error {
	err := r.ctx.Err()
	if r.early && err == context.DeadlineExceeded && (r.probes || r.isSilent(r.office.conn.Elapsed())) {
		return r.expired()
	}
	return err
}

// receive handles the outcome of the request. It retries a request that certainly did not run, if
// there is time. It does not retry a probe: if a server refuses connections immediately, one caller
// each second would then wait for the whole timeout.
func (r *Request) receive() {
	r.state.Store(idle)
	if r.cause == nil || r.probe || !connection.NotRun(r.cause) || !r.retriesLater() {
		r.settle(r.doneAt)
	}
}

// settle records the outcome of the request in the circuit breakers, and sets its error.
func (r *Request) settle(now time.Duration) {
	r.settled = true
	if !r.IsApart() {
		for s := range r.shards {
			s.Record(r.ctx, r.began, now, r.cause)
		}
	} else if r.probe {
		r.probeSoon(now)
	}
	if r.cause != nil {
		r.Err = r.Explain(r.cause)
	}
}

// leave settles the request although its outcome is not known. A request that no sender has taken was
// certainly not sent. If it was sent before but did not run, its error states why.
func (r *Request) leave(cause error) {
	now := r.office.conn.Elapsed()
	switch {
	case r.retries.stop():
	case r.state.CompareAndSwap(queued, left):
		r.shard.lane.queue.forget(&r.shard.lane)
		if r.cause == nil {
			r.settleUnsent(now, cause)
			return
		}
	case r.state.CompareAndSwap(sent, left): // it may still run
		r.shard.abandoned.Add(1)
		r.batch.abandon()
		r.cause = cause
	default: // the outcome has just arrived
		for isDone := false; !isDone; {
			isDone = <-r.done
		}
		r.state.Store(idle)
	}
	r.settle(now)
}

// settleUnsent settles a request that was never sent.
func (r *Request) settleUnsent(now time.Duration, cause error) {
	r.settled = true
	var late *health.Expired
	if errors.As(cause, &late) {
		r.failed(now, cause)
		r.Err = health.FailureOf(r.name(), health.ErrOutage, &health.Expired{After: late.After, Early: late.Early, Unsent: true})
		return
	}
	if r.Err = health.NotSent(cause); r.probe {
		r.probeSoon(now)
	}
}
