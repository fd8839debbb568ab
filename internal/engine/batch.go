package engine

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// A batch is what a sender sends at once, as one pipeline. It is also the context that rueidis
// gets: Err is non-nil once all callers have left, so that nothing more is sent for them.
type batch struct {
	endless
	redis    *redis
	queue    *queue
	taken    int        // requests taken from the queue
	requests []*request // of those, the ones whose callers still waited
	calls    []scriptCall
	byKey    map[string]int // index in calls
	pending  []*scriptCall  // to be sent
	commands rueidis.Commands

	leavers  atomic.Int32 // callers that did not wait for the replies
	replaced atomic.Bool  // another sender took the place of this one
}

// A scriptCall is one call of the script, for one request or several that are merged.
type scriptCall struct {
	first, last *request
	attempts    int
	reply       reply
	err         error
}

// maxAttempts is how many attempts one script call can take.
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

// send sends the batch and delivers the replies. It reports whether callers left meanwhile: then
// the batch is not used again, and another sender has taken the place of this one.
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
		b.exchange(hash)
		b.bringScript(hash)
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

// merge makes one script call of all attempts of one unit on the same event.
func (b *batch) merge() {
	for _, q := range b.requests {
		if c := b.mergesWith(q); c != nil {
			c.last.next, c.last = q, q
			c.attempts += q.attempts
		} else {
			b.calls = append(b.calls, scriptCall{first: q, last: q, attempts: q.attempts})
		}
	}
	for i := range b.calls {
		b.pending = append(b.pending, &b.calls[i])
	}
}

// mergesWith returns the script call that a request can join, or nil. It is the last one on the
// event, so that requests on an event are executed in order of arrival.
func (b *batch) mergesWith(q *request) *scriptCall {
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
func (c *scriptCall) takes(q *request) bool {
	return q.merges() && c.first.verb == q.verb && c.first.n == q.n && c.first.now == q.now &&
		c.first.limits.same(q.limits) && c.attempts+q.attempts <= maxAttempts
}

// bringScript repairs script calls that found a server without the script: one call brings it, and
// the others are sent again.
func (b *batch) bringScript(hash string) {
	b.pending = slices.DeleteFunc(b.pending, func(c *scriptCall) bool { return c.err == nil || !isNoScript(c.err) })
	if unknown := b.pending; len(unknown) > 0 {
		b.pending = unknown[:1]
		b.exchange("")
		b.pending = unknown[1:]
		b.exchange(hash)
	}
}

// exchange sends what is pending as one pipeline: by the hash of the script, or in full without
// one.
func (b *batch) exchange(hash string) {
	client, broken, began := b.redis.client(), false, b.redis.elapsed()
	for _, c := range b.pending {
		b.commands = append(b.commands, b.command(c, hash))
	}
	if len(b.pending) == 1 {
		b.pending[0].take(client.Do(b, b.commands[0]))
	} else {
		for i, result := range client.DoMulti(b, b.commands...) {
			b.pending[i].take(result)
			broken = broken || result.NonRedisError() != nil
		}
	}
	took := b.redis.elapsed() - began
	for _, c := range b.pending {
		c.reply.took += took
		c.reply.batch = len(b.requests)
	}
	if broken { // rueidis may still be writing these
		b.commands = nil
	}
	clear(b.commands)
	b.commands = b.commands[:0]
}

// command returns the script call for rueidis: by the hash of the script, or in full without one.
func (b *batch) command(c *scriptCall, hash string) rueidis.Completed {
	name, script := "EVALSHA", hash
	if hash == "" {
		name, script = "EVAL", b.redis.script.source
	}
	q, n := c.first, c.first.n
	c.reply.verb = Verb(q.verb).sent()
	if c.attempts > 1 {
		c.reply.merged = true
		c.reply.verb, n = b.redis.merging(q.verb), int64(c.attempts)
	}
	return b.redis.client().B().Arbitrary(name, script, "1").Keys(q.key).Args(c.reply.verb, q.now, integer(n)).Args(q.args...).Build()
}

// take keeps what rueidis got. RedisResult.AsIntSlice would take a null or an array for an integer.
func (c *scriptCall) take(result rueidis.RedisResult) {
	values, err := result.ToArray()
	c.reply.raw, c.err = make([]int64, len(values)), err
	for i := 0; i < len(values) && c.err == nil; i++ {
		c.reply.raw[i], c.err = values[i].ToInt64()
	}
}

// fail is the outcome of script calls that could not be sent.
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

// deliver gives the caller the outcome of its request. It reports false if the caller has left.
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

// abandon notes that a caller has left. The first to leave has another sender take the place of
// this one, which may hang.
func (b *batch) abandon() {
	b.leavers.Add(1)
	if b.replaced.CompareAndSwap(false, true) {
		b.queue.replace(b.taken)
	}
}

// A script is known to servers by its hash.
type script struct {
	source string
	known  atomic.Pointer[string] // nil in FIPS mode, until a server has computed the hash
}

// hash returns the hash. In FIPS mode, where SHA-1 may be forbidden, a server computes it.
func (s *script) hash(ctx context.Context, client rueidis.Client) (string, error) {
	if hash := s.known.Load(); hash != nil {
		return *hash, nil
	}
	hash, err := client.Do(ctx, client.B().ScriptLoad().Script(s.source).Build()).ToString()
	if err == nil {
		s.known.Store(&hash)
	} else if _, isReply := rueidis.IsRedisErr(err); !isReply {
		err = fmt.Errorf("%w: %w", errNotLoaded, err)
	}
	return hash, err
}
