package health

import (
	"context"
	"errors"
	"net"
	"os"
	"regexp"
	"strings"

	"github.com/slidegate/slidegate/internal/connection"
)

// The reasons for failures. Package window documents them.
const (
	ReasonTimeout     = connection.ReasonTimeout
	ReasonRefused     = "refused"
	ReasonNoPerm      = "noperm"
	ReasonNoAuth      = "noauth"
	ReasonOOM         = "oom"
	ReasonNoReplicas  = "noreplicas"
	ReasonMisconf     = "misconf"
	ReasonReadOnly    = "readonly"
	ReasonMasterDown  = "masterdown"
	ReasonClusterDown = connection.ReasonClusterDown
	ReasonTryAgain    = "tryagain"
	ReasonLoading     = "loading"
	ReasonBusy        = "busy"
	ReasonNoScript    = "noscript"
	ReasonLua         = "lua"
	ReasonClosed      = connection.ReasonClosed
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
	var reply *connection.ReplyError
	if errors.As(cause, &reply) {
		return reasonIn(reply.Error())
	}
	var unsent *connection.UnsentError
	var op *net.OpError
	isUnsent := errors.As(cause, &unsent)
	switch {
	case isUnsent && unsent.Reason != "":
		return unsent.Reason
	case errors.As(cause, &op) && op.Op == "dial":
		return ReasonRefused
	case timedOut(cause):
		return ReasonTimeout
	case connection.IsClosed(cause):
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
