package connection

import "context"

// A Client sends script calls to Redis. It never resends a call that may have run.
//
// Many callers share the work that a context passed to a Client is for. So these contexts have no
// deadline, and their Done channels are never closed: if a deadline passed, rueidis would close a
// connection that other callers use, and if one caller's context were canceled, that would abort a
// dial for which other callers wait. Err is non-nil once all those callers have left, because
// sending is then useless.
type Client interface {
	// Send sends script calls, as one pipeline per server, and calls Answer on each of them.
	Send(ctx context.Context, calls []*ScriptCall)
	// Close closes the resources that the Client has opened.
	Close()
}

// A Cluster is a Client for a Redis Cluster.
type Cluster interface {
	// Shares returns the ranges of hash slots, each with its master.
	Shares(ctx context.Context) ([]Share, error)
}

// A Share is a range of hash slots that a master serves.
type Share struct {
	First, Last int
	Master      string // the ID of the master
}

// A ScriptCall is one call of a script. A Client sends the Command with the Script, the number of
// Keys, the Keys, and then Verb, Time, Units and Rest as arguments. When the reply arrives, the
// Client calls Answer. On a Cluster, all Keys are in the same hash slot.
type ScriptCall struct {
	// The sender sets these fields, and the Client reads them.

	Command    string // EVALSHA or EVAL
	Script     string // the hash or the source of the script
	Keys       []string
	Verb, Time string
	Units      []string // one or more for each key
	Rest       []string
	InText     bool // the reply can contain strings

	// The Client sets these fields with Answer and Text, and the sender reads them.

	Reply []int64
	Texts map[int]string // strings in the reply, by their indices
	Err   error
}

// Answer sets the integers in the script's reply, or the error. The error must be a *ReplyError if
// a server sent it, and an *UnsentError if the call was certainly not sent.
func (c *ScriptCall) Answer(reply []int64, err error) { c.Reply, c.Err = reply, err }

// Text sets a string that is in the script's reply, at the given index, instead of an integer. The
// Client calls Text before Answer, to which it passes an arbitrary integer at that index.
func (c *ScriptCall) Text(index int, text string) {
	if c.Texts == nil {
		c.Texts = map[int]string{}
	}
	c.Texts[index] = text
}
