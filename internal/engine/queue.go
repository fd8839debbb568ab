package engine

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A few senders serve a slot range. Each takes all queued requests, so that requests made at the
// same time share a batch. If others are in flight, or if nothing is queued, a sender first yields
// and lets callers run. Large batches cost the client and the server less, and keeping a sender
// costs less than starting one. More senders would make smaller batches. With only one, client and
// server would wait for each other.
const (
	maxSenders     = 4
	yieldThreshold = 3   // a sender yields from this many requests on, queued or in flight
	maxBatch       = 512 // requests, so that the replies to the first do not wait for too many others
)

// While other goroutines use all cores, a sender that yields waits for each of them,
// and the callers of the next batch wait with it. After a slow yield, senders do not yield for some
// time.
const (
	slowYield  = 15 * time.Millisecond // Go lets a goroutine that does not wait run for 10 ms at a time
	yieldPause = 20                    // senders do not yield for this many times the duration of a slow yield
)

// A queue holds the requests of one slot range that no sender has taken. Senders are goroutines
// that end when the queue is empty.
type queue struct {
	redis     *redis
	serve     func() // run, bound once, so that a sender costs no allocation
	abandoned *atomic.Int32

	mu       sync.Mutex
	waiting  []*request
	leavers  int // how many callers of waiting requests have left
	inFlight int // how many requests senders have taken, except senders that were replaced
	senders  int
	yielding int           // how many senders let callers run, and then take what is queued
	yieldAt  time.Duration // when senders may yield again, since the limiter was made
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

// startSender starts a sender if requests wait, no sender is about to take them, and there are
// fewer than maxSenders.
func (q *queue) startSender() {
	if len(q.waiting) > 0 && q.yielding == 0 && q.senders < maxSenders {
		q.senders++
		go q.serve()
	}
}

// run sends batches until the queue is empty, or until another sender has replaced this one,
// because its batch hung and callers left.
func (q *queue) run() {
	b := q.redis.newBatch(q)
	for q.take(b) {
		if replaced := b.send(); replaced {
			return
		}
	}
	q.redis.batches.Put(b)
}

// take moves requests from the queue to an empty batch. If there are none, it removes the sender
// from the count, and returns false.
func (q *queue) take(b *batch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inFlight -= b.taken
	if n := len(q.waiting); n == 0 || n+q.inFlight >= yieldThreshold {
		q.yield()
	}
	n := min(len(q.waiting), maxBatch)
	b.taken = n
	if n == 0 {
		q.senders--
		return false
	}
	q.inFlight += n
	b.requests = append(b.requests, q.waiting[:n]...)
	q.drop(n)
	q.startSender()
	return true
}

// yield lets callers run, unless the last yield was slow and a short time ago.
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
		q.yieldAt = now + yieldPause*min(took, time.Second) // a machine that was suspended takes longer
	}
}

// drop removes the first n requests.
func (q *queue) drop(n int) {
	kept := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[kept:])
	if q.waiting = q.waiting[:kept]; kept == 0 {
		q.leavers = 0
	}
}

// replace removes from the count a sender that hangs with its batch, and starts another if requests
// wait.
func (q *queue) replace(taken int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inFlight -= taken
	q.senders--
	q.startSender()
}

// forget notes that the caller of a waiting request has left. While Redis hangs, this bounds the
// queue by the number of callers that still wait.
func (q *queue) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.leavers++; q.leavers > maxBatch && q.leavers > len(q.waiting)/2 {
		q.waiting = slices.DeleteFunc(q.waiting, func(r *request) bool { return r.state.Load() == left })
		q.leavers = 0
	}
}
