package pipeline

import (
	"context"
	"sync"
	"time"
)

// A Report is what a limiter reports in addition to decisions, mostly about an outage. An outage
// starts when the first slot range is out, and ends when none has been out for a second.
type Report struct {
	Kind      string   // about an outage: OutageBegan, OutageChanged or OutageEnded
	SlotRange int      // the one that went out or came back last
	Out       int      // how many are out
	Failure   *Failure // why the range went out; nil if it came back
}

// The kinds of a Report about an outage.
const (
	OutageBegan   = "outage began"
	OutageChanged = "outage changed"
	OutageEnded   = "outage ended"
)

const (
	// calmTime is how long no slot range may be out before an outage ends: during one, some come
	// back and go out again.
	calmTime = time.Second

	// idleTime is how long ago a slot range that is out must have failed to be ignored once another
	// one has come back. No caller asks about its events: otherwise there would be a call each
	// second.
	idleTime = 5 * time.Second
)

// outage is the outage of a limiter.
type outage struct {
	report func(context.Context, Report)

	mu     sync.Mutex        // held during report, so that observers see reports in order
	failed [Ranges]time.Time // when a slot range that is out last failed; zero if it is not out
	lasts  bool              // its start was reported, but not its end
	ending *time.Timer
}

// changed records that a slot range went out or failed again, or came back if failure is nil.
func (o *outage) changed(ctx context.Context, slotRange int, failure *Failure) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.out()
	o.note(slotRange, failure != nil)
	after := o.out()
	if after == before {
		return
	}
	kind := OutageChanged
	if !o.lasts {
		kind, o.lasts = OutageBegan, true
	}
	if o.ending != nil {
		o.ending.Stop()
	}
	if after == 0 {
		o.endLater(context.WithoutCancel(ctx), slotRange)
	}
	o.report(ctx, Report{kind, slotRange, after, failure})
}

// connected records that there is finally a client, and ends the outage at once.
func (o *outage) connected(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.note(0, false); o.lasts && o.out() == 0 {
		o.lasts = false
		o.report(ctx, Report{OutageEnded, 0, 0, nil})
	}
}

// note records when a slot range failed, or that it came back and which others are idle.
func (o *outage) note(slotRange int, failed bool) {
	now := time.Now()
	if failed {
		o.failed[slotRange] = now
		return
	}
	o.failed[slotRange] = time.Time{}
	for i, at := range o.failed {
		if now.Sub(at) > idleTime {
			o.failed[i] = time.Time{}
		}
	}
}

// out returns how many slot ranges are out.
func (o *outage) out() (n int) {
	for _, at := range o.failed {
		if !at.IsZero() {
			n++
		}
	}
	return n
}

// endLater ends the outage after calmTime, unless another slot range goes out before.
func (o *outage) endLater(ctx context.Context, slotRange int) {
	var timer *time.Timer
	timer = time.AfterFunc(calmTime, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.ending == timer && o.out() == 0 {
			o.lasts = false
			o.report(ctx, Report{OutageEnded, slotRange, 0, nil})
		}
	})
	o.ending = timer
}
