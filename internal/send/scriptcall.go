package send

import (
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/lua"
)

// A scriptCall is a call of a script for one or several parts.
type scriptCall struct {
	connection.ScriptCall

	first    *Request    // the first request of the first part; belongs to its caller once delivered
	script   *lua.Script // whose hash or source is Script
	joint    bool        // whether each part is a Joint
	each     bool        // whether the keys of a Joint are decided separately
	parts    int
	merged   bool // a part consists of merged requests, so script and verb are those of Call.Merge
	unmerged bool // a part has a request that does not merge

	again    bool // the call must be sent again
	repeated bool // the call was sent again after NOSCRIPT
	trace    Trace
}

// callOf returns a new script call for p, to which p must be added.
func callOf(p *part) scriptCall {
	joint := p.first.Joint
	return scriptCall{first: p.first, joint: joint != nil, each: joint != nil && joint.Each}
}

// takes reports whether p can join the call. Only parts of the same limiter share a call. If some
// of them consist of merged requests, each of them is sent as if it did.
func (c *scriptCall) takes(p *part) bool {
	if c.merged && !p.first.merges() || p.merged && c.unmerged {
		return false
	}
	return p.first.shard == c.first.shard && p.first.fits(&c.first.Call)
}

// add adds p to the call.
func (c *scriptCall) add(p *part) {
	p.call, p.index = c, c.parts
	c.parts++
	c.merged, c.unmerged = c.merged || p.merged, c.unmerged || !p.first.merges()
}

// prepare sets the command and its arguments. The caller fills in keys and units.
func (c *scriptCall) prepare(keys, units []string) {
	r := c.first
	c.script, c.Verb = r.Script, r.Verb
	if c.merged {
		c.script, c.Verb = r.Merge.Script, r.Merge.Verb
	}
	c.Command, c.Script, c.Keys, c.Time, c.Units, c.Rest = "EVALSHA", c.script.Hash, keys, r.Time, units, r.Rest
	c.InText = r.InText || len(keys) > 1
}

// replyTo returns the reply to the given part: its share of the integers, or an error if the first
// element of the part is a string.
func (c *scriptCall) replyTo(part int) ([]int64, error) {
	if c.Err != nil || c.parts == 1 && !c.joint {
		return c.Reply, c.Err
	}
	width := len(c.Reply) / c.parts
	if width == 0 || len(c.Reply)%c.parts != 0 {
		return nil, fmt.Errorf("the script replied %d integers to %s for %d keys", len(c.Reply), c.Verb, c.parts)
	}
	for index, text := range c.Texts {
		switch {
		case c.joint && (c.each || index/width != part):
		case c.joint: // if the script refuses an event, only that event fails, but a server refuses the whole call
			if err := (&connection.ReplyError{Cause: errors.New(text)}); !err.FromScript() {
				return nil, err
			}
		case index == part*width:
			return nil, &connection.ReplyError{Cause: errors.New(text)}
		case index/width == part:
			return nil, fmt.Errorf("the script replied the text %.80q to %s, in the wrong place", text, c.Verb)
		}
	}
	return c.Reply[part*width:][:width], nil
}

// textsOf returns the strings in the reply to the given part, by their indices within that part.
func (c *scriptCall) textsOf(part int) (texts map[int]string) {
	width := max(1, len(c.Reply)/c.parts)
	for index, text := range c.Texts {
		if index/width == part {
			if texts == nil {
				texts = map[int]string{}
			}
			texts[index%width] = text
		}
	}
	return texts
}

// repeats reports whether the script call did not run and can be sent again: with the script's
// source, or separately for each part.
func (c *scriptCall) repeats() bool {
	return c.Err != nil && (connection.Replied(c.Err, "NOSCRIPT") && c.Command == "EVALSHA" ||
		!c.repeated && c.parts > 1 && connection.RefusesKeys(c.Err))
}

// brings reports whether the call contains the source of s.
func (c *scriptCall) brings(s *lua.Script) bool { return c.Command == "EVAL" && c.script == s }

// A part is the portion of a script call that serves one request, or several merged requests for
// the same key.
type part struct {
	first, last *Request
	units       int64 // the total of all its requests
	merged      bool  // has several requests
	crowded     bool  // the batch has other parts for the key

	call  *scriptCall
	index int // of the part in the call
}

// add merges r into the part if possible, and reports whether it did. The part may be nil.
func (p *part) add(r *Request) bool {
	if p == nil || !p.first.merges() || !r.merges() || !r.fits(&p.first.Call) {
		return false
	}
	p.last.next, p.last = r, r
	p.units += r.Units
	p.merged = true
	return true
}

// deliver passes each caller its part of the reply. It reports whether any caller had left.
func (p *part) deliver(now time.Duration) (left bool) {
	reply, err := p.call.replyTo(p.index)
	answer := Answer{Reply: reply, Texts: p.call.textsOf(p.index), Trace: p.call.trace}
	answer.Trace.Merged = p.merged
	for r := p.first; r != nil; {
		next, units, batch := r.next, r.Units, r.batch // once delivered, r belongs to its caller
		if r.deliver(answer, err, now) {
			batch.gone.Add(1)
		} else {
			left = true
		}
		r = next
		answer.First += units
	}
	return left
}

// shares reports whether p can share a script call with parts for other keys. If a key has several
// parts, each part has its own call, so that the parts stay in order.
func (p *part) shares() bool {
	oneKey := p.first.OneKey
	if p.merged {
		oneKey = p.first.Merge.OneKey
	}
	return p.first.Group != "" && !oneKey && !p.crowded
}
