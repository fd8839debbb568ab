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
	"fmt"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
)

// A Pipeline sends the script calls of one limiter. Limiters on the same Connection share its
// queues, and therefore batches. Each limiter has its own circuit breakers and lanes.
type Pipeline struct {
	conn         *Connection
	name         string // of the limiter; the limiter's keys start with it
	outage       outage
	ranges       [Ranges]slotRange
	lanes        [Ranges]lane // of the queues with the same indices
	proof        proof
	apart        atomic.Int64 // until this time, keys are not sent together with keys of other limiters
	disconnected atomic.Bool  // the last request found no client
}

// Ranges is the number of slot ranges. Each range is a sixty-fourth of the hash slots. A server
// that is not a cluster has a single range.
const Ranges = 64

// A slotRange is a limiter's state for a slot range.
type slotRange struct {
	breaker
	abandoned atomic.Int32 // requests in flight whose callers have left

	_ [64]byte // keeps neighbours off the same cache line
}

// New returns a Pipeline on conn for the limiter with the given name. The Pipeline calls report
// when an outage starts, changes or ends, with the context of the call that noticed the change.
func New(conn *Connection, name string, report func(context.Context, Report)) *Pipeline {
	p := &Pipeline{conn: conn, name: name, outage: outage{report: report}}
	p.proof.conn, p.proof.names = conn, []string{name}
	for i := range p.ranges {
		p.lanes[i].pipeline, p.lanes[i].queue = p, &conn.queues[i]
		p.ranges[i].name = name
		p.ranges[i].notify = func(ctx context.Context, opened *Failure) { p.outage.changed(ctx, i, opened) }
	}
	return p
}

// NewRequest returns an empty request for one call of Do. Free the request after use.
func (p *Pipeline) NewRequest() *Request { return &p.conn.newCall().request }

// Do sends a request from NewRequest, and waits until the request has a Reply or an Err, the
// timeout passes, or ctx is done. A negative timeout means no timeout. There must be a client: see
// Connected.
func (p *Pipeline) Do(ctx context.Context, timeout time.Duration, r *Request) {
	c := r.call
	r.Trace.SlotRange = p.Range(r.Key)
	c.start(ctx, p, timeout)
	if c.allows() {
		r.lane.queue.put(r)
	}
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
		p.outage.changed(ctx, 0, failure)
	} else {
		p.outage.connected(ctx)
	}
}

// Range returns the slot range of key. There must be a client.
func (p *Pipeline) Range(key string) int {
	if p.conn.up.Load().cluster == nil {
		return 0
	}
	return keys.Slot(key) * Ranges / keys.Slots
}

// errTooMany is the error for requests that are not sent because too many requests whose callers
// have left are still in flight.
var errTooMany = &Failure{Counted: ErrOutage, Cause: &UnsentError{fmt.Errorf("%d requests are in flight whose callers have left", maxAbandoned), ReasonTimeout}}

// While Redis hangs, requests whose callers have left accumulate. Once a slot range has
// maxAbandoned such requests, and Redis has been silent for maxSilence, no more requests are sent.
const (
	maxAbandoned = 4096
	maxSilence   = 100 * time.Millisecond
)

// laneOf returns the limiter's lane for slotRange.
func (p *Pipeline) laneOf(slotRange int) *lane { return &p.lanes[p.conn.queueOf(slotRange)] }
