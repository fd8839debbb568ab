package send

import (
	"errors"
	"time"

	"github.com/slidegate/slidegate/internal/connection"
)

// The timing of retries. Only requests that certainly did not run are retried.
const (
	minBackoff   = 5 * time.Millisecond  // before the first retry; doubled for each further one
	maxBackoff   = 40 * time.Millisecond // the longest backoff
	maxRetryTime = time.Second           // how long after its start a call may still retry
)

// retries holds a caller's state for retries.
type retries struct {
	backoff time.Duration    // the next backoff
	sentAt  time.Duration    // when the caller last sent the request
	slowest time.Duration    // the longest time until the request turned out not to have run
	timer   *time.Timer      // created on first use
	due     <-chan time.Time // receives when the backoff ends; nil while there is nothing to retry
}

// begin resets t for a caller that starts at the time now.
func (t *retries) begin(now time.Duration) {
	t.backoff, t.sentAt, t.slowest = minBackoff, now, 0
}

// retriesLater reports whether the request, which did not run, will be sent again. If so, it starts
// the backoff. On a closed Connection, nothing is sent again.
func (r *Request) retriesLater() bool {
	t := &r.retries
	again := r.doneAt + t.backoff
	t.slowest = max(t.slowest, r.doneAt-t.sentAt)
	if errors.Is(r.cause, connection.ErrClosed) || again-r.began > maxRetryTime || !r.hasTime(again) || !r.mayWait(again) {
		return false
	}
	t.start()
	return true
}

// hasTime reports whether a retry that starts at the time at can be expected to end before the
// caller leaves. If a retry got no reply, an outcome that is now certain would become uncertain.
func (r *Request) hasTime(at time.Duration) bool {
	return r.end-at >= max(min((r.end-r.began)/4, maxBackoff), 2*r.retries.slowest)
}

// start starts the backoff before the next retry.
func (t *retries) start() {
	if t.timer == nil {
		t.timer = time.NewTimer(t.backoff)
	} else {
		t.timer.Reset(t.backoff)
	}
	t.due, t.backoff = t.timer.C, min(2*t.backoff, maxBackoff)
}

// stop cancels the retry, and reports whether the request was waiting for one.
func (t *retries) stop() bool {
	if t.due == nil {
		return false
	}
	t.timer.Stop()
	t.due = nil
	return true
}

// retry sends the request again. If there is no time left, or another request has opened the
// circuit breaker, it settles the request instead.
func (r *Request) retry() {
	now := r.office.conn.Elapsed()
	r.retries.due, r.retries.sentAt = nil, now
	if r.shard.IsOpen() || !r.hasTime(now) {
		r.settle(now)
	} else {
		r.shard.lane.queue.put(r)
	}
}
