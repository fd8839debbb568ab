package window

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/lua"
)

// overrides reads and changes the overrides of a limiter's Name in Redis, and holds the copy that
// decisions use.
type overrides struct {
	base    *limiter.Limiter // calls overrides.lua
	limiter *limiter.Limiter // of the limiter that has these overrides
	clock   func() time.Time
	observe func(context.Context, Observation) // may be nil
	every   time.Duration                      // the age of the copy from which the next decision refreshes it

	due   atomic.Bool                   // the next decision starts a refresh and sets this to false
	table atomic.Pointer[overrideTable] // the copy; nil if there are none

	reading sync.Mutex  // held during a refresh
	read    time.Time   // when the last refresh ended
	unread  bool        // the last refresh failed, which has been reported
	timer   *time.Timer // sets due
}

// overrideTable is an immutable copy of all overrides of a Name.
type overrideTable struct {
	version   int64
	overrides map[string]*override // by tag
	local     time.Time            // when this copy was read or last confirmed to be current, on the local clock
	server    time.Time            // the same moment, on the Redis clock
}

// override is an Override in the form that decisions use.
type override struct {
	Override
	base limiter.Limiter // with its Limits; zero in other modes
}

// newOverrides returns the overrides of the limiter l. They have their own circuit breaker, whose
// outages are not passed to Observe: see reread.
func newOverrides(conn *Connection, l *limiter.Limiter, observe func(context.Context, Observation)) (*overrides, error) {
	cfg := limiter.Config{
		Kind: "o", Script: func(string) *lua.Script { return lua.Overrides }, File: "overrides.lua",
		Name: l.Name, Clock: l.Clock, Timeout: max(0, l.Timeout), MaxUnits: 1,
	}
	base, err := limiter.New((*connection.Connection)(conn), cfg, []limiter.Limit{{Max: 1, Per: 1}})
	o := &overrides{base: base, limiter: l, clock: l.Clock.Now, observe: observe, every: 5 * time.Second}
	if o.clock == nil {
		o.clock = time.Now
	}
	o.due.Store(true)
	o.timer = time.AfterFunc(o.every, func() { o.due.Store(true) })
	o.timer.Stop()
	return o, err
}

// of returns the override of the event, and how long it stays in force, rounded up to a whole
// millisecond. That is 0 or less if there is no override in force, or none has been read yet. If a
// refresh is due, of starts one without waiting for it.
func (o *overrides) of(event string) (*override, time.Duration) {
	if o.due.Load() && o.due.CompareAndSwap(true, false) {
		go o.refresh(0)
	}
	t := o.table.Load()
	if t == nil {
		return nil, 0
	}
	found := t.overrides[o.limiter.Tag(event)]
	if found == nil {
		return nil, 0
	}
	left := found.Until.Sub(t.server) - o.clock().Sub(t.local)
	return found, (left + time.Millisecond - 1).Truncate(time.Millisecond)
}

// fresh refreshes the copy if it is old enough, and returns how long it then is fresh. If ctx is done
// first, it returns 0.
func (o *overrides) fresh(ctx context.Context) time.Duration {
	left := make(chan time.Duration, 1)
	go func() { left <- o.refresh(o.every) }()
	select {
	case d := <-left:
		return d
	case <-ctx.Done():
		return 0
	}
}

// refresh reads the overrides if the last refresh was at least the given time ago, and returns the
// time until it is that long ago.
func (o *overrides) refresh(ago time.Duration) time.Duration {
	o.reading.Lock()
	defer o.reading.Unlock()
	if since := time.Since(o.read); since < ago {
		return ago - since
	}
	o.due.Store(false)
	o.reread()
	o.read = time.Now()
	o.timer.Reset(o.every)
	return ago
}

// reread reads the overrides from Redis. If there is an error, it keeps the old copy. It calls
// Observe if it is the first time that there is an error, or the first time without one again.
func (o *overrides) reread() {
	old := o.table.Load()
	if old == nil || o.limiter.Clock.Now != nil { // under Config.Now, a version can occur again after an end
		old = &overrideTable{}
	}
	t, all, err := o.list(context.Background(), old.version)
	unread := err != nil
	if unread != o.unread && o.observe != nil {
		kind := KindOverridesRead
		if unread {
			kind = KindOverridesUnread
		}
		o.observe(context.Background(), Observation{Limiter: o.limiter.Name, Kind: kind, Err: err})
	}
	o.unread = unread
	switch {
	case unread:
	case t.version == 0:
		o.table.Store(nil)
	case t.version == old.version:
		t.overrides = old.overrides
		o.table.Store(t)
	default:
		t.overrides = make(map[string]*override, len(all))
		for _, from := range all {
			to := &override{Override: from}
			if to.Mode == OverrideLimits {
				to.base = o.limiter.Under(appendLimits(nil, from.Limits, o.limiter.CountDenied))
			}
			t.overrides[from.Tag] = to
		}
		o.table.Store(t)
	}
}

// list reads the overrides from Redis, and returns them in order, with a table that has only their
// version and the times. If their version is still known, it returns only the table.
func (o *overrides) list(ctx context.Context, known int64) (t *overrideTable, all []Override, err error) {
	local := o.clock()
	reply, err := o.call(ctx, "list", []string{strconv.FormatInt(known, 10)})
	if err != nil {
		return nil, nil, err
	}
	utc := o.limiter.Clock.Time
	t = &overrideTable{version: reply.Integers[2], local: local, server: utc(reply.Integers[1])}
	for i := 3; i+6 <= len(reply.Integers); i += 6 {
		from := Override{Tag: reply.Texts[i], Since: utc(reply.Integers[i+1]), Until: utc(reply.Integers[i+2]), Why: reply.Texts[i+4], By: reply.Texts[i+5]}
		from.Event = keys.Event(from.Tag)
		if from.setWhat(reply.Texts[i+3]) {
			all = append(all, from)
		}
	}
	return t, all, nil
}

// call calls overrides.lua.
func (o *overrides) call(ctx context.Context, verb string, rest []string) (limiter.CallReply, error) {
	return o.base.Call(ctx, limiter.Call{Verb: verb, Event: "overrides", Rest: rest, Reads: verb == "list", InText: true, Least: 3})
}
