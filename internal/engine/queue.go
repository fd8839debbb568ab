package engine

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A few senders serve a slot range. Each takes all that is queued, so that requests made at the same time travel together. If
// others are under way, or if nothing is queued, it first lets callers run: large batches cost the client and the server less,
// and to keep a sender costs less than to start one. More senders would make smaller batches; with one, client and server would
// wait for each other.
const (
	maxSenders = 4
	crowd      = 3   // from this many requests on, queued or under way, a sender first lets callers run
	maxBatch   = 512 // requests, so that the replies to the first do not wait for too many others
)

// While other goroutines use all cores, a sender that lets callers run waits for each of those goroutines, and the callers of the
// next batch wait with it. Where that takes long, senders do it rarely.
const (
	slowYield = 15 * time.Millisecond // Go lets a goroutine that does not wait run for 10 ms at a time
	yieldRest = 20                    // for this many times as long as a slow yield took, there is none
)

// A queue holds the requests of one slot range that no sender has taken. Senders are goroutines that end when the queue is
// empty.
type queue struct {
	redis     *redis
	serve     func() // run, bound once, so that a sender costs no allocation
	abandoned *atomic.Int32

	mu       sync.Mutex
	waiting  []*request
	gone     int // how many of waiting have left
	underWay int // how many requests senders have taken, without those of senders that were replaced
	senders  int
	yielding int           // how many senders let callers run, and then take what is queued
	yieldAt  time.Duration // when senders may yield again; since the limiter was made
}

// put appends a request, and starts a sender unless one will take it at once.
func (q *queue) put(r *request) {
	r.next = nil
	r.state.Store(queued)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, r)
	q.startSender()
}

// startSender starts a sender if requests wait, no sender is about to take them, and there may be one more.
func (q *queue) startSender() {
	if len(q.waiting) > 0 && q.yielding == 0 && q.senders < maxSenders {
		q.senders++
		go q.serve()
	}
}

// run sends batches until the queue is empty. A sender whose callers left a batch that hangs has been replaced.
func (q *queue) run() {
	b := q.redis.newBatch(q)
	for q.take(b) {
		if replaced := b.send(); replaced {
			return
		}
	}
	q.redis.batches.Put(b)
}

// take moves requests from the queue to an empty batch. It reports false, and counts the sender out, if there are none.
func (q *queue) take(b *batch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.underWay -= b.taken
	if n := len(q.waiting); n == 0 || n+q.underWay >= crowd {
		q.yield()
	}
	n := min(len(q.waiting), maxBatch)
	b.taken = n
	if n == 0 {
		q.senders--
		return false
	}
	q.underWay += n
	b.requests = append(b.requests, q.waiting[:n]...)
	q.drop(n)
	q.startSender()
	return true
}

// yield lets callers run, unless that took long a short time ago.
func (q *queue) yield() {
	began := q.redis.elapsed()
	if began < q.yieldAt {
		return
	}
	q.yielding++
	q.mu.Unlock()
	runtime.Gosched()
	now := q.redis.elapsed()
	q.mu.Lock()
	q.yielding--
	if took := now - began; took > slowYield {
		q.yieldAt = now + yieldRest*min(took, time.Second) // a machine that was suspended takes longer
	}
}

// drop removes the first n requests.
func (q *queue) drop(n int) {
	kept := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[kept:])
	if q.waiting = q.waiting[:kept]; kept == 0 {
		q.gone = 0
	}
}

// replace counts out a sender that hangs with its batch, and starts another if requests wait.
func (q *queue) replace(taken int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.underWay -= taken
	q.senders--
	q.startSender()
}

// forget notes that a waiting request has left. While Redis hangs, this bounds the queue by the callers that still wait.
func (q *queue) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gone++; q.gone > maxBatch && q.gone > len(q.waiting)/2 {
		q.waiting = slices.DeleteFunc(q.waiting, func(r *request) bool { return r.state.Load() == left })
		q.gone = 0
	}
}
