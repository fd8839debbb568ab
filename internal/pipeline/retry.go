package pipeline

import (
	"errors"
	"time"
)

// Retries of requests that certainly did not run.
const (
	minBackoff   = 5 * time.Millisecond  // before the first retry; doubled each time
	maxBackoff   = 40 * time.Millisecond // the longest backoff
	maxRetryTime = time.Second           // a call does not retry for longer
)

// retries holds the retries of a call.
type retries struct {
	unrun   []*Request       // requests that did not run, and are sent again after the backoff
	backoff time.Duration    // the next backoff
	sentAt  time.Duration    // when requests were last sent
	slowest time.Duration    // the longest time that a request took that did not run
	timer   *time.Timer      // created for the first backoff
	due     <-chan time.Time // when the backoff ends; nil while there is nothing to retry
}

// begin prepares for a call that starts now.
func (t *retries) begin(now time.Duration) {
	t.unrun, t.backoff, t.sentAt, t.slowest = nil, minBackoff, now, 0
}

// retriesLater reports whether a request that did not run is sent again. If so, the call waits for
// the backoff first. A Connection that was closed stays closed.
func (c *call) retriesLater(r *Request) bool {
	t, now := &c.retries, r.doneAt
	t.slowest = max(t.slowest, now-t.sentAt)
	if errors.Is(r.cause, errClosed) || now-c.began+t.backoff > maxRetryTime || !c.hasTime(now+t.backoff) || !r.mayWait(now+t.backoff) {
		return false
	}
	if t.unrun = append(t.unrun, r); len(t.unrun) == 1 {
		t.start()
	}
	return true
}

// hasTime reports whether a retry at some time can be expected to end before the timeout. A retry
// without a reply would make a certain answer uncertain.
func (c *call) hasTime(at time.Duration) bool {
	return c.end-at >= max(min((c.end-c.began)/4, maxBackoff), 2*c.retries.slowest)
}

// start starts the wait before the next retry.
func (t *retries) start() {
	if t.timer == nil {
		t.timer = time.NewTimer(t.backoff)
	} else {
		t.timer.Reset(t.backoff)
	}
	t.due, t.backoff = t.timer.C, min(2*t.backoff, maxBackoff)
}

// begun reports whether a request did not run.
func (t *retries) begun() bool { return t.backoff > minBackoff }

func (t *retries) stop() {
	if t.due != nil {
		t.timer.Stop()
		t.due = nil
	}
}

// take removes and returns the requests that wait for a retry.
func (t *retries) take() []*Request {
	unrun := t.unrun
	t.unrun = nil
	return unrun
}

// retry sends requests again that did not run, unless another request has opened the breaker of the
// slot range.
func (c *call) retry() {
	now := c.conn.elapsed()
	c.retries.due, c.retries.sentAt = nil, now
	for _, r := range c.retries.take() {
		if r.slots.isOpen() || !c.hasTime(now) {
			c.settle(r, now)
		} else {
			r.lane.queue.put(r)
		}
	}
}
