package engine

import (
	"context"
	"fmt"
	"time"
)

// A call represents a caller that waits for its requests: usually for one, in AllowEach for many.
// It can leave at any time.
type call struct {
	ctx      context.Context
	redis    *redis
	timeout  time.Duration
	requests []*request
	done     chan *request // requests whose batch is done; nil when the timeout has passed

	waiting int           // how many requests are not settled
	began   time.Duration // since the limiter was made, as all times here
	end     time.Duration // when the timeout or the deadline of the context has passed
	timer   *time.Timer   // sends nil to done when the timeout has passed
	timed   bool          // the timer runs
	left    bool          // the caller left requests behind, which a sender may still hold

	unrun        []*request       // certainly did not run, and are retried after a backoff
	backoff      time.Duration    // the next one
	sentAt       time.Duration    // when requests were last sent
	slowest      time.Duration    // the longest time of a request that did not run
	backoffTimer *time.Timer      // made for the first backoff
	backoffEnd   <-chan time.Time // nil while there is nothing to retry

	single *request // of a call that has one
}

// Retries of requests that certainly did not run.
const (
	minBackoff   = 5 * time.Millisecond  // before the first retry; doubled each time
	maxBackoff   = 40 * time.Millisecond // the longest backoff
	maxRetryTime = time.Second           // a call does not retry for longer
)

// newCall returns a call without requests. Call free when it is done.
func (s *redis) newCall(ctx context.Context, timeout time.Duration) *call {
	c, _ := s.calls.Get().(*call)
	if c == nil {
		c = s.newCalls(1)
		c.single = &request{}
	}
	c.ctx, c.timeout, c.backoff = ctx, timeout, minBackoff
	return c
}

// newCalls returns a call for n requests.
func (s *redis) newCalls(n int) *call {
	return &call{redis: s, done: make(chan *request, n+1), backoff: minBackoff}
}

// free returns the call to the pool, unless a sender or the timer may still hold a part of it.
func (c *call) free() {
	stopped := !c.timed || c.timer.Stop()
	c.stopBackoff()
	if c.left || !stopped || c.single == nil {
		return
	}
	q := c.single
	q.probe, q.batch, q.next, q.reply, q.cause, q.err = false, nil, nil, reply{}, nil, nil
	c.ctx, c.requests, c.unrun, c.timed = nil, c.requests[:0], nil, false
	c.redis.calls.Put(c)
}

// run sends the requests, and waits until all are settled, the timeout passes, or the context ends.
func (c *call) run() {
	c.start()
	for _, q := range c.requests {
		if c.admit(q) {
			q.slotRange.put(q)
		}
	}
	for c.waiting > 0 {
		select {
		case q := <-c.done:
			if q == nil {
				c.leave(fmt.Errorf("%w within %v", errExpired, rounded(c.timeout)))
			} else {
				c.receive(q)
			}
		case <-c.backoffEnd:
			c.retry()
		case <-c.ctx.Done():
			c.leave(c.ctx.Err())
		}
	}
}

// start computes when the timeout passes, and starts the timer unless the context ends before.
func (c *call) start() {
	c.began = c.redis.elapsed()
	c.sentAt, c.slowest = c.began, 0
	c.end = c.began + c.timeout
	if c.timeout < 0 {
		c.end = c.began + time.Hour // only for retries, which have ended by then
	}
	if deadline, dated := c.ctx.Deadline(); dated {
		if end := c.began + time.Until(deadline); end <= c.end {
			c.end = end
			return
		}
	}
	if c.timeout >= 0 {
		c.startTimer()
	}
}

func (c *call) startTimer() {
	if c.timed = true; c.timer == nil {
		c.timer = time.AfterFunc(c.timeout, func() { c.done <- nil })
	} else {
		c.timer.Reset(c.timeout)
	}
}

// admit reports whether a request may be queued. Otherwise it settles the request.
func (c *call) admit(q *request) bool {
	q.call, q.began = c, c.began
	admitted, probe := q.slotRange.admit(q.began)
	switch {
	case !admitted:
		q.err = q.slotRange.err()
	case q.slotRange.abandoned.Load() >= maxAbandoned:
		q.err = errTooMany
	default:
		q.probe = probe
		c.waiting++
		return true
	}
	return false
}

