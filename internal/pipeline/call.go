package pipeline

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"
)

// A call is a caller that waits for its requests: for one, or in Rounds for many. It can leave at
// any time.
type call struct {
	conn     *Connection
	pipeline *Pipeline
	ctx      context.Context
	timeout  time.Duration // negative: it never passes
	patience patience
	requests []*Request
	done     chan *Request // requests whose batch is done; nil when the timeout has passed

	waiting int   // number of requests that are not settled
	crowd   int64 // number of callers that were waiting when it started, including this one
	began   time.Duration
	end     time.Duration // when the caller leaves, as far as known
	timer   *time.Timer   // sends nil to done at the end
	timed   bool          // the timer is running, or may have fired
	left    bool          // the caller left requests behind, which a sender may still hold

	retries retries
	single  Request // of NewRequest; unused if the call is for several
}

// newCall returns a call for some requests.
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

// free makes a single call available for reuse, unless a sender or the timer may still hold a part
// of it.
func (c *call) free() {
	if c.left || c.timed {
		return
	}
	c.ctx, c.pipeline, c.single = nil, nil, Request{call: c}
	c.conn.calls.Put(c)
}

// start computes when the caller leaves. The slot ranges of the requests must be known.
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

// weight returns how many callers the call counts as. Many requests of one caller cost this process
// less than the same number from many callers.
func (c *call) weight() int64 { return int64(1 + len(c.requests)/16) }

// endBy sets when the caller leaves, and starts the timer for it unless the context ends the wait.
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

// allows reports whether a request of a known slot range may be queued. Otherwise it settles the
// request.
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

// wait waits until all requests are settled, the timeout passes, or the context ends.
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

// causeOfEnd returns why the caller leaves when its context has ended. If the deadline has passed
// and Redis is silent, that is a failure, even if the timer came late or found that others got
// replies.
func (c *call) causeOfEnd() error {
	err := c.ctx.Err()
	if c.patience.least > 0 && err == context.DeadlineExceeded {
		if c.patience = c.patience.atDeadline(); c.isFailing() {
			return c.patience.expired()
		}
	}
	return err
}

// isFailing reports whether it is a failure that the call has no replies when its patience ends: a
// request did not run before, or Redis has been silent for too long. It first yields to other
// callers: if there are many, the call is late, and replies may only have been noticed late.
func (c *call) isFailing() bool {
	runtime.Gosched()
	now := c.conn.elapsed()
	least := c.patience.leastWhen(now - c.began)
	return c.retries.begun() || slices.ContainsFunc(c.requests, func(r *Request) bool { return r.isUnanswered(now, least) })
}

// receive takes the outcome of a request from its sender. It retries a request that certainly did
// not run, while there is time. It does not retry a probe, because a caller would wait for the
// whole timeout each second, although the server refuses connections at once.
func (c *call) receive(r *Request) {
	r.state.Store(idle)
	if r.cause != nil && !r.probe && notRun(r.cause) && c.retriesLater(r) {
		return
	}
	c.settle(r, r.doneAt)
}

// settle records the outcome of a request in the circuit breaker, and sets its error.
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

// leave settles all requests that are not settled. Those that no sender has taken were certainly
// not sent. If such a request was sent before and did not run, its error says why.
func (c *call) leave(cause error) {
	now := c.conn.elapsed()
	for _, r := range c.retries.take() {
		c.settle(r, now)
	}
	for _, r := range c.requests { // before abandoning a sent one, since another sender may then take what is queued
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
	for c.waiting > 0 { // these arrived just now
		if r := <-c.done; r != nil {
			r.state.Store(idle)
			c.settle(r, now)
		}
	}
}

// abandon settles a request that is in a batch. It may still run.
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
