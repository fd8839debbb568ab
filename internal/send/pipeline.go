// Package send sends script calls to Redis. Calls made at the same time share a pipeline. The package
// handles queues, batches, deadlines and retries, but does not know about limits or the meaning of a
// reply.
//
// A limiter passes its request to Pipeline.Do (pipeline.go), which puts it into the queue of its
// master and waits (wait.go). A sender takes all queued requests (queue.go), and sends them to
// the Client as one batch (batch.go).
package send

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/health"
)

// A Pipeline sends the script calls of one limiter. Limiters on the same Connection share its
// queues, and therefore batches. Each limiter has its own circuit breakers and lanes. They are
// created when they are first used, because a service can have many limiters.
type Pipeline struct {
	office       *office
	name         string // of the limiter; the limiter's keys start with it
	report       health.Report
	apart        atomic.Int64 // until this time, keys are not sent together with keys of other limiters
	disconnected atomic.Bool  // the last request found no client
	used         atomic.Pointer[used]
}

// used is the state of a Pipeline that has been used.
type used struct {
	outage health.Outage
	proof  proof

	shards atomic.Pointer[[]*shard] // by the indices of their queues; an element can be nil
	mu     sync.Mutex               // held while shards changes
}

// A shard is a limiter's state for one queue, and therefore for one master.
type shard struct {
	health.Breaker
	abandoned atomic.Int32 // requests in flight whose callers have left
	lane      lane

	_ [64]byte // keeps neighbours off the same cache line
}

// New returns a Pipeline on conn for the limiter with the given name. The Pipeline calls report,
// unless it is nil, when an outage starts or ends, with the context of the call that noticed it.
func New(conn *connection.Connection, name string, report health.Report) *Pipeline {
	if report == nil {
		report = func(context.Context, string, *health.Failure) {}
	}
	return &Pipeline{office: officeOf(conn), name: name, report: report}
}

// use returns the state of the Pipeline. The first call creates it.
func (p *Pipeline) use() *used {
	if u := p.used.Load(); u != nil {
		return u
	}
	u := &used{outage: health.Outage{Report: p.report, Serves: p.office.masters.serves}, proof: p.office.newProof(p.name)}
	u.shards.Store(&[]*shard{})
	p.used.CompareAndSwap(nil, u)
	return p.used.Load()
}

// shard returns the limiter's state for a queue. The first call creates it.
func (p *Pipeline) shard(q *queue) *shard {
	u := p.use()
	if all := *u.shards.Load(); q.index < len(all) && all[q.index] != nil {
		return all[q.index]
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	all := slices.Clone(*u.shards.Load())
	all = append(all, make([]*shard, max(0, q.index+1-len(all)))...)
	if all[q.index] == nil { // otherwise another call was first
		s := &shard{lane: lane{pipeline: p, queue: q}}
		s.Name, s.Outage, s.Part = p.name, &u.outage, q.index
		all[q.index] = s
		u.shards.Store(&all)
	}
	return all[q.index]
}

// NewRequest returns an empty request for one call of Do. Free the request after use.
func (p *Pipeline) NewRequest() *Request { return p.office.newRequest() }

// Do sends a request from NewRequest, and waits until the request has a Reply or an Err, the
// timeout passes, or ctx is done. A negative timeout means no timeout. There must be a client: see
// AwaitClient.
func (p *Pipeline) Do(ctx context.Context, timeout time.Duration, r *Request) {
	by := p.office.masters.of(r.Key)
	r.ctx, r.timeout, r.began = ctx, timeout, p.office.conn.Elapsed()
	r.Trace.Master, r.shard = by.master, p.shard(by.queue)
	if !r.isAllowed() || r.isRefused() {
		return
	}
	r.setEnd()
	r.retries.begin(r.began)
	by.queue.put(r)
	r.wait()
}

// AwaitClient returns what is left of the timeout if there is a client. During the first dial, it
// waits until the dial has ended. If there is still no client, AwaitClient returns an error. The
// outage then starts with the first request that finds no client, and ends with the first request
// that finds one.
func (p *Pipeline) AwaitClient(ctx context.Context, timeout time.Duration) (left time.Duration, err error) {
	var waited error
	if !p.office.conn.IsUp() && !p.disconnected.Load() {
		timeout, waited = awaitDial(ctx, p.office.conn, timeout)
	}
	switch {
	case p.office.conn.IsUp():
		p.setDisconnected(ctx, nil)
	case errors.Is(waited, health.ErrLeft):
		err = waited
	default:
		failure := &health.Failure{Name: p.name, Counted: health.ErrOutage, Cause: p.office.conn.NotConnected(waited)}
		p.setDisconnected(ctx, failure)
		err = failure
	}
	return timeout, err
}

// awaitDial waits until the first dial has ended, but not after the dial has lasted for the timeout.
// It returns what is left of the timeout, or an error if it stopped waiting.
func awaitDial(ctx context.Context, conn *connection.Connection, timeout time.Duration) (left time.Duration, err error) {
	var over <-chan time.Time
	if timeout >= 0 {
		timer := time.NewTimer(timeout - conn.Elapsed())
		defer timer.Stop()
		over = timer.C
	}
	began := time.Now()
	select {
	case <-conn.Tried():
	case <-over:
		return timeout, &health.Expired{After: timeout, Unsent: true}
	case <-ctx.Done():
		return timeout, health.NotSent(ctx.Err())
	}
	if timeout < 0 {
		return timeout, nil
	}
	return max(1, timeout-time.Since(began)), nil
}

// setDisconnected records whether there is an outage because there is no client: failure is nil if
// there is a client. It reports a change.
func (p *Pipeline) setDisconnected(ctx context.Context, failure *health.Failure) {
	now := failure != nil
	if p.disconnected.Load() == now || !p.disconnected.CompareAndSwap(!now, now) {
		return
	}
	if now {
		p.use().outage.Disconnected(ctx, failure)
	} else {
		p.use().outage.Connected(ctx)
	}
}

// MasterOf returns the ID of the master that serves key, or "" if it is not known or the server is
// not a cluster. There must be a client.
func (p *Pipeline) MasterOf(key string) string { return p.office.masters.of(key).master }
