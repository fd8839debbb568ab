package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/dial"
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

// Rounded returns d for use in an error text: in whole milliseconds, unless it is less than a
// millisecond.
func Rounded(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d
	}
	return d.Round(time.Millisecond)
}

// IsOutage reports whether err means that Redis could not answer, or did not answer in time.
func IsOutage(err error) bool { return errors.Is(err, ErrOutage) || errors.Is(err, ErrUncertain) }

// NotSent returns an error that wraps ErrLeft and cause, the error of the context.
func NotSent(cause error) error { return fmt.Errorf("%w: %w", ErrLeft, cause) }

// A ReplyError is an error reply from a server, as the client returned it. If only one of several
// events in a script call failed, Cause contains only the string for that event.
type ReplyError struct{ Cause error }

// Error returns the text of the reply. It omits the arguments that a server repeats if it does not
// know a command, because they include the key. It also omits a trailing period, because a remedy
// follows.
func (e *ReplyError) Error() string {
	return strings.TrimSuffix(dial.WithoutArgs(e.Cause.Error()), ".")
}

// Unwrap returns the client's own error.
func (e *ReplyError) Unwrap() error { return e.Cause }

// begins reports whether the reply starts with word. Some servers put ERR before it.
func (e *ReplyError) begins(word string) bool {
	return strings.HasPrefix(strings.TrimPrefix(e.Error(), "ERR "), word)
}

// fromScript reports whether the script itself returned the error. Such a reply names the key and
// the remedy.
func (e *ReplyError) fromScript() bool { return e.begins("WRONGTYPE") || e.begins("SLIDEGATE") }

// An UnsentError means that the client certainly did not send a call.
type UnsentError struct {
	Cause  error
	Reason string // reason of the failure; "" means ReasonRefused
}

// Error returns the text of the cause.
func (e *UnsentError) Error() string { return e.Cause.Error() }

// Unwrap returns the client's own error.
func (e *UnsentError) Unwrap() error { return e.Cause }

// replied returns the error reply in err, if there is one.
func replied(err error) (reply *ReplyError, ok bool) {
	ok = errors.As(err, &reply)
	return reply, ok
}

// unrunReplies lists the first words of those replies which prove that the script did not run, and
// that it may run if the call is sent again.
var unrunReplies = []string{"TRYAGAIN", "NOSCRIPT", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MOVED", "ASK"}

// notRun reports whether err proves that the script did not run, and that it may run if the call is
// sent again.
func notRun(err error) bool {
	if reply, isReply := replied(err); isReply {
		return slices.ContainsFunc(unrunReplies, reply.begins)
	}
	var op *net.OpError
	var unsent *UnsentError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &unsent)
}

// isNoScript reports whether err means that the server does not know the script.
func isNoScript(err error) bool {
	reply, isReply := replied(err)
	return isReply && reply.begins("NOSCRIPT")
}

// isUnsent reports whether err proves that nothing was sent.
func isUnsent(err error) bool { return !isAnswer(err) && notRun(err) }

func isTryAgain(err error) bool {
	reply, isReply := replied(err)
	return isReply && reply.begins("TRYAGAIN")
}

// refusesKeys reports whether err means that a server refused a script call because of its keys, so
// that the script did not run.
func refusesKeys(err error) bool {
	reply, isReply := replied(err)
	return isReply && (reply.begins("CROSSSLOT") || reply.begins("NOPERM"))
}

// isAnswer reports whether err is nil or an error reply, so that a server has replied.
func isAnswer(err error) bool {
	if err == nil {
		return true // avoids an allocation
	}
	_, isReply := replied(err)
	return isReply
}

// isWell reports whether err shows that the script ran. Redis is then healthy, even if the script
// returned an error.
func isWell(err error) bool {
	if err == nil {
		return true
	}
	reply, isReply := replied(err)
	return isReply && reply.fromScript()
}

// explain wraps err, the error of a request for key, to say whether the script may have run.
func explain(err error, key string, reads bool) error {
	reply, isReply := replied(err)
	switch {
	case isReply && reply.fromScript():
		return err
	case isReply || reads || notRun(err):
		return failureOf(key, ErrOutage, err)
	}
	return failureOf(key, ErrUncertain, err)
}

// expired is the cause of a failure if a caller's time has passed.
type expired struct {
	after  time.Duration
	early  bool // the deadline of the context is near, or has passed; otherwise the timeout has passed
	unsent bool
}

func (e *expired) Error() string {
	what, why := "no reply", "the timeout"
	if e.unsent {
		what = "it was not sent"
	}
	if e.early {
		why = "close to the deadline of the context"
	}
	return fmt.Sprintf("%s within %v, %s", what, Rounded(e.after), why)
}

// Is reports whether target is context.DeadlineExceeded and the context's deadline is the cause.
func (e *expired) Is(target error) bool { return e.early && target == context.DeadlineExceeded }

// Timeout returns true, as it does for the timeout errors of package net.
func (e *expired) Timeout() bool { return true }

// IsExpired reports whether err means that a caller's time has passed, and not that the caller
// left.
func IsExpired(err error) bool {
	var e *expired
	return errors.As(err, &e)
}
