package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// patience says how long a caller waits for Redis: for the timeout, or until the deadline of its
// context. If that comes first, the caller leaves a little before, so that it can still decide
// without Redis: a tenth of its time, from minMargin to maxMargin. But it does so only if a reply
// would have come by then: after minPatience, and slowness times what calls usually take. Otherwise
// clients that choose their deadlines could have the Fallback decide although Redis is well.
type patience struct {
	left  time.Duration // until the caller leaves
	timed bool          // a timer ends the wait, and not the context
	early bool          // it ends before the deadline of the context
}

const (
	minMargin   = time.Millisecond
	maxMargin   = 20 * time.Millisecond
	minPatience = 5 * time.Millisecond
	slowness    = 4
)

// newPatience returns the patience of a call whose context and timeout these are. A timeout below 0
// never passes.
func newPatience(ctx context.Context, timeout, usual time.Duration) patience {
	p := patience{left: timeout, timed: timeout >= 0}
	if !p.timed {
		p.left = math.MaxInt64 / 2
	}
	deadline, dated := ctx.Deadline()
	if !dated {
		return p
	}
	left := time.Until(deadline)
	if left > p.left {
		return p
	}
	early := left - min(max(left/10, minMargin), maxMargin)
	if early < max(minPatience, slowness*usual) {
		return patience{left: left}
	}
	return patience{left: early, timed: true, early: true}
}

// expired is the cause of a failure when the patience ended.
type expired struct {
	patience
	unsent bool
}

func (e *expired) Error() string {
	what, why := "no reply came", "the timeout"
	if e.unsent {
		what = "it was not sent"
	}
	if e.early {
		why = "shortly before the deadline of the context"
	}
	return fmt.Sprintf("%s within %v, %s", what, Rounded(e.left), why)
}

// Is reports that the end of the context is the cause, if it is.
func (e *expired) Is(target error) bool { return e.early && target == context.DeadlineExceeded }

// Timeout reports that it is a timeout, as for the errors of package net.
func (e *expired) Timeout() bool { return true }

// waitedInFull reports whether err says that a caller waited for the whole timeout.
func waitedInFull(err error) bool {
	var e *expired
	return errors.As(err, &e) && !e.early
}
