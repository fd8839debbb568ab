package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/connection"
)

var (
	// ErrOutage means that Redis could not answer, and that nothing was counted.
	ErrOutage = errors.New("nothing was counted, since Redis cannot answer")
	// ErrUncertain means that no reply arrived, so it is unknown whether the units were counted.
	ErrUncertain = errors.New("no reply from Redis, so this may or may not have been counted; do not simply repeat it")

	// ErrOnPurpose is the error of a Client that loses replies for a test.
	ErrOnPurpose = errors.New("the reply is lost on purpose: see windowtest.Unanswered")

	// ErrLeft is the error for a caller whose context was done before anything was sent.
	ErrLeft = errors.New("nothing was sent")
)

// IsOutage reports whether err means that Redis could not answer, or did not answer in time.
func IsOutage(err error) bool { return errors.Is(err, ErrOutage) || errors.Is(err, ErrUncertain) }

// NotSent returns an error that wraps ErrLeft and cause, the error of the context.
func NotSent(cause error) error { return fmt.Errorf("%w: %w", ErrLeft, cause) }

// Expired is the cause of a failure if a caller's time has passed.
type Expired struct {
	After  time.Duration
	Early  bool // the deadline of the context is near, or has passed; otherwise the timeout has passed
	Unsent bool
}

func (e *Expired) Error() string {
	what, why := "no reply", "the timeout"
	if e.Unsent {
		what = "it was not sent"
	}
	if e.Early {
		why = "close to the deadline of the context"
	}
	return fmt.Sprintf("%s within %v, %s", what, clock.Rounded(e.After), why)
}

// Is reports whether target is context.DeadlineExceeded and the context's deadline is the cause.
func (e *Expired) Is(target error) bool { return e.Early && target == context.DeadlineExceeded }

// Timeout returns true, as it does for the timeout errors of package net.
func (e *Expired) Timeout() bool { return true }

// IsExpired reports whether err means that a caller's time has passed, and not that the caller
// left.
func IsExpired(err error) bool {
	var e *Expired
	return errors.As(err, &e)
}

// Explain wraps err, the error of a request for key, to say whether the script may have run. A
// request that only reads can always be repeated.
func Explain(err error, key string, reads bool) error {
	switch {
	case IsWell(err): // the script's own error names the key and the remedy
		return err
	case connection.Replied(err) || reads || connection.NotRun(err):
		return FailureOf(key, ErrOutage, err)
	}
	return FailureOf(key, ErrUncertain, err)
}

// IsWell reports whether err shows that the script ran. Redis is then healthy, even if the script
// returned an error.
func IsWell(err error) bool {
	if err == nil {
		return true // avoids an allocation
	}
	var reply *connection.ReplyError
	return errors.As(err, &reply) && reply.FromScript()
}
