package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Client sends script calls to Redis. It never resends a call that may have run.
//
// Many callers share what a context is for. So the contexts that a Client gets have no deadline and
// never end: with a deadline, rueidis would close a connection that others use, and the end of one
// caller's context would end a dial that others wait for. Their Err is non-nil once all those
// callers have left: then sending is useless.
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

// A Share is a series of hash slots that a master has.
type Share struct {
	First, Last int
	Master      string // its ID
}

// A Tracker is a Client that can cache what it reads, because Redis notifies it of changes. The
// denial cache needs one, and so does package inflight if it tracks.
type Tracker interface {
	// Get returns a copy of what a key holds, empty if there is nothing. The client keeps it for at most ttl.
	Get(ctx context.Context, read Read, key string, ttl time.Duration) (Copy, error)
}

// A Read is a command whose reply a Tracker keeps.
type Read int

// The commands.
const (
	ReadValue  Read = iota // GET
	ReadScores             // ZRANGE of all members, WITHSCORES
)

// A Copy is what a key holds: a Value or Scores.
type Copy struct {
	Value  string
	Scores []float64

	Hit   bool // the client had it, so Redis was not asked
	Known bool // false: there is no reply
}

// A ScriptCall is one call of a script. Its Client sends the Command with the Script, the number of
// Keys and the Keys, and then Verb, Time, Units and Rest as arguments. Then it calls Answer. On a
// Cluster, all Keys are in one hash slot.
type ScriptCall struct {
	Command    string // EVALSHA or EVAL
	Script     string // its hash or its source
	Keys       []string
	Verb, Time string
	Units      []string // for each key, one or more
	Rest       []string

	first *Request // of its first part; once that is delivered, it belongs to its caller
	joint bool     // it is about the keys of a Joint each
	each  bool     // of a Joint whose keys are decided by themselves
	parts int
	again bool // it is sent again

	repeated bool // it was sent again by the source of its script, or after that

	trace Trace
	reply []int64
	texts map[int]string // by their places in the reply
	err   error
}

// Answer sets the integers that the script replied, or the error. The error is a *ReplyError if a
// server replied it, and an *UnsentError if the call was certainly not sent.
func (c *ScriptCall) Answer(reply []int64, err error) { c.reply, c.err = reply, err }

// Text sets a text that the script replied in place of an integer. The Client calls it before
// Answer, which gets any integer in its place.
func (c *ScriptCall) Text(place int, text string) {
	if c.texts == nil {
		c.texts = map[int]string{}
	}
	c.texts[place] = text
}

// TakesTexts reports whether the reply can hold texts.
func (c *ScriptCall) TakesTexts() bool { return len(c.Keys) > 1 || c.first != nil && c.first.InText }

// textsOf returns the texts in the reply to one of the parts, by their places in that.
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

// replyTo returns the reply to one of the parts: as many integers as to each other one, or an error
// if there is a text in place of the first.
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
		case c.joint: // an event that the script refuses fails alone, but a server refuses the call
			if err := (&ReplyError{errors.New(text)}); !err.fromScript() {
				return nil, err
			}
		case place == part*width:
			return nil, &ReplyError{errors.New(text)}
		case place/width == part:
			return nil, fmt.Errorf("the script replied the text %.80q to %s, in a wrong place", text, c.Verb)
		}
	}
	return c.reply[part*width:][:width], nil
}
