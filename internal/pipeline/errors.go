package pipeline

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

var (
	// ErrOutage says that Redis could not answer, and that nothing was counted.
	ErrOutage = errors.New("nothing was counted, since Redis cannot answer")
	// ErrUncertain says that there was no reply, so it is unknown whether the units were counted.
	ErrUncertain = errors.New("no reply from Redis, so this may or may not have been counted; do not simply repeat it")

	// ErrOnPurpose is the error of a Client that loses replies for a test.
	ErrOnPurpose = errors.New("the reply is lost on purpose: see windowtest.Unanswered")

	// ErrLeft is the error of a caller whose context ended before anything was sent.
	ErrLeft = errors.New("nothing was sent")

	errNotLoaded = errors.New("the server did not load the script")
)

// Rounded returns a duration for an error text: in whole milliseconds, if it is at least one.
func Rounded(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d
	}
	return d.Round(time.Millisecond)
}

// IsOutage reports whether an error means that Redis could not answer, or not in time.
func IsOutage(err error) bool { return errors.Is(err, ErrOutage) || errors.Is(err, ErrUncertain) }

// NotSent returns an ErrLeft with the error of the context.
func NotSent(cause error) error { return fmt.Errorf("%w: %w", ErrLeft, cause) }

// A ReplyError is an error reply of a server, as the client returned it. If an event failed among
// others in a script call, its Cause is only the string.
type ReplyError struct{ Cause error }

// Error returns the text of the reply, without the arguments that a server repeats if it does not
// know a command, because they include the key. It also omits a trailing dot, because a remedy
// follows.
func (e *ReplyError) Error() string {
	text, _, _ := strings.Cut(e.Cause.Error(), ", with args beginning with")
	return strings.TrimSuffix(text, ".")
}

// Unwrap returns the client's own error.
func (e *ReplyError) Unwrap() error { return e.Cause }

// begins reports whether the reply starts with a word. Some servers write ERR before it.
func (e *ReplyError) begins(word string) bool {
	return strings.HasPrefix(strings.TrimPrefix(e.Error(), "ERR "), word)
}

// fromScript reports whether the script itself refused. Such a reply names the key, and says what
// to do.
func (e *ReplyError) fromScript() bool { return e.begins("WRONGTYPE") || e.begins("SLIDEGATE") }

// An UnsentError says why a client certainly did not send a call.
type UnsentError struct {
	Cause  error
	Reason string // reason of the failure; empty means refused
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

// unrunReplies lists the first words of replies that prove that the script did not run, and that it
// may run if it is sent again.
var unrunReplies = []string{"TRYAGAIN", "NOSCRIPT", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MOVED", "ASK"}

// notRun reports whether err proves that the script did not run, and that it may run if it is sent
// again.
func notRun(err error) bool {
	if reply, isReply := replied(err); isReply {
		return slices.ContainsFunc(unrunReplies, reply.begins)
	}
	var op *net.OpError
	var unsent *UnsentError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &unsent) || errors.Is(err, errNotLoaded)
}

// isNoScript reports whether the server does not know the script.
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

// refusesKeys reports whether a server refused a script call because of its keys, so that the script
// did not run.
func refusesKeys(err error) bool {
	reply, isReply := replied(err)
	return isReply && (reply.begins("CROSSSLOT") || reply.begins("NOPERM"))
}

// isAnswer reports whether a server replied.
func isAnswer(err error) bool {
	if err == nil {
		return true // avoids an allocation
	}
	_, isReply := replied(err)
	return isReply
}

// isWell reports whether the script ran, so that Redis is healthy even if the script refused.
func isWell(err error) bool {
	if err == nil {
		return true
	}
	reply, isReply := replied(err)
	return isReply && reply.fromScript()
}

// explain adds to the error of a request for a key whether the script may have run.
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
