package pipeline

import (
	"context"
	"time"
)

// A call is a caller that waits for its requests: for one, or in Rounds for many. It can leave at
// any time.
type call struct {
	conn     *Connection
	pipeline *Pipeline
	ctx      context.Context
	patience patience
	requests []*Request
	done     chan *Request // requests whose batch is done; nil when the timeout has passed

	waiting int // how many requests are not settled
	began   time.Duration
	end     time.Duration // when the caller leaves
	timer   *time.Timer   // sends nil to done when the timeout has passed
	timed   bool          // the timer runs, or may have sent
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

// free makes a single call available for other uses, unless a sender or the timer may still hold a
// part of it.
func (c *call) free() {
	if c.left || c.timed {
		return
	}
	c.ctx, c.pipeline, c.single = nil, nil, Request{call: c}
	c.conn.calls.Put(c)
}

// start computes when the caller leaves, and starts the timer for it unless the context ends the
// wait. The slot ranges of the requests must be known.
func (c *call) start(ctx context.Context, p *Pipeline, timeout time.Duration) {
	c.ctx, c.pipeline, c.began = ctx, p, c.conn.elapsed()
	c.retries.begin(c.began)
	var usual time.Duration
	for _, r := range c.requests {
		usual = max(usual, p.ranges[r.Trace.SlotRange].usually())
	}
	c.patience = newPatience(ctx, timeout, usual)
	c.end = c.began + c.patience.left
	if c.patience.timed {
		c.startTimer()
	}
}

func (c *call) startTimer() {
	if c.timed = true; c.timer == nil {
		c.timer = time.AfterFunc(c.patience.left, func() { c.done <- nil })
	} else {
		c.timer.Reset(c.patience.left)
	}
}

// allows reports whether a request of a known slot range may be queued. Otherwise it settles the
// request.
func (c *call) allows(r *Request) bool {
	p, i := c.pipeline, r.Trace.SlotRange
	r.began, r.slots, r.lane = c.began, &p.ranges[i], &p.lanes[c.conn.queueOf(i)]
	allowed, probe := r.slots.allows(c.began)
	switch {
	case !allowed:
		r.Err = r.slots.err()
	case r.slots.abandoned.Load() >= maxAbandoned:
		r.Err = errTooMany
	default:
		r.probe = probe
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
			if r == nil {
				c.leave(&expired{c.patience, false})
			} else {
				c.receive(r)
			}
		case <-c.retries.due:
			c.retry()
		case <-c.ctx.Done():
			c.leave(c.ctx.Err())
		}
	}
	if c.timed && c.timer.Stop() {
		c.timed = false
	}
	c.retries.stop()
}

// receive takes the outcome of a request from its sender. It retries a request that certainly did
// not run, while there is time.
func (c *call) receive(r *Request) {
	r.state.Store(idle)
	if r.cause != nil && notRun(r.cause) && c.retriesLater(r) {
		return
	}
	c.settle(r, r.doneAt)
}

// settle records the outcome of a request in the circuit breaker, and sets its error.
func (c *call) settle(r *Request, now time.Duration) {
	c.waiting--
	r.slots.record(c.ctx, r.began, now, r.cause)
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
	for _, r := range c.requests { // before a sent one is abandoned, since another sender may then take what is queued
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
	for c.waiting > 0 { // these came just now
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
	switch {
	case r.cause != nil:
		c.settle(r, now)
	case c.ctx.Err() != nil: // even if the timer came first
		c.waiting--
		r.Err = NotSent(c.ctx.Err())
	default:
		c.waiting--
		r.slots.failed(c.ctx, r.began, now, cause, !waitedInFull(cause))
		r.Err = failureOf(r.Key, ErrOutage, &expired{c.patience, true})
	}
}
