package pipeline

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"
)

// A call represents a caller that waits for one request or, in Rounds, for many. The caller can
// leave at any time.
type call struct {
	conn     *Connection
	pipeline *Pipeline
	ctx      context.Context
	timeout  time.Duration // no timeout if negative
	patience patience
	requests []*Request
	done     chan *Request // receives each request whose batch is done, and nil when the timeout has passed

	waiting int   // number of requests that have not been settled
	crowd   int64 // number of callers that were waiting when this call started, including this one
	began   time.Duration
	end     time.Duration // when the caller will leave, as far as is known
	timer   *time.Timer   // sends nil to done at the time in end
	timed   bool          // the timer is running, or may have fired
	left    bool          // the caller has left requests that a sender may still hold

	retries retries
	single  Request // for NewRequest; unused if the call has several requests
}

// newCall returns a call for the given requests.
func (c *Connection) newCall(requests []*Request) *call {
	of := &call{conn: c, requests: requests, done: make(chan *Request, len(requests)+1)}
	for _, r := range requests {
		r.call = of
	}
	return of
}

// singleCall returns an unused call for one request.
func (c *Connection) singleCall() *call {
	if of, _ := c.calls.Get().(*call); of != nil {
		return of
	}
	of := &call{conn: c, done: make(chan *Request, 2)}
	of.requests, of.single.call = []*Request{&of.single}, of
	return of
}

// free makes a call for one request available for reuse, unless a sender or the timer may still
// refer to it.
func (c *call) free() {
	if c.left || c.timed {
		return
	}
	c.ctx, c.pipeline, c.single = nil, nil, Request{call: c}
	c.conn.calls.Put(c)
}

// start starts the call, and computes when its caller will leave. The slot ranges of the requests
// must be set.
func (c *call) start(ctx context.Context, p *Pipeline, timeout time.Duration) {
	c.ctx, c.pipeline, c.timeout, c.began = ctx, p, timeout, c.conn.elapsed()
	c.retries.begin(c.began)
	c.crowd = c.conn.callers.Add(c.weight())
	var least, silent time.Duration
	if _, dated := ctx.Deadline(); dated {
		for _, r := range c.requests {
			s := &p.laneOf(r.Trace.SlotRange).queue.silence
			least, silent = max(least, s.least()), max(silent, s.lasts(c.began))
		}
	}
	c.endBy(newPatience(ctx, timeout, least, silent))
}

// weight returns how many callers the call counts as. Requests from one caller cost this process
// less than the same number of requests from many callers.
func (c *call) weight() int64 { return int64(1 + len(c.requests)/16) }

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

// allows reports whether r may be queued. If not, it sets the error of r. The slot range of r must
// be set.
func (c *call) allows(r *Request) bool {
	p, i := c.pipeline, r.Trace.SlotRange
	r.began, r.slots, r.lane = c.began, &p.ranges[i], p.laneOf(i)
	switch {
	case !r.isAllowed():
	case r.slots.abandoned.Load() >= maxAbandoned && r.lane.queue.isSilent(c.began, maxSilence, maxAbandoned):
		r.failed(c.began, errTooMany.Cause, true)
		r.Err = errTooMany
	default:
		c.waiting++
		return true
	}
	return false
}

// wait waits until all requests are settled, the timeout passes, or the context is done.
func (c *call) wait() {
	for c.waiting > 0 {
		select {
		case r := <-c.done:
			switch {
			case r != nil:
				c.receive(r)
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
	c.conn.callers.Add(-c.weight())
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

// isFailing reports whether Redis has failed, given that the caller's patience has ended and
// replies are missing. That is so if a request did not run when it was sent before, or if Redis has
// been silent for too long. isFailing first yields to other goroutines: in a busy process, replies
// may have arrived that have not been noticed yet.
func (c *call) isFailing() bool {
	runtime.Gosched()
	now := c.conn.elapsed()
	least := c.patience.leastWhen(now - c.began)
	return c.retries.begun() || slices.ContainsFunc(c.requests, func(r *Request) bool { return r.isUnanswered(now, least) })
}

// receive handles the outcome of a request. It retries a request that certainly did not run, if
// there is time. It does not retry a probe: if a server refuses connections immediately, one caller
// each second would then wait for the whole timeout.
func (c *call) receive(r *Request) {
	r.state.Store(idle)
	if r.cause != nil && !r.probe && notRun(r.cause) && c.retriesLater(r) {
		return
	}
	c.settle(r, r.doneAt)
}

// settle records the outcome of r in the circuit breakers, and sets the error of r.
func (c *call) settle(r *Request, now time.Duration) {
	c.waiting--
	for slots := range r.ranges {
		switch {
		case !r.IsApart():
			slots.record(c.ctx, r.began, now, r.cause)
		case r.probe:
			slots.probeSoon(now)
		}
	}
	if r.cause != nil {
		r.Err = r.Explain(r.cause)
	}
}

// leave settles all remaining requests. A request that no sender has taken was certainly not sent.
// If it was sent before but did not run, its error states why.
func (c *call) leave(cause error) {
	now := c.conn.elapsed()
	for _, r := range c.retries.take() {
		c.settle(r, now)
	}
	for _, r := range c.requests { // before any sent request is abandoned, since a new sender would then take the queued ones
		if r.state.CompareAndSwap(queued, left) {
			c.left = true
			r.lane.queue.forget(r.lane)
			c.settleUnsent(r, now, cause)
		}
	}
	for _, r := range c.requests {
		if r.state.CompareAndSwap(sent, left) {
			c.abandon(r, now, cause)
		}
	}
	for c.waiting > 0 { // the outcomes of these requests have just arrived
		if r := <-c.done; r != nil {
			r.state.Store(idle)
			c.settle(r, now)
		}
	}
}

// abandon settles a request that is in a batch, and that may still run.
func (c *call) abandon(r *Request, now time.Duration, cause error) {
	c.left = true
	r.slots.abandoned.Add(1)
	r.batch.abandon()
	r.cause = cause
	c.settle(r, now)
}

// settleUnsent settles a request that no sender has taken.
func (c *call) settleUnsent(r *Request, now time.Duration, cause error) {
	var late *expired
	switch {
	case r.cause != nil:
		c.settle(r, now)
	case errors.As(cause, &late):
		c.waiting--
		r.failed(now, cause, late.early)
		r.Err = failureOf(r.name(), ErrOutage, &expired{late.after, late.early, late.over, true})
	default:
		c.waiting--
		if r.Err = NotSent(cause); r.probe {
			for slots := range r.ranges {
				slots.probeSoon(now)
			}
		}
	}
}
