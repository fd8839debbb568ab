package pipeline

import (
	"context"
	"maps"
	"sync"
	"time"
)

// A Report is called when an outage of a limiter starts or ends. An outage starts when a first slot
// range goes out, and ends when no slot range has been out for a second. The failure says why the
// outage started; it is nil if the outage ended.
type Report func(ctx context.Context, kind string, failure *Failure)

// The kinds of a Report.
const (
	OutageBegan = "outage began"
	OutageEnded = "outage ended"
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
	report Report

	mu     sync.Mutex        // held during report, so that observers see reports in order
	failed map[int]time.Time // when each slot range that is out last failed
	lasts  bool              // the start of an outage has been reported, but not its end
	ending *time.Timer
}

// changed records that slotRange went out or failed again or, if failure is nil, that it came back.
func (o *outage) changed(ctx context.Context, slotRange int, failure *Failure) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := len(o.failed)
	o.note(slotRange, failure != nil)
	switch {
	case failure == nil && before > 0 && len(o.failed) == 0:
		o.endLater(context.WithoutCancel(ctx))
	case failure != nil && !o.lasts:
		o.lasts = true
		o.report(ctx, OutageBegan, failure)
	case failure != nil && o.ending != nil:
		o.ending.Stop()
	}
}

// connected records that there is now a client, and ends the outage immediately.
func (o *outage) connected(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.note(0, false); o.lasts && len(o.failed) == 0 {
		o.end(ctx)
	}
}

// note records that slotRange failed or came back. If it came back, note also forgets slot ranges
// that are idle.
func (o *outage) note(slotRange int, failed bool) {
	now := time.Now()
	if failed {
		if o.failed == nil {
			o.failed = map[int]time.Time{}
		}
		o.failed[slotRange] = now
		return
	}
	delete(o.failed, slotRange)
	maps.DeleteFunc(o.failed, func(_ int, at time.Time) bool { return now.Sub(at) > idleTime })
}

// end reports that the outage ends. The caller must hold the mutex.
func (o *outage) end(ctx context.Context) {
	o.lasts = false
	o.report(ctx, OutageEnded, nil)
}

// endLater ends the outage after calmTime, unless a slot range goes out before that.
func (o *outage) endLater(ctx context.Context) {
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
