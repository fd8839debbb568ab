package connection

import (
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/dial"
)

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

// Begins reports whether the reply starts with one of the words. Some servers put ERR before it.
func (e *ReplyError) Begins(words ...string) bool {
	text := strings.TrimPrefix(e.Error(), "ERR ")
	return slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(text, word) })
}

// FromScript reports whether the script itself returned the error. Such a reply names the key and
// the remedy.
func (e *ReplyError) FromScript() bool { return e.Begins("WRONGTYPE", "SLIDEGATE") }

// Replied reports whether err is an error reply that starts with one of the words or, if there are
// none, with any word.
func Replied(err error, words ...string) bool {
	var reply *ReplyError
	return errors.As(err, &reply) && (len(words) == 0 || reply.Begins(words...))
}

// RefusesKeys reports whether err means that a server refused a script call because of its keys, so
// that the script did not run.
func RefusesKeys(err error) bool { return Replied(err, "CROSSSLOT", "NOPERM") }

// IsAnswer reports whether err is nil or an error reply, so that a server has replied.
func IsAnswer(err error) bool {
	return err == nil || Replied(err) // the first condition avoids an allocation
}

// An UnsentError means that the client certainly did not send a call.
type UnsentError struct {
	Cause  error
	Reason string // one of the reasons below, or "" if the cause implies the reason
}

// The reasons that a Client knows itself. Package health has all reasons.
const (
	ReasonClosed      = "closed"
	ReasonTimeout     = "timeout"
	ReasonClusterDown = "clusterdown"
)

// Error returns the text of the cause.
func (e *UnsentError) Error() string { return e.Cause.Error() }

// Unwrap returns the client's own error.
func (e *UnsentError) Unwrap() error { return e.Cause }

// NotRun reports whether err proves that the script did not run, and that it may run if the call is
// sent again.
func NotRun(err error) bool {
	var reply *ReplyError
	if errors.As(err, &reply) {
		return reply.Begins("TRYAGAIN", "NOSCRIPT", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MOVED", "ASK")
	}
	var op *net.OpError
	var unsent *UnsentError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &unsent)
}

// IsClosed reports whether err means that a connection broke, or that a client was closed.
func IsClosed(err error) bool {
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, rueidis.ErrClosing, ErrClosed} {
		if errors.Is(err, closed) {
			return true
		}
	}
	return false
}

// translate converts a rueidis error to an error as Client specifies.
func translate(err error) error {
	if err == nil {
		return nil
	}
	var reply *rueidis.RedisError
	if errors.As(err, &reply) && !rueidis.IsRedisNil(reply) {
		return &ReplyError{err}
	}
	if errors.Is(err, rueidis.ErrNoSlot) {
		return &UnsentError{err, ReasonClusterDown}
	}
	return err
}

// A dialError is the error of a failed dial. It does not match the errors of package context,
// because a call that quotes it has a context of its own.
type dialError struct{ error }

// Is reports whether the error matches target.
func (e dialError) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.error, target)
}

// As finds the first error that matches target.
func (e dialError) As(target any) bool { return errors.As(e.error, target) }

// mistakes lists common mistakes in an address or in client options, by the text of the resulting
// error, with remedies. Such errors never go away by themselves.
var mistakes = []struct {
	text   *regexp.Regexp
	remedy string
}{
	{regexp.MustCompile("cluster support disabled"), "name only one server, because several addresses mean the nodes of a cluster"},
	{regexp.MustCompile("DB index is out of range"), "choose a database that this Redis has, such as 0"},
	{regexp.MustCompile("SELECT is not allowed in cluster"), "leave out the database, because a cluster has only database 0"},
	{regexp.MustCompile("invalid port"), "choose a port from 1 to 65535"},
	{regexp.MustCompile("(?i)unknown command .?SENTINEL"), "name the address of a Sentinel, or leave out the name of the master"},
	{regexp.MustCompile("TLS handshake"), "if the server does not speak TLS, connect without it: use redis:// instead of rediss://"},
	{regexp.MustCompile(regexp.QuoteMeta(ErrClosed.Error())), "close it after its last use"},
}

// Remedy returns the remedy if cause is one of the common mistakes, and "" otherwise.
func Remedy(cause error) string {
	text := cause.Error()
	for _, m := range mistakes {
		if m.text.MatchString(text) {
			return m.remedy
		}
	}
	return ""
}

// advised returns the text of cause, followed by the remedy if it is one of the mistakes.
func advised(cause error) string {
	if remedy := Remedy(cause); remedy != "" {
		return cause.Error() + "; " + remedy
	}
	return cause.Error()
}
