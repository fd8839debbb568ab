package send

import (
	"slices"
	"time"
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

// deliver passes each caller its part of the reply. It reports whether any caller had left.
func (p *part) deliver(now time.Duration) (left bool) {
	reply, err := p.call.replyTo(p.index)
	answer := Answer{Reply: reply, Texts: p.call.textsOf(p.index), Trace: p.call.trace}
	answer.Trace.Merged = p.merged
	for r := p.first; r != nil; {
		next, units, batch := r.next, r.Units, r.batch // once delivered, r belongs to its caller
		if r.deliver(answer, err, now) {
			batch.settled.Add(1)
		} else {
			left = true
		}
		r = next
		answer.First += units
	}
	return left
}
