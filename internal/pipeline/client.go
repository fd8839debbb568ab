package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/slidegate/slidegate/lua"
)

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
	// Shares returns the slot ranges, each with its master.
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
	Command    string // EVALSHA or EVAL
	Script     string // the hash or the source of the script
	Keys       []string
	Verb, Time string
	Units      []string // one or more for each key
	Rest       []string

	first    *Request    // the first request of the first part; belongs to its caller once delivered
	script   *lua.Script // whose hash or source is Script
	joint    bool        // whether each part is a Joint
	each     bool        // whether the keys of a Joint are decided separately
	parts    int
	merged   bool // a part consists of merged requests, so script and verb are those of Request.Merge
	unmerged bool // a part has a request that does not merge
	again    bool // whether the call must be sent again

	repeated bool // whether the call was sent again after NOSCRIPT

	trace Trace
	reply []int64
	texts map[int]string // strings in the reply, by their indices
	err   error
}

// Answer sets the integers in the script's reply, or the error. The error must be a *ReplyError if
// a server sent it, and an *UnsentError if the call was certainly not sent.
func (c *ScriptCall) Answer(reply []int64, err error) { c.reply, c.err = reply, err }

// Text sets a string that is in the script's reply, at the index place, instead of an integer. The
// Client calls Text before Answer, to which it passes an arbitrary integer at that index.
func (c *ScriptCall) Text(place int, text string) {
	if c.texts == nil {
		c.texts = map[int]string{}
	}
	c.texts[place] = text
}

// TakesTexts reports whether the reply can contain strings.
func (c *ScriptCall) TakesTexts() bool { return len(c.Keys) > 1 || c.first != nil && c.first.InText }

// textsOf returns the strings in the reply to the given part, by their indices within that part.
func (c *ScriptCall) textsOf(part int) (texts map[int]string) {
	width := max(1, len(c.reply)/c.parts)
	for place, text := range c.texts {
		if place/width == part {
			if texts == nil {
				texts = map[int]string{}
			}
			texts[place%width] = text
		}
	}
	return texts
}

func (c *ScriptCall) isAnswered() bool { return isAnswer(c.err) }

// replyTo returns the reply to the given part: its share of the integers, or an error if the first
// element of the part is a string.
func (c *ScriptCall) replyTo(part int) ([]int64, error) {
	if c.err != nil || c.parts == 1 && !c.joint {
		return c.reply, c.err
	}
	width := len(c.reply) / c.parts
	if width == 0 || len(c.reply)%c.parts != 0 {
		return nil, fmt.Errorf("the script replied %d integers to %s for %d keys", len(c.reply), c.Verb, c.parts)
	}
	for place, text := range c.texts {
		switch {
		case c.joint && (c.each || place/width != part):
		case c.joint: // if the script refuses an event, only that event fails, but a server refuses the whole call
			if err := (&ReplyError{errors.New(text)}); !err.fromScript() {
				return nil, err
			}
		case place == part*width:
			return nil, &ReplyError{errors.New(text)}
		case place/width == part:
			return nil, fmt.Errorf("the script replied the text %.80q to %s, in the wrong place", text, c.Verb)
		}
	}
	return c.reply[part*width:][:width], nil
}
