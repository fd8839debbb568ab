package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Client sends script calls to Redis. It never resends a call that may have run.
//
// Many callers share the work that a context is for. So the contexts passed to a Client have no
// deadline and never end: with a deadline, rueidis would close a connection that others use, and
// the end of one caller's context would end a dial that others wait for. Their Err is non-nil once
// all those callers have left: then sending is useless.
type Client interface {
	// Send sends script calls as one pipeline for each server, and answers each of them.
	Send(ctx context.Context, calls []*ScriptCall)
	// Load loads a script into Redis, and returns its hash.
	Load(ctx context.Context, source string) (hash string, err error)
	// Close closes what the client opened.
	Close()
}

// A Cluster is a Client of a cluster.
type Cluster interface {
	// Shares returns which master has which slots.
	Shares(ctx context.Context) ([]Share, error)
}

// A Share is a range of hash slots that a master serves.
type Share struct {
	First, Last int
	Master      string // its ID
}

// A Tracker is a Client that can cache what it reads, because Redis notifies it of changes. The
// denial cache needs one, and so does package inflight with Track.
type Tracker interface {
	// Get returns a copy of the contents of a key, empty if there is none. The client caches it for
	// at most ttl. Its error is errNoCopy if it got none, and a script call may succeed.
	Get(ctx context.Context, read Read, key string, ttl time.Duration) (Copy, error)
}

// A Read is a command whose reply a Tracker caches.
type Read int

// The commands.
const (
	ReadValue  Read = iota // GET
	ReadScores             // ZRANGE of all members, WITHSCORES
)

// A Copy is the contents of a key: a Value or Scores.
type Copy struct {
	Value  string
	Scores []float64

	Hit   bool // the client had it, so Redis was not asked
	Known bool // false if there is no reply
}

// A ScriptCall is one call of a script. Its Client sends the Command with the Script, the number of
// Keys and the Keys, and then Verb, Time, Units and Rest as arguments. Then it calls Answer. On a
// Cluster, all Keys are in one hash slot.
type ScriptCall struct {
	Command    string // EVALSHA or EVAL
	Script     string // its hash or its source
	Keys       []string
	Verb, Time string
	Units      []string // one or more for each key
	Rest       []string

	first *Request // of its first part; once that is delivered, it belongs to its caller
	joint bool     // whether it is for the keys of one Joint per part
	each  bool     // whether it is for a Joint whose keys are decided separately
	parts int
	again bool // whether it must be sent again

	repeated bool // whether it was sent again with the source of its script, or after that

	trace Trace
	reply []int64
	texts map[int]string // by their indices in the reply
	err   error
}

// Answer sets the integers that the script replied, or the error. The error is a *ReplyError if a
// server sent it, and an *UnsentError if the call was certainly not sent.
func (c *ScriptCall) Answer(reply []int64, err error) { c.reply, c.err = reply, err }

// Text sets a string that the script replied instead of an integer. The Client calls it before
// Answer, and passes an arbitrary integer in its place to Answer.
func (c *ScriptCall) Text(place int, text string) {
	if c.texts == nil {
		c.texts = map[int]string{}
	}
	c.texts[place] = text
}

// TakesTexts reports whether the reply can contain strings.
func (c *ScriptCall) TakesTexts() bool { return len(c.Keys) > 1 || c.first != nil && c.first.InText }

// textsOf returns the strings in the reply to one of the parts, by their indices in that part.
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

// replyTo returns the reply to one of the parts: its share of the integers, or an error if the
// first one is a string.
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
		case c.joint: // an event that the script refuses fails alone, but a server refuses the whole call
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
