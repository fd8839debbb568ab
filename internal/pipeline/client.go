package pipeline

import (
	"context"
	"time"
)

// A Client sends script calls to Redis. It never resends a call that may have run.
//
// Many callers share what a context is for. So the contexts that a Client gets have no deadline and
// never end: with a deadline, rueidis would close a connection that others use, and the end of one
// caller's context would end a dial that others wait for. Their Err is non-nil once all those
// callers have left: then sending is useless.
type Client interface {
	// Cluster reports whether Redis is a cluster.
	Cluster() bool
	// Send sends script calls as one pipeline for each server, and answers each of them.
	Send(ctx context.Context, calls []*ScriptCall)
	// Load loads a script into Redis, and returns its hash.
	Load(ctx context.Context, source string) (hash string, err error)
	// Close closes what the client opened.
	Close()
}

// A Tracker is a Client that can cache what it reads, because Redis notifies it of changes. The
// denial cache needs one.
type Tracker interface {
	// Get returns the value of a key, empty if there is none. The client keeps it for at most ttl.
	// Hit reports that it was kept, and that Redis was not asked.
	Get(ctx context.Context, key string, ttl time.Duration) (value string, hit bool, err error)
}

// A ScriptCall is one call of a script, for one request or several merged ones. Its Client sends
// the Command with the Script, a 1 and the Key, and then Verb, Time, Units and Rest as arguments.
// Then it calls Answer.
type ScriptCall struct {
	Command           string // EVALSHA or EVAL
	Script            string // its hash or its source
	Key               string
	Verb, Time, Units string
	Rest              []string

	first, last *Request // of those that it is for
	units       int64    // of all of them
	trace       Trace
	reply       []int64
	err         error
}

// Answer sets the integers that the script replied, or the error. The error is a *ReplyError if a
// server replied it, and an *UnsentError if the call was certainly not sent.
func (c *ScriptCall) Answer(reply []int64, err error) { c.reply, c.err = reply, err }
