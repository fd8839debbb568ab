package pipeline

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
)

// A batch is what a sender sends at once, as one pipeline. It is also the context of the client:
// Err is non-nil once all callers have left, so that nothing more is sent for them.
type batch struct {
	context.Context // Background, apart from Err

	conn     *Connection
	queue    *queue
	taken    int        // requests taken from the queue
	shares   []share    // of them
	requests []*Request // requests whose callers still waited
	calls    []ScriptCall
	byKey    map[string]int // index in calls of the last one on a key
	pending  []*ScriptCall  // not sent yet
	unloaded map[*Script]error

	leavers  atomic.Int32 // callers that did not wait for the replies
	replaced atomic.Bool  // another sender has replaced this one
}

// A share is how many requests of a lane a batch took.
type share struct {
	of *lane
	n  int
}

// maxMerged is the most units in one merged script call.
const maxMerged = 4096

func (c *Connection) newBatch(q *queue) *batch {
	b, _ := c.batches.Get().(*batch)
	if b == nil {
		b = &batch{Context: context.Background(), conn: c, byKey: map[string]int{}}
	}
	b.queue = q
	return b
}

// Err returns an error once all callers have left.
func (b *batch) Err() error {
	if int(b.leavers.Load()) == len(b.requests) {
		return context.Canceled
	}
	return nil
}

// load makes the hashes of all scripts known, or notes why it cannot.
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

// claim keeps the requests whose callers still wait. From now on they may run.
func (b *batch) claim() {
	b.requests = slices.DeleteFunc(b.requests, func(r *Request) bool {
		r.batch = b
		return !r.state.CompareAndSwap(queued, sent)
	})
}

// merge makes script calls of the requests. They are pending, except those whose script is not
// loaded.
func (b *batch) merge() {
	for _, r := range b.requests {
		if c := b.callFor(r); c != nil {
			c.last.next, c.last = r, r
			c.units += r.Units
			c.trace.Merged = true
		} else {
			b.calls = append(b.calls, ScriptCall{first: r, last: r, units: r.Units, trace: Trace{Merged: r.Group != "" && r.Units > 1}})
		}
	}
	for i := range b.calls {
		c := &b.calls[i]
		c.prepare()
		if c.err = b.unloaded[c.first.Script]; c.err == nil {
			b.pending = append(b.pending, c)
		}
	}
}

// callFor returns the script call that a request joins, or nil if it begins one. Only the last call
// on a key can be joined, so that requests on a key are executed in order of arrival.
func (b *batch) callFor(r *Request) *ScriptCall {
	if len(b.requests) == 1 {
		return nil
	}
	if i, found := b.byKey[r.Key]; found && r.joins(b.calls[i].first) && b.calls[i].units+r.Units <= maxMerged {
		return &b.calls[i]
	}
	b.byKey[r.Key] = len(b.calls)
	return nil
}

// prepare sets the command, and its arguments.
func (c *ScriptCall) prepare() {
	r := c.first
	c.Command, c.Key, c.Verb, c.Time, c.Units, c.Rest = "EVALSHA", r.Key, r.Verb, r.Time, strconv.FormatInt(c.units, 10), r.Rest
	if c.trace.Merged {
		c.Verb = r.Merged
	}
	if hash := r.Script.known.Load(); hash != nil {
		c.Script = *hash
	}
}

// send sends the pending script calls, if there are any.
func (b *batch) send() {
	if len(b.pending) == 0 {
		return
	}
	began := b.conn.elapsed()
	b.conn.client().Send(b, b.pending)
	took := b.conn.elapsed() - began
	for _, c := range b.pending {
		c.trace.InRedis += took
		c.trace.Batch = len(b.requests)
	}
}

// mend sends script calls again to which a server replied NOSCRIPT. The first call of each script
// brings the script, and then the others are sent again by its hash.
func (b *batch) mend() {
	unknown := slices.DeleteFunc(b.pending, func(c *ScriptCall) bool { return c.err == nil || !isNoScript(c.err) })
	if len(unknown) == 0 {
		return
	}
	b.pending = nil
	var others []*ScriptCall
	for _, c := range unknown {
		if slices.ContainsFunc(b.pending, func(other *ScriptCall) bool { return other.first.Script.same(c.first.Script) }) {
			others = append(others, c)
		} else {
			b.pending = append(b.pending, c)
			c.Command, c.Script = "EVAL", c.first.Script.source
		}
	}
	b.send()
	b.pending = others
	b.send()
}

// deliver gives each caller its part of the replies. It reports whether callers had left. In that
// case the batch must not be used again, and another sender has replaced this one.
func (b *batch) deliver() (replaced bool) {
	now := b.conn.elapsed()
	for i := range b.calls {
		c := &b.calls[i]
		first := int64(0)
		for r := c.first; r != nil; {
			next, units := r.next, r.Units // once delivered, r belongs to its caller
			if !r.deliver(c, first, now) {
				r.lane.abandoned.Add(-1)
				replaced = true
			}
			r = next
			first += units
		}
	}
	return replaced
}

// reset empties the batch.
func (b *batch) reset() {
	clear(b.requests)
	clear(b.calls)
	clear(b.byKey)
	clear(b.unloaded)
	b.requests, b.calls, b.pending = b.requests[:0], b.calls[:0], b.pending[:0]
}

// abandon notes that a caller has left. When the first caller leaves, another sender replaces this
// one, which may hang.
func (b *batch) abandon() {
	b.leavers.Add(1)
	if b.replaced.CompareAndSwap(false, true) {
		b.queue.replace(b)
	}
}
