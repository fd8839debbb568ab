package pipeline

import (
	"context"
	"sync"
	"time"
)

// A Report is an event that a limiter reports in addition to its decisions, usually one of an
// outage. An outage starts when a first slot range goes out, and ends when no slot range has been
// out for a second.
type Report struct {
	Kind      string   // in an outage: OutageBegan, OutageChanged or OutageEnded
	SlotRange int      // the slot range that went out or came back last
	Out       int      // how many slot ranges are out
	Failure   *Failure // why the range went out; nil if it came back
}

// The kinds of a Report on an outage.
const (
	OutageBegan   = "outage began"
	OutageChanged = "outage changed"
	OutageEnded   = "outage ended"
)

const (
	// calmTime is how long all slot ranges must have been back before an outage ends. During an
	// outage, slot ranges often come back and go out again.
	calmTime = time.Second

	// idleTime is the time since the last failure after which a slot range that is out is ignored,
	// once another slot range has come back. Nobody uses it any more: otherwise there would be a
	// probe each second.
	idleTime = 5 * time.Second
)

// outage tracks which of a limiter's slot ranges are out.
type outage struct {
	report func(context.Context, Report)

	mu     sync.Mutex        // held during report, so that observers see reports in order
	failed [Ranges]time.Time // when each slot range that is out last failed; zero if it is not out
	lasts  bool              // the start of an outage has been reported, but not its end
	ending *time.Timer
}

// changed records that slotRange went out or failed again or, if failure is nil, that it came back.
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

// connected records that there is now a client, and ends the outage immediately.
func (o *outage) connected(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.note(0, false); o.lasts && o.out() == 0 {
		o.lasts = false
		o.report(ctx, Report{OutageEnded, 0, 0, nil})
	}
}

// note records that slotRange failed or came back. If it came back, note also forgets slot ranges
// that are idle.
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

// endLater ends the outage after calmTime, unless a slot range goes out before that.
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
