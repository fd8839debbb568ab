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

// A caller waits for its request. It can leave at any time.
type caller struct {
	office  *office
	request Request
	ctx     context.Context
	timeout time.Duration // no timeout if negative
	done    chan bool     // receives true when the request's batch is done, and false when the time in end has come

	began   time.Duration
	waiting bool          // the request has not been settled
	probes  bool          // the request finds out whether Redis replies again
	end     time.Duration // when the caller will leave, as far as is known
	early   bool          // end is shortly before the context's deadline, because that comes before the timeout
	timer   *time.Timer   // sends false to done
	timed   bool          // the timer is running, or may have fired
	left    bool          // the caller has left, and a sender may still hold the request

	retries retries
}

// newCaller returns an unused caller.
func (o *office) newCaller() *caller {
	if c, _ := o.callers.Get().(*caller); c != nil {
		return c
	}
	c := &caller{office: o, done: make(chan bool, 2)}
	c.request.caller = c
	return c
}

// free makes the caller available for reuse, unless a sender or the timer may still refer to it.
func (c *caller) free() {
	if c.left || c.timed {
		return
	}
	c.ctx, c.request = nil, Request{caller: c}
	c.office.callers.Put(c)
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
func (c *caller) isRefused() bool {
	r := &c.request
	if r.shard.abandoned.Load() < maxAbandoned || r.shard.lane.queue.silence.lasts(c.began) < hangTime {
		return false
	}
	r.failed(c.began, errTooMany)
	r.Err = health.FailureOf(r.name(), health.ErrOutage, errTooMany)
	return true
}

// isSilent reports whether Redis has been silent for the timeout at the time now.
func (c *caller) isSilent(now time.Duration) bool {
	return c.timeout >= 0 && c.request.shard.lane.queue.silence.lasts(now) >= c.timeout
}

// setEnd computes when the caller will leave: when the timeout has passed, or a tenth before the
// context's deadline if that comes first. While Redis is silent, the caller really leaves then, so
// that there is time left to decide without Redis. Otherwise only the context ends a wait before
// the timeout: clients that choose their deadlines must not make the Fallback decide while Redis is
// healthy.
func (c *caller) setEnd() {
	c.probes = c.request.probe || c.isSilent(c.began)
	left := c.timeout
	if left < 0 {
		left = math.MaxInt64 / 2
	}
	c.early = false
	if deadline, dated := c.ctx.Deadline(); dated {
		if until := time.Until(deadline); until < left {
			left, c.early = until-until/10, true
		}
	}
	c.end, c.timed = c.began+left, c.timeout >= 0
	if c.early {
		c.timed = c.probes // without a probe, the context ends the wait
	}
	switch {
	case !c.timed:
	case c.timer == nil:
		c.timer = time.AfterFunc(left, func() { c.done <- false })
	default:
		c.timer.Reset(left)
	}
}

// wait waits until the request is settled, the time has passed, or the context is done.
func (c *caller) wait() {
	for c.waiting {
		select {
		case isDone := <-c.done:
			if isDone {
				c.receive()
			} else {
				c.leave(c.expired())
			}
		case <-c.retries.due:
			c.retry()
		case <-c.ctx.Done():
			c.leave(c.causeOfEnd())
		}
	}
	if c.timed && c.timer.Stop() {
		c.timed = false
	}
}

func (c *caller) expired() *health.Expired {
	return &health.Expired{After: max(0, c.end-c.began), Early: c.early}
}

// causeOfEnd returns why the caller leaves when its context is done. A deadline that has passed is a
// failure if the call is a probe, whose timer is late, or if Redis has become silent.
func (c *caller) causeOfEnd() error {
	err := c.ctx.Err()
	if c.early && err == context.DeadlineExceeded && (c.probes || c.isSilent(c.office.conn.Elapsed())) {
		return c.expired()
	}
	return err
}

// receive handles the outcome of the request. It retries a request that certainly did not run, if
// there is time. It does not retry a probe: if a server refuses connections immediately, one caller
// each second would then wait for the whole timeout.
func (c *caller) receive() {
	r := &c.request
	r.state.Store(idle)
	if r.cause == nil || r.probe || !connection.NotRun(r.cause) || !c.retriesLater() {
		c.settle(r.doneAt)
	}
}

// settle records the outcome of the request in the circuit breakers, and sets its error.
func (c *caller) settle(now time.Duration) {
	r := &c.request
	c.waiting = false
	if !r.IsApart() {
		for s := range r.shards {
			s.Record(c.ctx, c.began, now, r.cause)
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
func (c *caller) leave(cause error) {
	r, now := &c.request, c.office.conn.Elapsed()
	switch {
	case c.retries.stop():
	case r.state.CompareAndSwap(queued, left):
		c.left = true
		r.shard.lane.queue.forget(&r.shard.lane)
		if r.cause == nil {
			c.settleUnsent(now, cause)
			return
		}
	case r.state.CompareAndSwap(sent, left): // it may still run
		c.left = true
		r.shard.abandoned.Add(1)
		r.batch.abandon()
		r.cause = cause
	default: // the outcome has just arrived
		for isDone := false; !isDone; {
			isDone = <-c.done
		}
		r.state.Store(idle)
	}
	c.settle(now)
}

// settleUnsent settles a request that was never sent.
func (c *caller) settleUnsent(now time.Duration, cause error) {
	r := &c.request
	c.waiting = false
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
