package pipeline

import (
	"slices"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/lua"
)

// A part is the portion of a script call that serves one request, or several merged requests for
// the same key.
type part struct {
	first, last *Request
	units       int64 // the total of all its requests
	merged      bool  // has several requests
	crowded     bool  // the batch has other parts for the key

	call  *ScriptCall
	place int // index of the part in the call
}

const (
	maxParts = 64 // the most parts in one script call; the gain from more would be small
	maxOpen  = 4  // the most script calls that parts can join at a time
)

// add merges r into the part if possible, and reports whether it did. The part may be nil.
func (p *part) add(r *Request) bool {
	if p == nil || !p.first.merges() || !r.merges() || !r.fits(p.first) {
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
			b.isLast(p, r.Key)
			for _, key := range r.Joint.others() {
				b.isLast(p, key)
			}
		}
	}
}

// isLast records that p is the last part for key.
func (b *batch) isLast(p *part, key string) {
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

func (b *batch) newCall(p *part) *ScriptCall {
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
func callOf(p *part) ScriptCall {
	joint := p.first.Joint
	return ScriptCall{first: p.first, joint: joint != nil, each: joint != nil && joint.Each}
}

// takes reports whether p can join the call. Only parts of the same limiter share a call. If some
// of them consist of merged requests, each of them is sent as if it did.
func (c *ScriptCall) takes(p *part) bool {
	if c.merged && !p.first.merges() || p.merged && c.unmerged {
		return false
	}
	return p.first.lane == c.first.lane && p.first.fits(c.first)
}

// add adds p to the call.
func (c *ScriptCall) add(p *part) {
	p.call, p.place = c, c.parts
	c.parts++
	c.merged, c.unmerged = c.merged || p.merged, c.unmerged || !p.first.merges()
}

// callFor returns the script call that p can join, or nil if p needs a new call.
func (b *batch) callFor(p *part) *ScriptCall {
	if len(b.open) == 0 || !p.shares() {
		return nil
	}
	i := slices.IndexFunc(b.open, func(c *ScriptCall) bool { return c.takes(p) })
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
			copy(p.call.Keys[p.place*len(joint.Keys):], joint.Keys)
			copy(p.call.Units[p.place*len(joint.Units):], joint.Units)
			continue
		}
		if p.call.Keys[p.place] = p.first.Key; p.units > 0 {
			p.call.Units[p.place] = strconv.FormatInt(p.units, 10)
		}
	}
}

// prepare sets the command and its arguments. The caller fills in keys and units.
func (c *ScriptCall) prepare(keys, units []string) {
	r := c.first
	c.script, c.Verb = r.Script, r.Verb
	if c.merged {
		c.script, c.Verb = r.Merge.Script, r.Merge.Verb
	}
	c.Command, c.Script, c.Keys, c.Time, c.Units, c.Rest = "EVALSHA", c.script.Hash, keys, r.Time, units, r.Rest
}

// deliver passes each caller its part of the reply. It reports whether any caller had left.
func (p *part) deliver(now time.Duration) (left bool) {
	reply, err := p.call.replyTo(p.place)
	if p.first.Joint != nil {
		p.first.Joint.Texts = p.call.textsOf(p.place)
	}
	if p.first.InText {
		p.first.Texts = p.call.texts
	}
	trace, first := p.call.trace, int64(0)
	trace.Merged = p.merged
	for r := p.first; r != nil; {
		next, units := r.next, r.Units // once delivered, r belongs to its caller
		if batch := r.batch; r.deliver(trace, reply, first, err, now) {
			batch.settled.Add(1)
		} else {
			r.arriveLate(err, now)
			left = true
		}
		r = next
		first += units
	}
	return left
}

// repeats reports whether the script call did not run and can be sent again: with the script's
// source, or separately for each part.
func (c *ScriptCall) repeats() bool {
	return c.err != nil && (isNoScript(c.err) && c.Command == "EVALSHA" || !c.repeated && c.parts > 1 && refusesKeys(c.err))
}

// brings reports whether the call contains the source of s.
func (c *ScriptCall) brings(s *lua.Script) bool { return c.Command == "EVAL" && c.script == s }

// divide makes a separate script call for each part of those calls that a server refused because of
// their keys. The refusal proves that nothing ran.
func (b *batch) divide() (singles []*ScriptCall) {
	for i := range b.parts {
		p := &b.parts[i]
		if of := p.call; of != nil && of.parts > 1 && of.err != nil && refusesKeys(of.err) {
			c, keys, units := callOf(p), p.first.size(), p.first.units()
			c.again, c.trace = true, of.trace
			ofKeys, ofUnits := of.Keys[p.place*keys:][:keys], of.Units[p.place*units:][:units]
			c.add(p)
			c.prepare(ofKeys, ofUnits)
			singles = append(singles, &c)
		}
	}
	return singles
}
