// Package pipeline sends script calls to Redis. Calls made at the same time share a pipeline. The
// package handles scripts, keys and failures, but does not know about limits or the meaning of a
// reply.
//
// A caller passes its request to Pipeline.Do (pipeline.go), which puts it into the queue of its
// slot range and waits (call.go). A sender takes all queued requests (queue.go), and sends them to
// the Client as one batch (batch.go).
package pipeline

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
)

// A Pipeline sends the script calls of one limiter. Limiters on the same Connection share its
// queues, and therefore batches. Each limiter has its own circuit breakers and lanes. They are
// created when they are first used, because a service can have many limiters.
type Pipeline struct {
	conn         *Connection
	name         string // of the limiter; the limiter's keys start with it
	report       Report
	apart        atomic.Int64 // until this time, keys are not sent together with keys of other limiters
	disconnected atomic.Bool  // the last request found no client
	used         atomic.Pointer[used]
}

// used is the state of a Pipeline that has been used.
type used struct {
	outage outage
	proof  proof
	ranges [Ranges]atomic.Pointer[slotRange]
}

// Ranges is the number of slot ranges. Each range is a sixty-fourth of the hash slots. A server
// that is not a cluster has a single range.
const Ranges = 64

// A slotRange is a limiter's state for a slot range.
type slotRange struct {
	breaker
	abandoned atomic.Int32 // requests in flight whose callers have left
	lane      lane         // of the queue with the same index

	_ [64]byte // keeps neighbours off the same cache line
}

// New returns a Pipeline on conn for the limiter with the given name. The Pipeline calls report,
// unless it is nil, when an outage starts or ends, with the context of the call that noticed it.
func New(conn *Connection, name string, report Report) *Pipeline {
	if report == nil {
		report = func(context.Context, string, *Failure) {}
	}
	return &Pipeline{conn: conn, name: name, report: report}
}

// use returns the state of the Pipeline. The first call creates it.
func (p *Pipeline) use() *used {
	if u := p.used.Load(); u != nil {
		return u
	}
	p.used.CompareAndSwap(nil, &used{outage: outage{report: p.report}, proof: proof{conn: p.conn, names: []string{p.name}}})
	return p.used.Load()
}

// slots returns the limiter's state for slotRange. The first call creates it.
func (p *Pipeline) slots(i int) *slotRange {
	u := p.use()
	if s := u.ranges[i].Load(); s != nil {
		return s
	}
	s := &slotRange{breaker: breaker{name: p.name, slotRange: i, outage: &u.outage}}
	s.lane = lane{pipeline: p, queue: &p.conn.queues[i]}
	u.ranges[i].CompareAndSwap(nil, s)
	return u.ranges[i].Load()
}

// laneOf returns the limiter's lane for slotRange.
func (p *Pipeline) laneOf(slotRange int) *lane { return &p.slots(p.conn.queueOf(slotRange)).lane }

// NewRequest returns an empty request for one call of Do. Free the request after use.
func (p *Pipeline) NewRequest() *Request { return &p.conn.newCall().request }

// Do sends a request from NewRequest, and waits until the request has a Reply or an Err, the
// timeout passes, or ctx is done. A negative timeout means no timeout. There must be a client: see
// Connected.
func (p *Pipeline) Do(ctx context.Context, timeout time.Duration, r *Request) {
	c := r.call
	c.ctx, c.timeout, c.began = ctx, timeout, p.conn.elapsed()
	r.Trace.SlotRange = p.Range(r.Key)
	r.slots, r.lane = p.slots(r.Trace.SlotRange), p.laneOf(r.Trace.SlotRange)
	if !r.isAllowed() || c.isRefused() {
		return
	}
	c.setEnd()
	c.retries.begin(c.began)
	c.waiting = true
	r.lane.queue.put(r)
	c.wait()
}

// Connected returns what is left of the timeout if there is a client. During the first dial, it
// waits until the dial has ended. If there is still no client, Connected returns an error. The
// outage then starts with the first request that finds no client, and ends with the first request
// that finds one.
func (p *Pipeline) Connected(ctx context.Context, timeout time.Duration) (left time.Duration, err error) {
	var waited error
	if p.conn.up.Load() == nil && !p.disconnected.Load() {
		timeout, waited = p.conn.awaitTry(ctx, timeout)
	}
	switch {
	case p.conn.up.Load() != nil:
		p.setDisconnected(ctx, nil)
	case errors.Is(waited, ErrLeft):
		err = waited
	default:
		failure := &Failure{Name: p.name, Counted: ErrOutage, Cause: p.conn.notConnected(waited)}
		p.setDisconnected(ctx, failure)
		err = failure
	}
	return timeout, err
}

// setDisconnected records whether there is an outage because there is no client: failure is nil if
// there is a client. It reports a change.
func (p *Pipeline) setDisconnected(ctx context.Context, failure *Failure) {
	now := failure != nil
	if p.disconnected.Load() == now || !p.disconnected.CompareAndSwap(!now, now) {
		return
	}
	if now {
		p.use().outage.changed(ctx, 0, failure)
	} else {
		p.use().outage.connected(ctx)
	}
}

// Range returns the slot range of key. There must be a client.
func (p *Pipeline) Range(key string) int {
	if p.conn.up.Load().cluster == nil {
		return 0
	}
	return keys.Slot(key) * Ranges / keys.Slots
}
