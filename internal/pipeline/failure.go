package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"

	"github.com/redis/rueidis"
)

// A Failure is the error for a request that Redis could not answer.
type Failure struct {
	Name    string // of the limiter
	Key     string // of the request; "" if the error concerns several requests
	Counted error  // ErrOutage or ErrUncertain
	Cause   error  // the reason; it contains no key
}

// failureOf returns the Failure for a request for key, which starts with the limiter's name.
func failureOf(key string, counted, cause error) *Failure {
	name, _, _ := strings.Cut(key, ":{")
	return &Failure{name, key, counted, cause}
}

// Error states whether anything was counted, the cause, and the remedy. It is one line, even if the
// client's error has several.
func (f *Failure) Error() string {
	text := strings.ReplaceAll(fmt.Sprintf("%v: %v", f.Counted, f.Cause), "\n", "; ")
	if f.Key != "" {
		text = "key " + f.Key + ": " + text
	}
	if f.Counted == ErrOutage { //nolint:errorlint // it is one of two values
		text += "; " + f.remedy()
	}
	return text
}

// Unwrap returns Counted and Cause.
func (f *Failure) Unwrap() []error { return []error{f.Counted, f.Cause} }

// Reason returns the reason for the failure, or "" if f is nil.
func (f *Failure) Reason() string {
	if f == nil {
		return ""
	}
	return reasonOf(f.Cause)
}

// Err returns f as an error, or a nil error if f is nil.
func (f *Failure) Err() error {
	if f == nil {
		return nil
	}
	return f
}

// remedy returns what a user can do about a request that was not counted.
func (f *Failure) remedy() string {
	if remedy := correction(f.Cause); remedy != "" {
		return remedy
	}
	switch f.Reason() {
	case ReasonNoPerm:
		return fmt.Sprintf("give its user ~%s:* and the commands of https://github.com/slidegate/slidegate/blob/main/docs/keys.md#the-acl-user", f.Name)
	case ReasonNoAuth:
		return "give the client the user and the password of this Redis"
	case ReasonOOM:
		return "raise maxmemory, and leave maxmemory-policy at noeviction"
	case ReasonMisconf:
		return "fix what the server log says about saving"
	case ReasonReadOnly:
		return "connect to the master, or through Sentinel or the cluster nodes"
	case ReasonLua:
		return "use a server that runs Lua scripts: Redis, or Valkey with its module lua"
	}
	return "try again later, or decide without it"
}

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
	{regexp.MustCompile(regexp.QuoteMeta(errClosed.Error())), "close it after its last use"},
}

// correction returns the remedy if cause is one of the mistakes, and "" otherwise.
func correction(cause error) string {
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
	if remedy := correction(cause); remedy != "" {
		return cause.Error() + "; " + remedy
	}
	return cause.Error()
}

// FailureIn returns the Failure in err, without its key, or nil if err contains none.
func FailureIn(err error) *Failure {
	if err == nil {
		return nil // avoids an allocation
	}
	var f *Failure
	if !errors.As(err, &f) || f.Key == "" {
		return f
	}
	return &Failure{f.Name, "", f.Counted, f.Cause}
}

// The reasons for failures. Package window documents them.
const (
	ReasonTimeout     = "timeout"
	ReasonRefused     = "refused"
	ReasonNoPerm      = "noperm"
	ReasonNoAuth      = "noauth"
	ReasonOOM         = "oom"
	ReasonNoReplicas  = "noreplicas"
	ReasonMisconf     = "misconf"
	ReasonReadOnly    = "readonly"
	ReasonMasterDown  = "masterdown"
	ReasonClusterDown = "clusterdown"
	ReasonTryAgain    = "tryagain"
	ReasonLoading     = "loading"
	ReasonBusy        = "busy"
	ReasonNoScript    = "noscript"
	ReasonLua         = "lua"
	ReasonClosed      = "closed"
	ReasonOther       = "other"
)

// replyReasons maps texts in error replies to reasons. If a command in a script fails, the script's
// error repeats the command's reply: after a dash, or as a sentence.
var replyReasons = []struct{ text, reason string }{
	{"NOPERM", ReasonNoPerm},
	{"ACL failure in script", ReasonNoPerm},
	{"can't run this command", ReasonNoPerm},
	{"can't access at least one of the keys", ReasonNoPerm},
	{"No permissions to access a key", ReasonNoPerm},
	{"NOAUTH", ReasonNoAuth},
	{"WRONGPASS", ReasonNoAuth},
	{"OOM", ReasonOOM},
	{"NOREPLICAS", ReasonNoReplicas},
	{"MISCONF", ReasonMisconf},
	{"READONLY", ReasonReadOnly},
	{"MASTERDOWN", ReasonMasterDown},
	{"CLUSTERDOWN", ReasonClusterDown},
	{"TRYAGAIN", ReasonTryAgain},
	{"MOVED", ReasonTryAgain},
	{"ASK", ReasonTryAgain},
	{"LOADING", ReasonLoading},
	{"BUSY", ReasonBusy},
	{"NOSCRIPT", ReasonNoScript},
	{"user_script", ReasonLua},
	{"Error running script", ReasonLua},
	{"Error compiling script", ReasonLua},
}

// reasonOf returns the reason that cause implies.
func reasonOf(cause error) string {
	var open *breakerOpen
	if errors.As(cause, &open) {
		return reasonOf(open.last)
	}
	if reply, isReply := replied(cause); isReply {
		return reasonIn(reply.Error())
	}
	var unsent *UnsentError
	var op *net.OpError
	isUnsent := errors.As(cause, &unsent)
	switch {
	case isUnsent && unsent.Reason != "":
		return unsent.Reason
	case errors.As(cause, &op) && op.Op == "dial":
		return ReasonRefused
	case timedOut(cause):
		return ReasonTimeout
	case isClosed(cause):
		return ReasonClosed
	}
	reason := reasonIn(cause.Error()) // a client may quote the reply of a server to which it tried to connect
	if isUnsent && reason == ReasonOther {
		return ReasonRefused
	}
	return reason
}

// reasonIn returns the reason that text implies. The text is an error reply, or quotes an error
// reply after a colon.
func reasonIn(text string) string {
	text = strings.TrimPrefix(text, "ERR ")
	for _, r := range replyReasons {
		isWord := strings.ToUpper(r.text) == r.text
		if isWord && (strings.HasPrefix(text, r.text) || strings.Contains(text, "-"+r.text) || strings.Contains(text, ": "+r.text+" ")) ||
			!isWord && strings.Contains(text, r.text) {
			return r.reason
		}
	}
	if noLua.MatchString(text) {
		return ReasonLua
	}
	return ReasonOther
}

// noLua matches the reply of a server that cannot run scripts, because it lacks the commands, or is
// Valkey without the module lua.
var noLua = regexp.MustCompile("(?i)unknown command .?(EVAL|SCRIPT)|could not find scripting engine")

func timedOut(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// isClosed reports whether err means that a connection broke, or that a client was closed.
func isClosed(err error) bool {
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, rueidis.ErrClosing, errClosed} {
		if errors.Is(err, closed) {
			return true
		}
	}
	return false
}
