package send

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

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

const (
	maxParts = 64 // the most parts in one script call; the gain from more would be small
	maxOpen  = 4  // the most script calls that parts can join at a time
)

// group makes script calls from the parts, sets the arguments of the calls, and makes all calls
// pending.
func (b *batch) group() {
	b.calls = slices.Grow(b.calls, len(b.parts))
	for i := range b.parts {
		p := &b.parts[i]
		b.callFor(p).add(p)
	}
	b.prepare()
}

// callFor returns the script call for p: one that is open for further parts, or a new one.
func (b *batch) callFor(p *part) *scriptCall {
	shares := len(b.parts) > 1 && p.shares()
	if shares {
		i := slices.IndexFunc(b.open, func(c *scriptCall) bool { return c.takes(p) })
		switch {
		case i < 0:
		case (b.open[i].parts+1)*p.first.size() > maxParts:
			b.open = slices.Delete(b.open, i, i+1)
		case b.open[i].parts > 1 || p.first.groups():
			return b.open[i]
		}
	}
	b.calls = append(b.calls, callOf(p))
	c := &b.calls[len(b.calls)-1]
	if shares {
		if len(b.open) == maxOpen {
			b.open = slices.Delete(b.open, 0, 1)
		}
		b.open = append(b.open, c)
	}
	return c
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

// prepare sets the arguments of all script calls, and makes the calls pending.
func (b *batch) prepare() {
	keys, units := 0, 0
	for i := range b.calls {
		c := &b.calls[i]
		keys, units = keys+c.parts*c.first.size(), units+c.parts*c.first.units()
	}
	b.keys, b.units = slices.Grow(b.keys, keys)[:keys], slices.Grow(b.units, units)[:units]
	ofKeys, ofUnits := b.keys, b.units
	for i := range b.calls {
		c := &b.calls[i]
		keys, units = c.parts*c.first.size(), c.parts*c.first.units()
		c.prepare(ofKeys[:keys], ofUnits[:units])
		ofKeys, ofUnits = ofKeys[keys:], ofUnits[units:]
		b.pending = append(b.pending, c)
	}
	for i := range b.parts {
		p := &b.parts[i]
		if joint := p.first.Joint; joint != nil {
			copy(p.call.Keys[p.index*len(joint.Keys):], joint.Keys)
			copy(p.call.Units[p.index*len(joint.Units):], joint.Units)
			continue
		}
		if p.call.Keys[p.index] = p.first.Key; p.units > 0 {
			p.call.Units[p.index] = strconv.FormatInt(p.units, 10)
		}
	}
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

// divide makes a separate script call for each part of those calls that a server refused because of
// their keys. The refusal proves that nothing ran.
func (b *batch) divide() (singles []*scriptCall) {
	for i := range b.parts {
		p := &b.parts[i]
		if of := p.call; of != nil && of.parts > 1 && of.Err != nil && connection.RefusesKeys(of.Err) {
			c, keys, units := callOf(p), p.first.size(), p.first.units()
			c.again, c.trace = true, of.trace
			ofKeys, ofUnits := of.Keys[p.index*keys:][:keys], of.Units[p.index*units:][:units]
			c.add(p)
			c.prepare(ofKeys, ofUnits)
			singles = append(singles, &c)
		}
	}
	return singles
}
