package send

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// A few senders serve each queue. A sender takes all queued requests, so that requests made at the
// same time share a batch. If enough other requests are queued or in flight, or if nothing is
// queued, a sender first yields and lets callers run. Large batches cost the client and the server
// less, and keeping a sender costs less than starting a new one. With more senders, batches would
// be smaller. With only one sender, client and server would wait for each other. Each further
// limiter that has requests adds one sender, so that simultaneous calls to several limiters take
// the same round trip.
const (
	maxSenders      = 4   // while only one limiter has requests
	maxSendersInAll = 16  // regardless of how many limiters have requests
	yieldThreshold  = 3   // a sender yields if at least this many requests are queued or in flight
	maxBatch        = 128 // the most requests, so that replies come soon and the server can serve other clients
)

// If other goroutines use all cores, a sender that yields waits for all of them, and the callers of
// the next batch wait too. After a slow yield, senders do not yield for some time.
const (
	slowYield  = 15 * time.Millisecond // Go lets a busy goroutine run for 10 ms at a time
	yieldPause = 20                    // senders do not yield for this many times the duration of a slow yield
)

// A queue holds the lanes whose requests wait for a sender. It serves one master: see masters. Senders
// are goroutines that end when no requests wait.
type queue struct {
	office *office
	index  int
	serve  func() // the bound method run, stored so that starting a sender does not allocate

	mu       sync.Mutex
	lanes    []*lane // lanes that have waiting requests, in the order in which senders take from them
	waiting  int     // number of waiting requests in lanes
	inFlight int     // number of requests that senders have taken, except those of replaced senders
	busy     int     // number of lanes that have requests waiting or in flight
	senders  int
	yielding int           // number of senders that are letting callers run before they take requests
	yieldAt  time.Duration // the earliest time for the next yield

	silence silence

	_ [64]byte // keeps neighbours off the same cache line
}

// A lane holds one limiter's requests that wait in a queue. The queue's mutex guards it.
type lane struct {
	pipeline *Pipeline
	queue    *queue

	waiting []*Request // requests that no sender has taken
	leavers int        // number of waiting requests whose callers have left
	busy    int        // number of requests that wait or are in flight
}

// put appends r to its lane. It starts a sender if necessary.
func (q *queue) put(r *Request) {
	r.next = nil
	r.state.Store(queued)
	q.mu.Lock()
	defer q.mu.Unlock()
	l := &r.shard.lane
	if len(l.waiting) == 0 {
		q.lanes = append(q.lanes, l)
	}
	l.waiting = append(l.waiting, r)
	q.waiting++
	q.occupy(l, 1)
	q.startSender()
}

// occupy adds n to the number of requests in l that wait or are in flight.
func (q *queue) occupy(l *lane, n int) {
	if l.busy == 0 {
		q.busy++
	}
	if l.busy += n; l.busy == 0 {
		q.busy--
	}
}

// startSender starts a sender if requests wait, no sender is about to take them, and there are not
// too many senders yet.
func (q *queue) startSender() {
	if q.waiting > 0 && q.yielding == 0 && q.senders < min(maxSenders-1+q.busy, maxSendersInAll) {
		q.senders++
		go q.serve()
	}
}

// run sends batches until the queue is empty, or until another sender replaces this one because
// callers have left a batch that got no reply.
func (q *queue) run() {
	b := q.office.newBatch(q)
	for q.take(b) {
		q.office.masters.follow()
		b.claim()
		b.merge()
		b.group()
		replaced := false
		for again := true; again; { // final replies are delivered before calls are sent again
			b.send()
			again = b.repeat()
			replaced = b.deliver() || replaced
		}
		if replaced {
			return
		}
		b.reset()
	}
	q.office.batches.Put(b)
}

// take moves requests from the queue to b, whose previous requests are done. If there are none, it
// returns false, and the sender no longer counts.
func (q *queue) take(b *batch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.finish(b)
	if q.waiting == 0 || q.waiting+q.inFlight >= yieldThreshold {
		q.yield()
	}
	if 0 < q.waiting && q.waiting < q.inFlight { // wait a little longer for a larger batch
		q.yield()
	}
	for q.waiting > 0 && b.size < maxBatch {
		q.takeFromFirst(b, (maxBatch-b.size+len(q.lanes)-1)/len(q.lanes))
	}
	if b.size == 0 {
		q.senders--
		return false
	}
	q.inFlight += b.size
	q.startSender()
	return true
}

// finish records that the requests of b are no longer in flight.
func (q *queue) finish(b *batch) {
	q.inFlight -= b.size
	for _, t := range b.from {
		q.occupy(t.lane, -t.n)
	}
	b.size, b.from = 0, b.from[:0]
}

// takeFromFirst moves at most n requests from the first lane to b. The lane then becomes the last one,
// so that a limiter with many requests does not delay other limiters.
func (q *queue) takeFromFirst(b *batch, n int) {
	l := q.lanes[0]
	n = min(n, len(l.waiting))
	b.requests, b.from = append(b.requests, l.waiting[:n]...), append(b.from, taken{l, n})
	b.size, q.waiting = b.size+n, q.waiting-n
	l.drop(n)
	q.lanes = append(q.lanes[:0], q.lanes[1:]...)
	if len(l.waiting) > 0 {
		q.lanes = append(q.lanes, l)
	}
}

// yield lets callers run, unless a recent yield was slow. It releases the mutex while it yields.
func (q *queue) yield() {
	began := q.office.conn.Elapsed()
	if began < q.yieldAt {
		return
	}
	q.yielding++
	q.mu.Unlock()
	runtime.Gosched()
	now := q.office.conn.Elapsed()
	q.mu.Lock()
	q.yielding--
	if took := now - began; took > slowYield {
		q.yieldAt = now + yieldPause*min(took, time.Second) // min, because after a suspend took is very long
	}
}

// drop removes the first n waiting requests.
func (l *lane) drop(n int) {
	kept := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[kept:])
	if l.waiting = l.waiting[:kept]; kept == 0 {
		l.leavers = 0
	}
}

// replace stops counting the sender of b, which may be blocked, and starts another sender if
// requests wait.
func (q *queue) replace(b *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.finish(b)
	q.senders--
	q.startSender()
}

// forget records that the caller of a waiting request has left. It removes such requests when there
// are many, so that a lane does not grow without bound while Redis hangs.
func (q *queue) forget(l *lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.leavers++; l.leavers <= maxBatch || l.leavers <= len(l.waiting)/2 {
		return
	}
	before := len(l.waiting)
	l.waiting = slices.DeleteFunc(l.waiting, func(r *Request) bool { return r.state.Load() == left })
	gone := before - len(l.waiting)
	q.waiting -= gone
	q.occupy(l, -gone)
	if l.leavers = 0; len(l.waiting) == 0 {
		q.lanes = slices.DeleteFunc(q.lanes, func(other *lane) bool { return other == l })
	}
}
