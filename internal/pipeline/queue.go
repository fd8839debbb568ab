package pipeline

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// A few senders serve a queue. Each takes all queued requests, so that requests made at the same
// time share a batch. If others are in flight, or if nothing is queued, a sender first yields and
// lets callers run. Large batches cost the client and the server less, and keeping a sender costs
// less than starting one. More senders would make smaller batches. With only one, client and server
// would wait for each other. Each further limiter with requests adds one, so that calls to several
// limiters at once share a round trip.
const (
	maxSenders     = 4   // while one limiter has requests
	mostSenders    = 16  // however many limiters have requests
	yieldThreshold = 3   // a sender yields if at least this many requests are queued or in flight
	maxBatch       = 128 // requests, so that the server soon serves others, and replies come soon
)

// While other goroutines use all cores, a sender that yields waits for each of them, and the
// callers of the next batch wait with it. After a slow yield, senders do not yield for some time.
const (
	slowYield  = 15 * time.Millisecond // Go lets a busy goroutine run for 10 ms at a time
	yieldPause = 20                    // senders do not yield for this many times the duration of a slow yield
)

// A queue holds the lanes whose requests wait for a sender: those of the slot ranges of one master,
// or of one slot range while its master is not known. Senders are goroutines that end when nothing
// waits.
type queue struct {
	conn  *Connection
	serve func() // the method run, bound once so that starting a sender allocates nothing

	mu       sync.Mutex
	lanes    []*lane // with waiting requests, in the order in which senders take from them
	waiting  int     // requests in these lanes
	inFlight int     // number of requests that senders have taken, except senders that were replaced
	busy     int     // number of lanes that have requests waiting or in flight
	senders  int
	yielding int           // number of senders that let callers run, and then take what is queued
	yieldAt  time.Duration // when senders may yield again

	silence silence

	_ [64]byte // keeps neighbours off the same cache line
}

// A lane holds the requests of a limiter that wait in a queue. The mutex of the queue guards it.
type lane struct {
	pipeline *Pipeline
	queue    *queue
	waiting  []*Request // requests that no sender has taken
	leavers  int        // number of callers of waiting requests that have left
	busy     int        // requests that wait or that senders have taken
}

// put appends a request to its lane, and starts a sender unless one will take it at once.
func (q *queue) put(r *Request) {
	r.next = nil
	r.state.Store(queued)
	q.mu.Lock()
	defer q.mu.Unlock()
	l := r.lane
	if len(l.waiting) == 0 {
		q.lanes = append(q.lanes, l)
	}
	l.waiting = append(l.waiting, r)
	q.waiting++
	q.occupy(l, 1)
	q.startSender()
}

// occupy adds n to the requests of a lane that wait or are in flight.
func (q *queue) occupy(l *lane, n int) {
	if l.busy == 0 {
		q.busy++
	}
	if l.busy += n; l.busy == 0 {
		q.busy--
	}
}

// startSender starts a sender if requests wait, no sender is about to take them, and there are not
// too many.
func (q *queue) startSender() {
	if q.waiting > 0 && q.yielding == 0 && q.senders < min(maxSenders-1+q.busy, mostSenders) {
		q.senders++
		go q.serve()
	}
}

// run sends batches until the queue is empty, or until another sender has replaced this one,
// because its batch hung and callers left.
func (q *queue) run() {
	b := q.conn.newBatch(q)
	for q.take(b) {
		q.conn.followMasters()
		b.load() // before the claim: until then, nothing is sent for callers that leave
		b.claim()
		b.merge()
		b.group()
		replaced := false
		for again := true; again; { // certain replies are delivered before anything is sent again
			b.send()
			again = b.repeat()
			replaced = b.deliver() || replaced
		}
		if replaced {
			return
		}
		b.reset()
	}
	q.conn.batches.Put(b)
}

// take moves requests to an empty batch. If there are none, it removes the sender from the count,
// and returns false.
func (q *queue) take(b *batch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.finish(b)
	if q.waiting == 0 || q.waiting+q.inFlight >= yieldThreshold {
		q.yield()
	}
	if 0 < q.waiting && q.waiting < q.inFlight { // a larger batch is worth more
		q.yield()
	}
	for q.waiting > 0 && b.taken < maxBatch {
		q.takeShare(b, (maxBatch-b.taken+len(q.lanes)-1)/len(q.lanes))
	}
	if b.taken == 0 {
		q.senders--
		return false
	}
	q.inFlight += b.taken
	q.startSender()
	return true
}

// finish records that the requests of a batch are no longer in flight.
func (q *queue) finish(b *batch) {
	q.inFlight -= b.taken
	for _, s := range b.shares {
		q.occupy(s.of, -s.n)
	}
	b.taken, b.shares = 0, b.shares[:0]
}

// takeShare moves at most n requests of the first lane, which then becomes the last one. So a
// limiter with many requests does not delay others.
func (q *queue) takeShare(b *batch, n int) {
	l := q.lanes[0]
	n = min(n, len(l.waiting))
	b.requests, b.shares = append(b.requests, l.waiting[:n]...), append(b.shares, share{l, n})
	b.taken, q.waiting = b.taken+n, q.waiting-n
	l.drop(n)
	q.lanes = append(q.lanes[:0], q.lanes[1:]...)
	if len(l.waiting) > 0 {
		q.lanes = append(q.lanes, l)
	}
}

// yield lets callers run, unless the last yield was slow and only a short time ago.
func (q *queue) yield() {
	began := q.conn.elapsed()
	if began < q.yieldAt {
		return
	}
	q.yielding++
	q.mu.Unlock()
	runtime.Gosched()
	now := q.conn.elapsed()
	q.mu.Lock()
	q.yielding--
	if took := now - began; took > slowYield {
		q.yieldAt = now + yieldPause*min(took, time.Second) // a suspended machine takes longer
	}
}

// drop removes the first n requests.
func (l *lane) drop(n int) {
	kept := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[kept:])
	if l.waiting = l.waiting[:kept]; kept == 0 {
		l.leavers = 0
	}
}

// replace removes from the count a sender that hangs with its batch, and starts another if requests
// wait.
func (q *queue) replace(b *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.finish(b)
	q.senders--
	q.startSender()
}

// forget records that the caller of a waiting request has left. While Redis hangs, this bounds a
// lane by the number of callers that still wait.
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
