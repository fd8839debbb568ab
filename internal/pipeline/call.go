package pipeline

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// A call represents a caller that waits for its request. The caller can leave at any time.
type call struct {
	conn     *Connection
	pipeline *Pipeline
	ctx      context.Context
	timeout  time.Duration // no timeout if negative
	patience patience
	request  Request
	done     chan *Request // receives the request when its batch is done, and nil when the timeout has passed

	waiting bool          // the request has not been settled
	crowd   int64         // number of callers that were waiting when this call started, including this one
	began   time.Duration // when the call started; all times are relative to the creation of the Connection
	end     time.Duration // when the caller will leave, as far as is known
	timer   *time.Timer   // sends nil to done at the time in end
	timed   bool          // the timer is running, or may have fired
	left    bool          // the caller has left its request, which a sender may still hold

	retries retries
}

// newCall returns an unused call.
func (c *Connection) newCall() *call {
	if of, _ := c.calls.Get().(*call); of != nil {
		return of
	}
	of := &call{conn: c, done: make(chan *Request, 2)}
	of.request.call = of
	return of
}

// free makes the call available for reuse, unless a sender or the timer may still refer to it.
func (c *call) free() {
	if c.left || c.timed {
		return
	}
	c.ctx, c.pipeline, c.request = nil, nil, Request{call: c}
	c.conn.calls.Put(c)
}

// start starts the call, and computes when its caller will leave. The slot range of the request
// must be set.
func (c *call) start(ctx context.Context, p *Pipeline, timeout time.Duration) {
	c.ctx, c.pipeline, c.timeout, c.began = ctx, p, timeout, c.conn.elapsed()
	c.retries.begin(c.began)
	c.crowd = c.conn.callers.Add(1)
	var least, silent time.Duration
	if _, dated := ctx.Deadline(); dated {
		s := &p.laneOf(c.request.Trace.SlotRange).queue.silence
		least, silent = s.least(), s.lasts(c.began)
	}
	c.endBy(newPatience(ctx, timeout, least, silent))
}

// endBy sets when the caller will leave, and starts the timer, unless the context ends the wait.
func (c *call) endBy(p patience) {
	c.patience, c.end = p, c.began+p.left
	if c.timed = p.timed; !p.timed {
		return
	}
	if left := c.end - c.conn.elapsed(); c.timer == nil {
		c.timer = time.AfterFunc(left, func() { c.done <- nil })
	} else {
		c.timer.Reset(left)
	}
}

// allows reports whether the request may be queued. If not, it sets the error of the request.
func (c *call) allows() bool {
	r, p := &c.request, c.pipeline
	r.slots, r.lane = &p.ranges[r.Trace.SlotRange], p.laneOf(r.Trace.SlotRange)
	switch {
	case !r.isAllowed():
	case r.slots.abandoned.Load() >= maxAbandoned && r.lane.queue.isSilent(c.began, maxSilence, maxAbandoned):
		r.failed(c.began, errTooMany.Cause, true)
		r.Err = errTooMany
	default:
		c.waiting = true
	}
	return c.waiting
}

// wait waits until the request is settled, the timeout passes, or the context is done.
func (c *call) wait() {
	for c.waiting {
		select {
		case r := <-c.done:
			switch {
			case r != nil:
				c.receive()
			case c.patience.early && !c.isFailing():
				c.endBy(c.patience.later(c.timeout))
			default:
				c.leave(c.patience.expired())
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
	c.retries.stop()
	c.conn.callers.Add(-1)
}

// causeOfEnd returns why the caller leaves when its context is done. If the deadline has passed
// while Redis is silent, that is a failure, even if the timer fired late or found that other
// callers had got replies.
func (c *call) causeOfEnd() error {
	err := c.ctx.Err()
	if c.patience.least > 0 && err == context.DeadlineExceeded {
		if c.patience = c.patience.atDeadline(); c.isFailing() {
			return c.patience.expired()
		}
	}
	return err
}

// isFailing reports whether Redis has failed, given that the caller's patience has ended and the
// reply is missing. That is so if the request did not run when it was sent before, or if Redis has
// been silent for too long. isFailing first yields to other goroutines: in a busy process, a reply
// may have arrived that has not been noticed yet.
func (c *call) isFailing() bool {
	runtime.Gosched()
	now := c.conn.elapsed()
	least := c.patience.leastWhen(now - c.began)
	return c.retries.begun() || c.request.isUnanswered(now, least)
}

// receive handles the outcome of the request. It retries a request that certainly did not run, if
// there is time. It does not retry a probe: if a server refuses connections immediately, one caller
// each second would then wait for the whole timeout.
func (c *call) receive() {
	r := &c.request
	r.state.Store(idle)
	if r.cause != nil && !r.probe && notRun(r.cause) && c.retriesLater() {
		return
	}
	c.settle(r.doneAt)
}

// settle records the outcome of the request in the circuit breakers, and sets its error.
func (c *call) settle(now time.Duration) {
	r := &c.request
	c.waiting = false
	for slots := range r.ranges {
		switch {
		case !r.IsApart():
			slots.record(c.ctx, c.began, now, r.cause)
		case r.probe:
			slots.probeSoon(now)
		}
	}
	if r.cause != nil {
		r.Err = r.Explain(r.cause)
	}
}

// leave settles the request if it is not settled yet. A request that no sender has taken was
// certainly not sent. If it was sent before but did not run, its error states why.
func (c *call) leave(cause error) {
	r, now := &c.request, c.conn.elapsed()
	switch {
	case c.retries.due != nil: // it did not run, and waits to be sent again
		c.settle(now)
	case r.state.CompareAndSwap(queued, left):
		c.left = true
		r.lane.queue.forget(r.lane)
		c.settleUnsent(now, cause)
	case r.state.CompareAndSwap(sent, left):
		c.abandon(now, cause)
	default: // its outcome has just arrived
		for r := range c.done {
			if r != nil {
				break
			}
		}
		r.state.Store(idle)
		c.settle(now)
	}
}

// abandon settles a request that is in a batch, and that may still run.
func (c *call) abandon(now time.Duration, cause error) {
	r := &c.request
	c.left = true
	r.slots.abandoned.Add(1)
	r.batch.abandon()
	r.cause = cause
	c.settle(now)
}

// settleUnsent settles a request that no sender has taken.
func (c *call) settleUnsent(now time.Duration, cause error) {
	var late *expired
	r := &c.request
	switch {
	case r.cause != nil:
		c.settle(now)
	case errors.As(cause, &late):
		c.waiting = false
		r.failed(now, cause, late.early)
		r.Err = failureOf(r.name(), ErrOutage, &expired{late.after, late.early, late.over, true})
	default:
		c.waiting = false
		if r.Err = NotSent(cause); r.probe {
			for slots := range r.ranges {
				slots.probeSoon(now)
			}
		}
	}
}
