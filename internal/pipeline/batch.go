package pipeline

import (
	"context"
	"slices"
	"sync/atomic"
)

// A batch is what a sender sends at once, as one pipeline. It is also the context of the client:
// Err is non-nil once no caller waits for it, so that nothing more is sent for them.
type batch struct {
	context.Context // Background, except for Err

	conn     *Connection
	queue    *queue
	taken    int        // requests taken from the queue
	shares   []share    // of them
	requests []*Request // requests whose callers were still waiting
	parts    []part
	byKey    map[string]*part // the last part on each key
	calls    []ScriptCall
	open     []*ScriptCall // calls that more parts can join
	keys     []string      // of all calls
	units    []string      // of all calls
	pending  []*ScriptCall // not sent yet
	unknown  []*ScriptCall // pending after these, which load their scripts
	unloaded map[*Script]error

	settled  atomic.Int32 // number of callers that have their replies, or have left
	replaced atomic.Bool  // another sender has replaced this one
}

// A share is the number of requests that a batch took from a lane.
type share struct {
	of *lane
	n  int
}

func (c *Connection) newBatch(q *queue) *batch {
	b, _ := c.batches.Get().(*batch)
	if b == nil {
		b = &batch{Context: context.Background(), conn: c, byKey: map[string]*part{}}
	}
	b.queue = q
	return b
}

// Err returns an error once no caller waits for the batch.
func (b *batch) Err() error {
	if int(b.settled.Load()) == len(b.requests) {
		return context.Canceled
	}
	return nil
}

// load makes the hashes of all scripts known, or records why it cannot.
func (b *batch) load() {
	for _, r := range b.requests {
		if r.Script.known.Load() != nil || b.unloaded[r.Script] != nil {
			continue
		}
		if err := r.Script.load(b, b.conn.client()); err != nil {
			if b.unloaded == nil {
				b.unloaded = map[*Script]error{}
			}
			b.unloaded[r.Script] = err
		}
	}
}

// claim keeps the requests whose callers are still waiting. From now on they may run.
func (b *batch) claim() {
	now := b.conn.elapsed()
	b.requests = slices.DeleteFunc(b.requests, func(r *Request) bool {
		r.batch, r.claimed = b, now
		return !r.state.CompareAndSwap(queued, sent)
	})
}

// send sends the pending script calls, if there are any.
func (b *batch) send() {
	if len(b.pending) == 0 {
		return
	}
	began := b.conn.elapsed()
	b.queue.silence.begin(began)
	b.conn.client().Send(b, b.pending)
	now := b.conn.elapsed()
	b.queue.silence.end(began, now, slices.ContainsFunc(b.pending, (*ScriptCall).isAnswered))
	for _, c := range b.pending {
		c.again = false
		c.trace.InRedis += now - began
		c.trace.Batch = len(b.requests)
		c.noteLoss(b.conn)
	}
}

// repeat makes pending what must be sent again because it did not run, and reports whether there is
// anything. A call for several keys that a server refused is sent key by key. If a server replied
// NOSCRIPT, the first call of each script sends its source, and then the others are sent again by
// its hash.
func (b *batch) repeat() bool {
	if len(b.unknown) == 0 && !slices.ContainsFunc(b.pending, (*ScriptCall).repeats) {
		return false
	}
	before := b.pending
	b.pending, b.unknown = append(b.divide(), b.unknown...), nil
	for _, c := range before {
		if !c.repeats() || refusesKeys(c.err) {
			continue
		}
		c.repeated, c.again = true, true
		if slices.ContainsFunc(b.pending, func(other *ScriptCall) bool { return other.brings(c.first.Script) }) {
			b.unknown = append(b.unknown, c)
		} else {
			b.pending = append(b.pending, c)
			c.Command, c.Script = "EVAL", c.first.Script.source
		}
	}
	return true
}

// deliver gives each caller its part of the replies, except those that are sent again. It reports
// whether callers had left. In that case the batch must not be used again, and another sender has
// replaced this one.
func (b *batch) deliver() (replaced bool) {
	now := b.conn.elapsed()
	for i := range b.parts {
		p := &b.parts[i]
		if p.call != nil && !p.call.again {
			replaced = p.deliver(now) || replaced
			p.call = nil
		}
	}
	return replaced
}

// reset empties the batch.
func (b *batch) reset() {
	clear(b.requests)
	clear(b.parts)
	clear(b.calls)
	clear(b.byKey)
	clear(b.unloaded)
	clear(b.keys)
	b.requests, b.parts, b.calls, b.open, b.pending = b.requests[:0], b.parts[:0], b.calls[:0], b.open[:0], b.pending[:0]
	b.settled.Store(0)
}

// abandon records that a caller has left. When the first caller leaves, another sender replaces
// this one, which may hang.
func (b *batch) abandon() {
	b.settled.Add(1)
	if b.replaced.CompareAndSwap(false, true) {
		b.queue.replace(b)
	}
}
