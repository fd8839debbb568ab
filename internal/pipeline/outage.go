package pipeline

import (
	"context"
	"sync"
	"time"
)

// An Outage is a report about an outage of a limiter. It begins when the first slot range is out,
// and ends when none has been out for a second.
type Outage struct {
	Kind      string   // OutageBegan, OutageChanged or OutageEnded
	SlotRange int      // which one went out or came back last
	Out       int      // how many are out
	Failure   *Failure // why the range went out; nil if it came back
}

// The kinds of an Outage.
const (
	OutageBegan   = "outage began"
	OutageChanged = "outage changed"
	OutageEnded   = "outage ended"
)

// calmTime is how long no slot range must be out for an outage to end. One that lasts has ranges
// that come back and go out again.
const calmTime = time.Second

// outage is the outage of a limiter.
type outage struct {
	report func(context.Context, Outage)

	mu     sync.Mutex // held during report, so that observers see reports in order
	out    int        // slot ranges
	lasts  bool       // its beginning was reported, and its end not
	ending *time.Timer
}

// changed notes that a slot range went out, or came back if there is no failure.
func (o *outage) changed(ctx context.Context, slotRange int, failure *Failure) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kind := OutageChanged
	if failure == nil {
		o.out--
	} else if o.out++; !o.lasts {
		kind, o.lasts = OutageBegan, true
	}
	if o.ending != nil {
		o.ending.Stop()
	}
	if o.out == 0 {
		o.endLater(context.WithoutCancel(ctx), slotRange)
	}
	o.report(ctx, Outage{kind, slotRange, o.out, failure})
}

// endLater ends the outage after calmTime, unless another slot range goes out before.
func (o *outage) endLater(ctx context.Context, slotRange int) {
	var timer *time.Timer
	timer = time.AfterFunc(calmTime, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.ending == timer && o.out == 0 {
			o.lasts = false
			o.report(ctx, Outage{OutageEnded, slotRange, 0, nil})
		}
	})
	o.ending = timer
}
