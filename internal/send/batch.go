package send

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/slidegate/slidegate/internal/connection"
)

const (
	maxParts = 64 // the most parts in one script call; the gain from more would be small
	maxOpen  = 4  // the most script calls that parts can join at a time
)

// A batch holds the requests that a sender sends together, as one pipeline. It is also the context
// that is passed to the client: once no caller waits for the batch any more, Err is non-nil, so
// that the client sends nothing more, except for a script that the server does not know.
type batch struct {
	context.Context // Background, except for Err

	office *office
	queue  *queue

	// The queue's mutex guards these fields.

	size int     // number of requests taken from the queue
	from []taken // the lanes that they were taken from

	// The sender owns these fields.

	requests []*Request // requests whose callers were still waiting
	parts    []part
	byKey    map[string]*part // the last part for each key
	calls    []scriptCall
	open     []*scriptCall            // calls that further parts can join
	keys     []string                 // of all calls
	units    []string                 // of all calls
	pending  []*scriptCall            // calls to send next
	unloaded []*scriptCall            // calls to send after the pending ones, which load the scripts
	sending  []*connection.ScriptCall // the pending calls, as the Client gets them

	// Callers that leave share these fields with the sender.

	gone     atomic.Int32 // number of callers that have received their replies, or have left
	replaced atomic.Bool  // another sender has replaced this one
	loads    atomic.Bool  // the batch contains the source of a script
}

// taken records how many requests a batch took from a lane.
type taken struct {
	lane *lane
	n    int
}

func (o *office) newBatch(q *queue) *batch {
	b, _ := o.batches.Get().(*batch)
	if b == nil {
		b = &batch{Context: context.Background(), office: o, byKey: map[string]*part{}}
	}
	b.queue = q
	return b
}

// Err returns an error once no caller waits for the batch any more. But a script is loaded even
// then: callers that never wait long enough must not keep it unknown for everybody.
func (b *batch) Err() error {
	if int(b.gone.Load()) == len(b.requests) && !b.loads.Load() {
		return context.Canceled
	}
	return nil
}

// claim removes the requests whose callers have left. From this point on, the remaining requests
// may run.
func (b *batch) claim() {
	b.requests = slices.DeleteFunc(b.requests, func(r *Request) bool {
		r.batch = b
		return !r.state.CompareAndSwap(queued, sent)
	})
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

// send sends the pending script calls, if any.
func (b *batch) send() {
	if len(b.pending) == 0 {
		return
	}
	b.sending = b.sending[:0]
	for _, c := range b.pending {
		b.sending = append(b.sending, &c.ScriptCall)
	}
	began := b.office.conn.Elapsed()
	replies := b.queue.silence.sent(began)
	b.office.conn.Client().Send(b, b.sending)
	now := b.office.conn.Elapsed()
	b.queue.silence.ended(now, replies, slices.ContainsFunc(b.pending, func(c *scriptCall) bool { return connection.IsAnswer(c.Err) }))
	for _, c := range b.pending {
		c.again = false
		c.trace.InRedis += now - began
		c.trace.Batch = len(b.requests)
		c.noteLoss(b.office)
	}
}

// repeat makes the calls pending that did not run and must be sent again, and reports whether there
// are any. A call for several keys that a server refused is sent again for each key separately. If
// a server replied NOSCRIPT, the first call of each script is sent again with the script's source,
// and after that the other calls with its hash. They can reach another server, which does not know
// the script either: then each of them is sent with the source.
func (b *batch) repeat() bool {
	if len(b.unloaded) == 0 && !slices.ContainsFunc(b.pending, (*scriptCall).repeats) {
		return false
	}
	before := b.pending
	b.pending, b.unloaded = append(b.divide(), b.unloaded...), nil
	for _, c := range before {
		if !c.repeats() || connection.RefusesKeys(c.Err) {
			continue
		}
		again := c.repeated
		c.repeated, c.again = true, true
		if !again && slices.ContainsFunc(b.pending, func(other *scriptCall) bool { return other.brings(c.script) }) {
			b.unloaded = append(b.unloaded, c)
		} else {
			b.pending = append(b.pending, c)
			c.Command, c.Script = "EVAL", c.script.Source
			b.loads.Store(true)
		}
	}
	return true
}

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

// deliver passes each caller its part of the replies, except for calls that are sent again. It
// reports whether any caller had left. If so, another sender has replaced this one, and the batch
// must not be reused.
func (b *batch) deliver() (replaced bool) {
	now := b.office.conn.Elapsed()
	for i := range b.parts {
		p := &b.parts[i]
		if p.call != nil && !p.call.again {
			replaced = p.deliver(now) || replaced
			p.call = nil
		}
	}
	return replaced
}

// reset empties the batch for reuse.
func (b *batch) reset() {
	clear(b.requests)
	clear(b.parts)
	clear(b.calls)
	clear(b.byKey)
	clear(b.keys)
	clear(b.sending)
	b.requests, b.parts, b.calls, b.open, b.pending = b.requests[:0], b.parts[:0], b.calls[:0], b.open[:0], b.pending[:0]
	b.gone.Store(0)
	b.loads.Store(false)
}

// abandon records that a caller has left. When the first caller leaves, another sender replaces the
// batch's sender, which may be blocked.
func (b *batch) abandon() {
	b.gone.Add(1)
	if b.replaced.CompareAndSwap(false, true) {
		b.queue.replace(b)
	}
}
