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
	clock     func() time.Time
	local     time.Time // when this copy was read or last confirmed to be current, on the local clock
	server    time.Time // the same moment, on the Redis clock
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

// current returns the copy, or nil if there are no overrides or none have been read yet. If a
// refresh is due, current starts one without waiting for it.
func (o *overrides) current() *overrideTable {
	if o.due.Load() && o.due.CompareAndSwap(true, false) {
		go o.refresh(0)
	}
	return o.table.Load()
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
	local, old := o.clock(), o.table.Load()
	if old == nil || o.limiter.Clock.Now != nil { // under Config.Now, a version can occur again after an end
		old = &overrideTable{}
	}
	list, err := o.list(context.Background(), old.version)
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
	case list.version == 0:
		o.table.Store(nil)
	case list.version == old.version:
		o.table.Store(&overrideTable{old.version, old.overrides, o.clock, local, list.at})
	default:
		byTag := make(map[string]*override, len(list.all))
		for _, from := range list.all {
			to := &override{Override: from}
			if to.Mode == OverrideLimits {
				to.base = o.limiter.Under(appendLimits(nil, from.Limits, o.limiter.CountDenied))
			}
			byTag[from.Tag] = to
		}
		o.table.Store(&overrideTable{list.version, byTag, o.clock, local, list.at})
	}
}

// of returns the override with the given tag, and how long it stays in force, rounded up to a whole
// millisecond. That is 0 or less if there is no such override in force.
func (t *overrideTable) of(tag string) (*override, time.Duration) {
	o := t.overrides[tag]
	if o == nil {
		return nil, 0
	}
	left := o.Until.Sub(t.server) - t.clock().Sub(t.local)
	return o, (left + time.Millisecond - 1).Truncate(time.Millisecond)
}

// overrideList is the reply to the verb list.
type overrideList struct {
	at      time.Time // on the Redis clock
	version int64
	all     []Override
}

// list reads the overrides from Redis. If their version is still known, it returns no overrides,
// only their version.
func (o *overrides) list(ctx context.Context, known int64) (list overrideList, err error) {
	reply, err := o.call(ctx, "list", []string{strconv.FormatInt(known, 10)})
	if err != nil {
		return list, err
	}
	utc := o.limiter.Clock.Time
	list.at, list.version = utc(reply.Integers[1]), reply.Integers[2]
	for i := 3; i+6 <= len(reply.Integers); i += 6 {
		from := Override{Tag: reply.Texts[i], Since: utc(reply.Integers[i+1]), Until: utc(reply.Integers[i+2]), Why: reply.Texts[i+4], By: reply.Texts[i+5]}
		from.Event = keys.Event(from.Tag)
		if from.setWhat(reply.Texts[i+3]) {
			list.all = append(list.all, from)
		}
	}
	return list, nil
}

// call calls overrides.lua.
func (o *overrides) call(ctx context.Context, verb string, rest []string) (limiter.CallReply, error) {
	return o.base.Call(ctx, limiter.Call{Verb: verb, Event: "overrides", Rest: rest, Reads: verb == "list", InText: true, Least: 3})
}
