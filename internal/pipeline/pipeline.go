// Package pipeline sends script calls to Redis, simultaneous ones together. It knows scripts, keys
// and what can go wrong on the way, but neither limits nor what a reply means.
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

// A Pipeline sends the script calls of one limiter. Limiters on one Connection share its queues,
// and so their batches. Each has its own circuit breakers and lanes.
type Pipeline struct {
	conn         *Connection
	name         string // of the limiter; its keys start with this
	outage       outage
	ranges       [Ranges]slotRange
	lanes        [Ranges]lane // of the queues with the same indices
	proof        proof
	apart        atomic.Int64 // until then, its keys are not sent together with others
	disconnected atomic.Bool  // there were requests before there was a client
}

// Ranges is the number of slot ranges: each is a sixty-fourth of the hash slots. A server that is
// not a cluster is one range.
const Ranges = 64

// A slotRange is what a limiter knows about a slot range.
type slotRange struct {
	breaker
	abandoned atomic.Int32 // requests in flight whose callers have left

	_ [64]byte // keeps neighbours off the same cache line
}

// New returns a Pipeline on a Connection, for a limiter of this name. It calls report about
// outages, with the context of the call that noticed.
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

// NewRequest returns an unused request for one Do. Free it after use.
func (p *Pipeline) NewRequest() *Request { return &p.conn.singleCall().single }

// Do sends a request of NewRequest, and waits until it has a Reply or an Err, the timeout passes,
// or ctx ends. A negative timeout never passes. There must be a client: see Connected.
func (p *Pipeline) Do(ctx context.Context, timeout time.Duration, r *Request) {
	c := r.call
	r.Trace.SlotRange = p.Range(r.Key)
	c.start(ctx, p, timeout)
	if c.allows(r) {
		r.lane.queue.put(r)
	}
	c.wait()
}

// Connected returns what is left of the timeout once there is a client. During the first dial, it
// waits for the end of the dial. If there is no client then, there is an outage. It starts with the
// first request without a client, and ends with the first one after the client connected.
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

// setDisconnected records whether there is an outage because there is no client, and reports a
// change. There is no outage if failure is nil.
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

// Range returns the slot range of a key. There must be a client.
func (p *Pipeline) Range(key string) int {
	if p.conn.up.Load().cluster == nil {
		return 0
	}
	return keys.Slot(key) * Ranges / keys.Slots
}

// errTooMany is the error of requests that would add to those of callers that left.
var errTooMany = &Failure{Counted: ErrOutage, Cause: &UnsentError{fmt.Errorf("%d requests are in flight whose callers have left", maxAbandoned), ReasonTimeout}}

// maxAbandoned bounds the abandoned requests of a slot range, which accumulate while Redis hangs: once
// it has been silent for maxSilence.
const (
	maxAbandoned = 4096
	maxSilence   = 100 * time.Millisecond
)

// laneOf returns the lane of a slot range.
func (p *Pipeline) laneOf(slotRange int) *lane { return &p.lanes[p.conn.queueOf(slotRange)] }
