package health

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// A Report is called when an outage of a limiter starts or ends. An outage starts when a first part
// of the servers goes out. It ends when no part has been out for a second, or immediately when there is
// a client again. The failure says why the outage started; it is nil if the outage ended.
type Report func(ctx context.Context, kind string, failure *Failure)

// The kinds of a Report.
const (
	OutageBegan = "outage began"
	OutageEnded = "outage ended"
)

const (
	// calmTime is how long all parts must have been back before an outage ends. During an outage,
	// parts often come back and go out again.
	calmTime = time.Second

	// idleTime is the time since the last failure after which a part that is out is ignored, once
	// another part has answered. Nobody uses it any more: otherwise there would be a probe each second.
	idleTime = 5 * time.Second
)

// An Outage tracks which parts of the servers are out for a limiter. A part has a Breaker of its own:
// a master of a cluster, for example.
type Outage struct {
	Report Report
	Serves func(part int) bool // whether a part is still in use; nil means that all are

	mu     sync.Mutex        // held during report, so that observers see reports in order
	failed map[int]time.Time // when each part that is out last failed, by its index
	ending *time.Timer
	lasts  atomic.Bool // the start of an outage has been reported, but not its end
}

// changed records that part went out or failed again or, if failure is nil, that it came back.
func (o *Outage) changed(ctx context.Context, part int, failure *Failure) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := len(o.failed)
	o.note(part, failure != nil)
	switch {
	case failure == nil && before > 0 && len(o.failed) == 0:
		o.endLater(context.WithoutCancel(ctx))
	case failure != nil && !o.lasts.Load():
		o.lasts.Store(true)
		o.Report(ctx, OutageBegan, failure)
	case failure != nil && o.ending != nil:
		o.ending.Stop()
	}
}

// Disconnected records that there is no client, because of failure.
func (o *Outage) Disconnected(ctx context.Context, failure *Failure) { o.changed(ctx, 0, failure) }

// Connected records that there is now a client, and ends the outage immediately.
func (o *Outage) Connected(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.note(0, false); o.lasts.Load() && len(o.failed) == 0 {
		o.end(ctx)
	}
}

// answered records that a part has answered. It ends the outage later if all parts that are out are
// idle and no longer in use.
func (o *Outage) answered(ctx context.Context) {
	if !o.lasts.Load() || o.Serves == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	before, now := len(o.failed), time.Now()
	maps.DeleteFunc(o.failed, func(part int, at time.Time) bool { return now.Sub(at) > idleTime && !o.Serves(part) })
	if before > 0 && len(o.failed) == 0 {
		o.endLater(context.WithoutCancel(ctx))
	}
}

// note records that part failed or came back. If it came back, note also forgets parts that are
// idle.
func (o *Outage) note(part int, failed bool) {
	if failed {
		if o.failed == nil {
			o.failed = map[int]time.Time{}
		}
		o.failed[part] = time.Now()
		return
	}
	delete(o.failed, part)
	now := time.Now()
	maps.DeleteFunc(o.failed, func(_ int, at time.Time) bool { return now.Sub(at) > idleTime })
}

// end reports that the outage ends. The caller must hold the mutex.
func (o *Outage) end(ctx context.Context) {
	o.lasts.Store(false)
	o.Report(ctx, OutageEnded, nil)
}

// endLater ends the outage after calmTime, unless a part goes out before that.
func (o *Outage) endLater(ctx context.Context) {
	var timer *time.Timer
	timer = time.AfterFunc(calmTime, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.ending == timer && len(o.failed) == 0 {
			o.end(ctx)
		}
	})
	o.ending = timer
}
