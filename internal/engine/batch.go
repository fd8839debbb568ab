package engine

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// A batch is what a sender sends at once, as one pipeline. It is also the context of the client:
// Err is non-nil once all callers have left, so that nothing more is sent for them.
type batch struct {
	noDeadline
	redis    *redis
	queue    *queue
	taken    int        // requests taken from the queue
	requests []*request // requests whose callers still waited
	calls    []ScriptCall
	byKey    map[string]int // index in calls
	pending  []*ScriptCall  // not sent yet

	leavers  atomic.Int32 // callers that did not wait for the replies
	replaced atomic.Bool  // another sender has replaced this one
}

// maxAttempts is the most attempts in one script call.
const maxAttempts = 4096

func (s *redis) newBatch(q *queue) *batch {
	b, _ := s.batches.Get().(*batch)
	if b == nil {
		b = &batch{redis: s, byKey: map[string]int{}}
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

// send sends the batch and delivers the replies. It reports whether callers left meanwhile. In that
// case the batch must not be used again, and another sender has replaced this one.
func (b *batch) send() (replaced bool) {
	hash, err := b.redis.script.hash(b, b.redis.client()) // before the claim: until then, callers that leave were not sent
	b.claim()
	if len(b.requests) == 0 {
		return false
	}
	b.merge()
	if err != nil {
		b.fail(err)
	} else {
		b.exchange("EVALSHA", hash)
		b.loadScript(hash)
	}
	leavers := b.deliver()
	if leavers > 0 {
		b.queue.abandoned.Add(-leavers)
		return true
	}
	b.reset()
	return false
}

// claim keeps the requests whose callers still wait. From now on they may run.
func (b *batch) claim() {
	b.requests = slices.DeleteFunc(b.requests, func(q *request) bool {
		q.batch = b
		return !q.state.CompareAndSwap(queued, sent)
	})
}

// merge combines attempts of one unit on the same event into one script call.
func (b *batch) merge() {
	for _, q := range b.requests {
		if c := b.mergesWith(q); c != nil {
			c.last.next, c.last = q, q
			c.attempts += q.attempts
		} else {
			b.calls = append(b.calls, ScriptCall{first: q, last: q, attempts: q.attempts})
		}
	}
	for i := range b.calls {
		b.redis.prepare(&b.calls[i])
		b.pending = append(b.pending, &b.calls[i])
	}
}

// prepare sets the arguments of a script call.
func (s *redis) prepare(c *ScriptCall) {
	q, n := c.first, c.first.n
	c.Key, c.Time, c.Rest = q.key, q.now, q.args
	c.Verb = Verb(q.verb).sent()
	if c.attempts > 1 {
		c.reply.merged = true
		c.Verb, n = s.merging(q.verb), int64(c.attempts)
	}
	c.reply.verb, c.Units = c.Verb, integer(n)
}

// mergesWith returns the script call that a request can join, or nil. Only the last call on the
// event can be joined, so that requests on an event are executed in order of arrival.
func (b *batch) mergesWith(q *request) *ScriptCall {
	if len(b.requests) == 1 {
		return nil
	}
	if i, found := b.byKey[q.key]; found && b.calls[i].takes(q) {
		return &b.calls[i]
	}
	b.byKey[q.key] = len(b.calls)
	return nil
}

// takes reports whether a request can join the script call.
func (c *ScriptCall) takes(q *request) bool {
	return q.merges() && c.first.verb == q.verb && c.first.n == q.n && c.first.now == q.now &&
		c.first.limits.same(q.limits) && c.attempts+q.attempts <= maxAttempts
}

// loadScript resends script calls after a server replied NOSCRIPT. The first call brings the
// script, and the others are sent again by its hash.
func (b *batch) loadScript(hash string) {
	b.pending = slices.DeleteFunc(b.pending, func(c *ScriptCall) bool { return c.err == nil || !isNoScript(c.err) })
	if unknown := b.pending; len(unknown) > 0 {
		b.pending = unknown[:1]
		b.exchange("EVAL", b.redis.script.source)
		b.pending = unknown[1:]
		b.exchange("EVALSHA", hash)
	}
}

// exchange sends the pending script calls, if there are any.
func (b *batch) exchange(command, script string) {
	if len(b.pending) == 0 {
		return
	}
	began := b.redis.elapsed()
	b.redis.client().Send(b, command, script, b.pending)
	took := b.redis.elapsed() - began
	for _, c := range b.pending {
		c.reply.took += took
		c.reply.batch = len(b.requests)
	}
}

// fail sets the error of script calls that could not be sent.
func (b *batch) fail(err error) {
	for _, c := range b.pending {
		c.err = err
	}
}

// deliver gives each caller its part of the replies. It returns how many callers had left.
func (b *batch) deliver() (leavers int32) {
	now := b.redis.elapsed()
	for i := range b.calls {
		c := &b.calls[i]
		for q := c.first; q != nil; {
			next, attempts := q.next, q.attempts // once delivered, q belongs to its caller
			if !q.deliver(c.reply, c.err, now) {
				leavers++
			}
			q = next
			c.reply.first += attempts
		}
	}
	return leavers
}

// deliver gives the caller the outcome of its request. It returns false if the caller has left.
func (q *request) deliver(r reply, cause error, now time.Duration) bool {
	call := q.call
	if !q.state.CompareAndSwap(sent, done) {
		return false
	}
	q.reply, q.cause, q.doneAt = r, cause, now
	call.done <- q
	return true
}

// reset empties the batch.
func (b *batch) reset() {
	clear(b.requests)
	clear(b.calls)
	clear(b.byKey)
	b.requests, b.calls, b.pending = b.requests[:0], b.calls[:0], b.pending[:0]
}

// abandon notes that a caller has left. When the first caller leaves, another sender replaces this
// one, which may hang.
func (b *batch) abandon() {
	b.leavers.Add(1)
	if b.replaced.CompareAndSwap(false, true) {
		b.queue.replace(b.taken)
	}
}

// A script is a Lua script, which servers know by its hash.
type script struct {
	source string
	known  atomic.Pointer[string] // nil in FIPS mode, until a server has computed the hash
}

// hash returns the hash of the script. In FIPS mode, where SHA-1 may be forbidden, a server
// computes it.
func (s *script) hash(ctx context.Context, client Client) (string, error) {
	if hash := s.known.Load(); hash != nil {
		return *hash, nil
	}
	hash, err := client.Load(ctx, s.source)
	if err == nil {
		s.known.Store(&hash)
	} else if _, isReply := replied(err); !isReply {
		err = fmt.Errorf("%w: %w", errNotLoaded, err)
	}
	return hash, err
}