// receive takes the outcome of a request from its sender. It retries a request that certainly did
// not run, while there is time.
func (c *call) receive(q *request) {
	q.state.Store(idle)
	now := q.doneAt
	if q.cause != nil && notRun(q.cause) {
		c.slowest = max(c.slowest, now-c.sentAt)
	}
	if q.cause == nil || !notRun(q.cause) || now-c.began+c.backoff > maxRetryTime || !c.hasTime(now+c.backoff) {
		c.settle(q, now)
		return
	}
	if c.unrun = append(c.unrun, q); len(c.unrun) == 1 {
		c.startBackoff()
	}
}

// hasTime reports whether a retry at some time can be expected to end before the timeout. A retry
// without a reply would make a certain answer uncertain.
func (c *call) hasTime(at time.Duration) bool {
	return c.end-at >= max(min((c.end-c.began)/4, maxBackoff), 2*c.slowest)
}

// startBackoff starts the wait before the next retry.
func (c *call) startBackoff() {
	if c.backoffTimer == nil {
		c.backoffTimer = time.NewTimer(c.backoff)
	} else {
		c.backoffTimer.Reset(c.backoff)
	}
	c.backoffEnd = c.backoffTimer.C
	c.backoff = min(2*c.backoff, maxBackoff)
}

func (c *call) stopBackoff() {
	if c.backoffEnd != nil {
		c.backoffTimer.Stop()
		c.backoffEnd = nil
	}
}

// settle records the outcome of a request in the circuit breaker, and sets its error.
func (c *call) settle(q *request, now time.Duration) {
	c.waiting--
	q.slotRange.record(c.ctx, q.began, now, q.cause)
	if q.cause != nil {
		q.err = explain(q.cause, q.key, q.verb)
	}
}

// retry resends the requests that did not run, unless another request has opened the breaker of
// their slot range.
func (c *call) retry() {
	unrun, now := c.unrun, c.redis.elapsed()
	c.unrun, c.backoffEnd, c.sentAt = nil, nil, now
	for _, q := range unrun {
		if q.slotRange.isOpen() && !q.probe || !c.hasTime(now) {
			c.settle(q, now)
		} else {
			q.slotRange.put(q)
		}
	}
}

// leave settles all requests that are not settled. Those that no sender has taken were certainly
// not sent. If such a request was sent before and did not run, its error says why.
func (c *call) leave(cause error) {
	now := c.redis.elapsed()
	for _, q := range c.unrun {
		c.settle(q, now)
	}
	c.unrun = nil
	for _, q := range c.requests { // before a sent one is abandoned, since another sender may then take what is queued
		if q.state.CompareAndSwap(queued, left) {
			c.left = true
			q.slotRange.forget()
			c.settleUnsent(q, now, cause)
		}
	}
	for _, q := range c.requests {
		if q.state.CompareAndSwap(sent, left) {
			c.abandon(q, now, cause)
		}
	}
	for c.waiting > 0 { // these came just now
		if q := <-c.done; q != nil {
			q.state.Store(idle)
			c.settle(q, now)
		}
	}
}

// abandon settles a request that is in a batch. It may still run.
func (c *call) abandon(q *request, now time.Duration, cause error) {
	c.left = true
	q.slotRange.abandoned.Add(1)
	q.batch.abandon()
	q.cause = cause
	c.settle(q, now)
}

// settleUnsent settles a request that no sender has taken.
func (c *call) settleUnsent(q *request, now time.Duration, cause error) {
	switch {
	case q.cause != nil:
		c.settle(q, now)
	case c.ctx.Err() != nil: // even if the timeout came first
		c.waiting--
		q.err = notSent(c.ctx.Err())
	default:
		c.waiting--
		q.slotRange.failed(c.ctx, q.began, now, cause, false)
		q.err = fmt.Errorf("key %s: %w: it was not sent within %v", q.key, ErrOutage, rounded(c.timeout))
	}
}
