package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// patience is how long a caller waits for Redis: for the timeout, or until the deadline of its
// context. If the deadline comes first, the caller checks shortly before the deadline whether Redis
// is silent. If it is, the caller leaves, so that there is still time to decide without Redis. The
// check is a tenth of the caller's time before the deadline, but at least minMargin and at most
// maxMargin. A caller does not check if it has less than minPatience, or too little time for a
// silence to count as a failure. Otherwise clients that choose their deadlines could make the
// Fallback decide although Redis is healthy.
type patience struct {
	left  time.Duration // time until the caller leaves, or checks
	timed bool          // a timer ends the wait, not the context
	early bool          // the wait ends before the context's deadline, if Redis is silent
	over  bool          // the deadline has passed

	deadline time.Duration // time until the context's deadline, if early
	least    time.Duration // how long a silence must last, if early
}

const (
	minMargin   = time.Millisecond
	maxMargin   = 20 * time.Millisecond
	minPatience = 5 * time.Millisecond
)

// newPatience returns the patience of a call with the given context and timeout. A negative timeout
// means no timeout. A silence counts as a failure once it has lasted for least; so far it has
// lasted for silent.
func newPatience(ctx context.Context, timeout, least, silent time.Duration) patience {
	deadline, dated := ctx.Deadline()
	if !dated {
		return until(timeout, math.MaxInt64/2)
	}
	left := time.Until(deadline)
	early := left - min(max(left/10, minMargin), maxMargin)
	if timeout >= 0 && timeout <= early || early < max(minPatience, least-silent) {
		return until(timeout, left)
	}
	return patience{left: early, timed: true, early: true, deadline: left, least: least}
}

// until returns the patience of a call that waits until timeout or deadline has passed, whichever
// is sooner. If there is no deadline, the given deadline is very long.
func until(timeout, deadline time.Duration) patience {
	if timeout >= 0 && (timeout <= deadline || deadline <= 0) { // the context may not be done yet although its deadline has passed
		return patience{left: timeout, timed: true}
	}
	return patience{left: deadline}
}

// timer starts a timer that ends the wait. It returns the timer's channel, and a function that
// stops the timer. If no timer ends the wait, the channel is nil.
func (p patience) timer() (over <-chan time.Time, stop func()) {
	if !p.timed {
		return nil, func() {}
	}
	t := time.NewTimer(p.left)
	return t.C, func() { t.Stop() }
}

// later returns the patience of a call that checked early and found that Redis is not silent.
func (p patience) later(timeout time.Duration) patience {
	later := until(timeout, p.deadline)
	later.deadline, later.least = p.deadline, p.least
	return later
}

// atDeadline returns the patience of a call whose deadline has passed.
func (p patience) atDeadline() patience {
	p.left, p.timed, p.early, p.over = p.deadline, false, true, true
	return p
}

// leastWhen returns how long a silence must have lasted to count as a failure, if the patience
// ended after elapsed. If it ended late, the process is so busy that it also notices replies late.
func (p patience) leastWhen(elapsed time.Duration) time.Duration {
	return p.least + slowness*(elapsed-p.left)
}

// expired is the cause of a failure if the caller's patience ended.
type expired struct {
	after  time.Duration
	early  bool // the patience ended because of the context's deadline
	over   bool // the context's deadline has passed
	unsent bool
}

// expired returns the cause of a failure after the patience has ended.
func (p patience) expired() *expired { return &expired{after: p.left, early: p.early, over: p.over} }

func (e *expired) Error() string {
	what, why := "no reply", "the timeout"
	if e.unsent {
		what = "it was not sent"
	}
	switch {
	case e.over:
		why = "by the deadline of the context"
	case e.early:
		why = "shortly before the deadline of the context"
	}
	return fmt.Sprintf("%s within %v, %s", what, Rounded(e.after), why)
}

// Is reports whether target is context.DeadlineExceeded and the context's deadline is the cause.
func (e *expired) Is(target error) bool { return e.early && target == context.DeadlineExceeded }

// Timeout returns true, as it does for the timeout errors of package net.
func (e *expired) Timeout() bool { return true }

// IsExpired reports whether err means that a caller's patience ended, and not that the caller left.
func IsExpired(err error) bool {
	var e *expired
	return errors.As(err, &e)
}

// waitedInFull reports whether err means that a caller waited for the whole timeout.
func waitedInFull(err error) bool {
	var e *expired
	return errors.As(err, &e) && !e.early
}
