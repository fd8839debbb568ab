package send

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/lua"
)

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

// merge adds each request to the last part for its key if possible, and otherwise makes a new part.
// So the requests for a key run in order of arrival.
func (b *batch) merge() {
	b.parts = slices.Grow(b.parts, len(b.requests))
	for _, r := range b.requests {
		if len(b.requests) > 1 && b.byKey[r.Key].add(r) {
			continue
		}
		b.parts = append(b.parts, part{first: r, last: r, units: r.Units})
		if p := &b.parts[len(b.parts)-1]; len(b.requests) > 1 {
			b.noteLast(p, r.Key)
			for _, key := range r.Joint.others() {
				b.noteLast(p, key)
			}
		}
	}
}

// noteLast records that p is the last part for key.
func (b *batch) noteLast(p *part, key string) {
	if before := b.byKey[key]; before != nil {
		before.crowded, p.crowded = true, true
	}
	b.byKey[key] = p
}

// group makes script calls from the parts, sets the arguments of the calls, and makes all calls
// pending.
func (b *batch) group() {
	b.calls = slices.Grow(b.calls, len(b.parts))
	for i := range b.parts {
		p := &b.parts[i]
		c := b.callFor(p)
		if c == nil {
			c = b.newCall(p)
		}
		c.add(p)
	}
	b.prepare()
}

func (b *batch) newCall(p *part) *scriptCall {
	b.calls = append(b.calls, callOf(p))
	c := &b.calls[len(b.calls)-1]
	if len(b.parts) > 1 && p.shares() {
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

// callFor returns the script call that p can join, or nil if p needs a new call.
func (b *batch) callFor(p *part) *scriptCall {
	if len(b.open) == 0 || !p.shares() {
		return nil
	}
	i := slices.IndexFunc(b.open, func(c *scriptCall) bool { return c.takes(p) })
	switch {
	case i < 0:
		return nil
	case (b.open[i].parts+1)*p.first.size() > maxParts:
		b.open = slices.Delete(b.open, i, i+1)
		return nil
	case b.open[i].parts == 1 && !p.first.groups():
		return nil
	}
	return b.open[i]
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

// deliver passes each caller its part of the reply. It reports whether any caller had left.
func (p *part) deliver(now time.Duration) (left bool) {
	reply, err := p.call.replyTo(p.index)
	if p.first.Joint != nil {
		p.first.Joint.Texts = p.call.textsOf(p.index)
	}
	if p.first.InText {
		p.first.Texts = p.call.Texts
	}
	trace, first := p.call.trace, int64(0)
	trace.Merged = p.merged
	for r := p.first; r != nil; {
		next, units, batch := r.next, r.Units, r.batch // once delivered, r belongs to its caller
		if r.deliver(trace, reply, first, err, now) {
			batch.settled.Add(1)
		} else {
			left = true
		}
		r = next
		first += units
	}
	return left
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
