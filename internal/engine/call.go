package engine

import (
	"context"
	"fmt"
	"time"
)

// A call is a caller that waits for its requests: usually for one, in AllowEach for many. It can leave at any time.
type call struct {
	ctx      context.Context
	redis    *redis
	timeout  time.Duration
	requests []*request
	done     chan *request // requests whose batch is done; nil when the time is up

	waiting int           // how many requests are not settled
	began   time.Duration // since the limiter was made, as all times here
	end     time.Duration // when the time is up
	timer   *time.Timer   // sends nil to done when the time is up
	timed   bool          // the timer runs
	left    bool          // the caller left requests behind, which a sender may still hold

	unrun      []*request       // certainly did not run, and are sent again after a pause
	pause      time.Duration    // the next one
	sentAt     time.Duration    // when requests were last sent
	slowest    time.Duration    // how long a request took that did not run
	pauseTimer *time.Timer      // made for the first pause
	pauseEnd   <-chan time.Time // nil while nothing is to be repeated

	single *request // of a call that has one
}

// Repetition of what certainly did not run.
const (
	firstPause   = 5 * time.Millisecond  // before the first repetition; doubled each time
	longestPause = 40 * time.Millisecond // up to this
	patience     = time.Second           // how long a call repeats requests
)

// newCall returns a call without requests. Free it in the end.
func (s *redis) newCall(ctx context.Context, timeout time.Duration) *call {
	c, _ := s.calls.Get().(*call)
	if c == nil {
		c = s.newCalls(1)
		c.single = &request{}
	}
	c.ctx, c.timeout, c.pause = ctx, timeout, firstPause
	return c
}

// newCalls returns a call for so many requests.
func (s *redis) newCalls(n int) *call {
	return &call{redis: s, done: make(chan *request, n+1), pause: firstPause}
}

// free keeps the call for another caller, unless a sender or the timer may still hold a part of it.
func (c *call) free() {
	stopped := !c.timed || c.timer.Stop()
	c.endPause()
	if c.left || !stopped || c.single == nil {
		return
	}
	q := c.single
	q.probe, q.batch, q.next, q.reply, q.cause, q.err = false, nil, nil, reply{}, nil, nil
	c.ctx, c.requests, c.unrun, c.timed = nil, c.requests[:0], nil, false
	c.redis.calls.Put(c)
}

// run sends the requests, and waits until all are settled, the time is up, or the context ends.
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
		case <-c.pauseEnd:
			c.repeat()
		case <-c.ctx.Done():
			c.leave(c.ctx.Err())
		}
	}
}

// start sets when the time is up, and starts the timer unless the context ends before.
func (c *call) start() {
	c.began = c.redis.elapsed()
	c.sentAt, c.slowest = c.began, 0
	c.end = c.began + c.timeout
	if c.timeout < 0 {
		c.end = c.began + time.Hour // as far as repetition goes, which is over by then
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

// admit reports whether a request may be queued. Otherwise it is settled.
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

// receive takes the outcome of a request from its sender. What certainly did not run is to be repeated, while there is time.
func (c *call) receive(q *request) {
	q.state.Store(idle)
	now := q.doneAt
	if q.cause != nil && notRun(q.cause) {
		c.slowest = max(c.slowest, now-c.sentAt)
	}
	if q.cause == nil || !notRun(q.cause) || now-c.began+c.pause > patience || !c.hasTime(now+c.pause) {
		c.settle(q, now)
		return
	}
	if c.unrun = append(c.unrun, q); len(c.unrun) == 1 {
		c.beginPause()
	}
}

// hasTime reports whether a repetition at some time can be expected to end before the time is up. One that learns nothing would
// make a certain answer uncertain.
func (c *call) hasTime(at time.Duration) bool {
	return c.end-at >= max(min((c.end-c.began)/4, longestPause), 2*c.slowest)
}

// beginPause begins the time until the next repetition.
func (c *call) beginPause() {
	if c.pauseTimer == nil {
		c.pauseTimer = time.NewTimer(c.pause)
	} else {
		c.pauseTimer.Reset(c.pause)
	}
	c.pauseEnd = c.pauseTimer.C
	c.pause = min(2*c.pause, longestPause)
}

func (c *call) endPause() {
	if c.pauseEnd != nil {
		c.pauseTimer.Stop()
		c.pauseEnd = nil
	}
}

// settle has the circuit breaker learn from the outcome of a request, and says what it means for the count.
func (c *call) settle(q *request, now time.Duration) {
	c.waiting--
	q.slotRange.record(c.ctx, q.began, now, q.cause)
	if q.cause != nil {
		q.err = explain(q.cause, q.key, q.verb)
	}
}

// repeat sends what did not run once more, except to slot ranges that others found to be in trouble.
func (c *call) repeat() {
	unrun, now := c.unrun, c.redis.elapsed()
	c.unrun, c.pauseEnd, c.sentAt = nil, nil, now
	for _, q := range unrun {
		if q.slotRange.isOpen() && !q.probe || !c.hasTime(now) {
			c.settle(q, now)
		} else {
			q.slotRange.put(q)
		}
	}
}

// leave settles what is not settled. What no sender has taken was certainly not sent. If such a request was sent before and did
// not run, its error says why.
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

// abandon settles a request that is in a batch. It may run.
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
