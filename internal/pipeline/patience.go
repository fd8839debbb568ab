package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// patience is how long a caller waits for Redis: for the timeout, or until the deadline of its
// context. If the deadline comes first, the caller checks shortly before it whether Redis is
// silent, and then leaves, so that it can still decide without Redis: a tenth of its time before,
// from minMargin to maxMargin. A caller that has less than minPatience, or no time until a silence
// would last long enough, does not check. Otherwise clients that choose their deadlines could make
// the Fallback decide although Redis is healthy.
type patience struct {
	left  time.Duration // until the caller leaves, or checks
	timed bool          // a timer ends the wait, not the context
	early bool          // it ends before the deadline of the context, if Redis is silent
	over  bool          // the deadline has passed

	deadline time.Duration // time until the deadline of the context, if early
	least    time.Duration // how long a silence must last, if early
}

const (
	minMargin   = time.Millisecond
	maxMargin   = 20 * time.Millisecond
	minPatience = 5 * time.Millisecond
)

// newPatience returns the patience of a call with this context and timeout. A negative timeout
// never passes. least is how long a silence must last, and silent how long one has lasted.
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

// until returns the patience of a call that waits for the timeout, or until its context ends, which
// is at a deadline or never.
func until(timeout, deadline time.Duration) patience {
	if timeout >= 0 && (timeout <= deadline || deadline <= 0) { // a deadline that has passed may not have ended the context yet
		return patience{left: timeout, timed: true}
	}
	return patience{left: deadline}
}

// timer returns a channel that receives the time when a timer ends the patience, and a function
// that stops the timer.
func (p patience) timer() (over <-chan time.Time, stop func()) {
	if !p.timed {
		return nil, func() {}
	}
	t := time.NewTimer(p.left)
	return t.C, func() { t.Stop() }
}

// later returns the patience of an early call that has found Redis not silent.
func (p patience) later(timeout time.Duration) patience {
	later := until(timeout, p.deadline)
	later.deadline, later.least = p.deadline, p.least
	return later
}

// atDeadline returns the patience of an early call that is over at the deadline.
func (p patience) atDeadline() patience {
	p.left, p.timed, p.early, p.over = p.deadline, false, true, true
	return p
}

// leastWhen returns how long a silence must have lasted to be a failure when the patience ended
// after elapsed. If that is late, the process is so busy that it notices replies late, too.
func (p patience) leastWhen(elapsed time.Duration) time.Duration {
	return p.least + slowness*(elapsed-p.left)
}

// expired is the cause of a failure when the patience ended.
type expired struct {
	after  time.Duration
	early  bool // it ended because of the deadline of the context
	over   bool // that deadline has passed
	unsent bool
}

// expired returns the cause of a failure when the patience has ended.
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

// Timeout returns true: this is a timeout, as for the errors of package net.
func (e *expired) Timeout() bool { return true }

// IsExpired reports whether err says that a patience ended, as opposed to a caller that left.
func IsExpired(err error) bool {
	var e *expired
	return errors.As(err, &e)
}

// waitedInFull reports whether err says that a caller waited for the whole timeout.
func waitedInFull(err error) bool {
	var e *expired
	return errors.As(err, &e) && !e.early
}
