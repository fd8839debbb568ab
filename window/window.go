// Package window is a distributed rate limiter with sliding windows: on Redis, on Redis Cluster, or
// in the memory of one process.
//
// It enforces several limits at once: for example 1 login every 5 s, 5 an hour, and 20 a day.
// Typical uses are rate limiting by IP address, account or API key, login throttling against brute
// force, and quotas.
//
//	conn := window.Dial("redis://127.0.0.1:6379") // connects in the background
//	limiter, err := window.New(conn, window.Config{
//		Name:   "login",
//		Limits: []window.Limit{window.Every(5 * time.Second), window.PerHour(5)},
//	})
//	// ...
//	d, err := limiter.Allow(ctx, "198.51.100.7")
//	switch {
//	case err != nil: // Redis cannot answer: allow or deny, your choice
//	case d.Allowed: // go ahead
//	default: // respond with HTTP 429; Retry-After is d.RetryAfter in seconds, rounded up
//	}
//
// The event parameter of every method names the subject that is limited: an address, an account, an
// API key. The counts of each event are kept in one Redis key. All processes that use the same Name
// on the same Redis share these counts.
//
// One call of a Lua script checks all limits of an event. It counts the attempt in every limit or
// in none, so a denied attempt uses up nothing. No interval of length Per ever holds more than Max
// allowed units. Retrying after exactly RetryAfter succeeds, unless another caller used the slot.
// All guarantees, and their exceptions:
// https://github.com/slidegate/slidegate/blob/main/docs/guarantees.md
//
// Dial also supports Sentinels, cluster nodes, TLS and passwords. On takes a rueidis.Client, and
// package goredisgate takes a go-redis client. NewLocal creates a limiter that needs no Redis. If
// memory use matters more to you than a strict limit, see package ar1.
package window

import (
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/internal/send"
)

// Config configures a Limiter. Only Name and Limits are required.
type Config struct {
	// Name is the first part of the limiter's Redis keys: 1 to 64 bytes, only A-Z a-z 0-9 . _ - and
	// :. Limiters of the same Name share their counts.
	Name string

	// Limits holds 1 to 31 limits, no two with the same Per. An attempt must fit all of them. To
	// change the limits, deploy new ones under the same Name: a limit whose Per stays the same
	// keeps its counts, and an added limit starts at zero.
	// https://github.com/slidegate/slidegate/blob/main/docs/guarantees.md#keptonchange
	Limits []Limit

	// CountDenied makes denied attempts count too, in every limit, as if they had been allowed. A
	// client that keeps retrying then stays denied.
	CountDenied bool

	// Secret, if set, replaces each event in its key with the event's HMAC-SHA256 under this
	// secret. The keys then reveal no events, and clients cannot choose their shard. Use at least
	// 16 random bytes; a shorter secret is rejected. If the secret leaks, short events can be
	// guessed from the keys.
	Secret []byte `json:"-"`

	// Now is the clock, for simulation, replay and tests. It must return times from 1970 to 6429.
	// Nil means the clock of the Redis server or, in memory, this process's monotonic clock. If Now
	// is set, Redis keeps each key for 24 h of real time beyond its last window, and a limiter in
	// memory keeps events until Reset.
	Now func() time.Time `json:"-"`

	// Timeout bounds how long one call waits for Redis in total. 0 means 250 ms. If Timeout is
	// negative, only the call's context ends the wait. A context with an earlier deadline ends a
	// call as if the caller had given up. But once all calls have waited for Redis in vain for the
	// Timeout, they fail before their deadlines, so that the Fallback can decide.
	// https://github.com/slidegate/slidegate/blob/main/docs/outages.md
	Timeout time.Duration

	// Fallback decides while Redis cannot answer. It typically comes from NewLocal, and has no
	// Fallback itself. Its decisions are Degraded and follow its own limits: each process allows up
	// to Max units in addition to what Redis allowed before.
	// https://github.com/slidegate/slidegate/blob/main/docs/outages.md
	Fallback *Limiter `json:"-"`

	// DenialCache is how many denied events to remember; 0 means none. For RetryAfter, but at most
	// a second, this process then denies the same attempt (event and units) without Redis. If
	// another process gives back units, or Redis loses the key, a cached denial can be stale for
	// that second. Changes by this limiter, such as Refund and Reset, end it. DenialCache cannot be
	// combined with Now or CountDenied.
	// https://github.com/slidegate/slidegate/blob/main/docs/outages.md
	DenialCache int

	// Overrides lets you give a single event different limits for a limited time while the service
	// runs, with the method Override or the command slidegate override. Each decision looks up the
	// event in this process's copy of the overrides. If the copy is older than 5 s, the decision
	// also starts a refresh from Redis, without waiting for it. In an outage, the copy stays in
	// force, and the Fallback uses it too.
	// https://github.com/slidegate/slidegate/blob/main/docs/overrides.md
	Overrides bool

	// MaxEvents bounds how many events a limiter in memory holds. An event takes about 250 bytes if
	// there is one limit. 0 means no bound, except in a Fallback, where it means 1,048,576. A full
	// limiter denies new events, with a RetryAfter of one second. For Redis, set maxmemory instead.
	// https://github.com/slidegate/slidegate/blob/main/docs/keys.md
	MaxEvents int

	// AllowWhenFull makes a limiter that already holds MaxEvents events allow new ones without
	// counting them, instead of denying them.
	AllowWhenFull bool

	// Observe is called after each attempt and each peek, and when an outage starts or ends. It
	// receives the context of the call, except at the end of an outage: that is reported a
	// second later, from a separate goroutine, with a context that has only the call's values.
	// Observe is also called, with context.Background, when overrides can no longer be read, and
	// when they can be read again. The Fallback does not call Observe. Observe must be safe for
	// concurrent use, and quick, since every call waits for it. It must not use the limiter, or
	// both can block forever.
	// https://github.com/slidegate/slidegate/blob/main/docs/outages.md
	Observe func(ctx context.Context, o Observation) `json:"-"`

	// OnDenied is called after each denied attempt. Unlike Observe, it receives the event: see
	// Denial. For a page that shows who is denied most, set it to the Count method of a
	// mostdenied.List. OnDenied is called like Observe, and must be as quick.
	OnDenied func(ctx context.Context, d Denial) `json:"-"`
}

// Limiter allows or denies attempts under its limits. New, NewLocal and With each return a Limiter.
// It is safe for concurrent use and needs no Close. Its goroutines end once there are no more
// calls, except that a goroutine waiting for a hanging Redis stays until rueidis gives up.
//
// Most callers should use Allow. Wait is for callers that can be delayed. Peek and Inspect read
// without counting.
type Limiter struct {
	base     limiter.Limiter
	limits   []Limit
	derived  bool   // it comes from With, so its Fallback uses its limits too
	plan     string // for Observe; see WithPlan
	fallback *Limiter
	observe  func(context.Context, Observation) // may be nil
	onDenied func(context.Context, Denial)      // may be nil

	overrides *overrides    // shared by all limiters of the Name; nil without Config.Overrides, and if override is set
	override  *override     // takes precedence over the limits; nil if there is none
	wait      time.Duration // until the override ends
	excess    int64         // the units asked for, if the override never allows that many, but the own limits do; otherwise 0

	few [4]Limit // backs limits if there are at most 4
}

// These errors can be distinguished with errors.Is.
var (
	// ErrEmptyEvent is returned for the event "", which all callers that have no name would share.
	ErrEmptyEvent = limiter.ErrEmptyEvent
	// ErrInvalidCost is returned for a request for less than one unit.
	ErrInvalidCost = limiter.ErrInvalidCost
	// ErrExceedsLimit is returned for a request for more units than the Max of one of the limits.
	// Such a request can never be allowed. If only the limits of an override are too low, it is
	// denied instead, until the override ends.
	ErrExceedsLimit = limiter.ErrExceedsLimit
	// ErrOutage is returned when Redis could not answer and nothing was counted. Decide without
	// Redis, or try again later.
	ErrOutage = health.ErrOutage
	// ErrUncertain is returned when the attempt was sent, but no reply came. It was sent only once,
	// and may or may not have been counted.
	ErrUncertain = health.ErrUncertain
)

// New returns a limiter that keeps its counts in the Redis or Redis Cluster that conn connects to.
// New sends nothing, so an error always concerns conn or cfg, and says what to do.
//
// A circuit breaker notices when Redis, or a part of a cluster, cannot answer. After three failures
// in a row, the limiter sends nothing to the affected hash slots for a second. During that time,
// calls return ErrOutage, or the Fallback's decision, immediately. Then one call probes whether the
// slots are served again.
func New(conn *Connection, cfg Config) (*Limiter, error) {
	base, err := limiter.New((*connection.Connection)(conn), cfg.base(), appendLimits(nil, cfg.Limits, cfg.CountDenied))
	l, err := newLimiter(base, err, cfg)
	if err == nil && cfg.Overrides {
		l.overrides, err = newOverrides(conn, &l.base, cfg.Observe)
	}
	return l, err
}

// NewLocal returns a limiter that keeps its counts in this process's memory: no Redis, same
// answers. Each local limiter has its own counts, even if it shares its Name with another. It
// forgets expired events by itself, and holds memory only for events that still count, unless
// Config.Now sets its clock. Config.Fallback must be nil, because a local limiter never needs one.
func NewLocal(cfg Config) (*Limiter, error) {
	if cfg.Fallback != nil {
		return nil, limiter.NeedlessFallback(cfg.Name)
	}
	if cfg.Overrides {
		return nil, fmt.Errorf("slidegate: limiter %q is in memory and has Overrides, which are kept in Redis; set that only for New", cfg.Name)
	}
	c := cfg.base()
	base, err := limiter.NewLocal(c, appendLimits(nil, cfg.Limits, cfg.CountDenied), newMemory(c))
	return newLimiter(base, err, cfg)
}

func newLimiter(base *limiter.Limiter, err error, cfg Config) (*Limiter, error) {
	if f := cfg.Fallback; f != nil && err == nil {
		err = limiter.UseFallback(cfg.Name, &f.base, f.fallback != nil)
	}
	if err != nil {
		return nil, err
	}
	l := &Limiter{base: *base, fallback: cfg.Fallback, observe: cfg.Observe, onDenied: cfg.OnDenied}
	l.limits = append(l.few[:0], cfg.Limits...)
	return l, nil
}

// With returns a limiter that is like l but has the given limits: for plans, or for customers who
// have their own limits. It shares everything else with l: keys, counts, connection, circuit
// breaker, denial cache, Observe, OnDenied, overrides, and the Fallback, which then also decides by
// the given limits. With sends nothing, and its result needs no Close. Call With for each request,
// or keep the result.
//
// If both limiters have a limit with the same Per, its counts continue, as after a deployment. For
// example, a customer who has used 2 of 2/1h, and gets 4/1h, has 2 left. A limit with another Per
// starts at zero. The counts of a limit that is left out stay until they expire. One event can be
// counted under limits with at most 31 different values of Per. With returns the same errors as New
// for invalid limits.
func (l *Limiter) With(limits ...Limit) (*Limiter, error) {
	var few [4]limiter.Limit
	base, err := l.made().With(appendLimits(few[:0], limits, l.base.CountDenied))
	if err != nil {
		return nil, err
	}
	with := &Limiter{base: base, derived: true, plan: l.plan, fallback: l.fallback, observe: l.observe, onDenied: l.onDenied, overrides: l.overrides}
	with.limits = append(with.few[:0], limits...)
	return with, nil
}

// WithPlan returns a limiter that is like l but sets Observation.Plan to the given plan, for
// metrics. It does not change the limits. A limiter that With derives from the result has the same
// plan. WithPlan makes one small allocation, and decisions make none for the plan: call it for each
// request, or keep the result. Use few names, and none that a client can choose, because each name
// can become a time series.
func (l *Limiter) WithPlan(plan string) *Limiter {
	l.made()
	named := *l
	named.plan = plan
	return &named
}

// Name returns Config.Name. A limiter returned by With or WithPlan has the Name of the original.
func (l *Limiter) Name() string { return l.made().Name }

// made returns the base of l. It panics if the limiter was not created by New, NewLocal or
// With, which is a programming error.
func (l *Limiter) made() *limiter.Limiter {
	if l == nil || !l.base.Made() {
		limiter.Unmade("window")
	}
	return &l.base
}

// Allow is shorthand for AllowN with one unit.
func (l *Limiter) Allow(ctx context.Context, event string) (Decision, error) {
	return l.decide(ctx, limiter.Allow, event, 1)
}

// AllowN decides whether n units of the event are allowed now, and counts all of them or none. A
// denial is a Decision, not an error.
//
// The errors are ErrEmptyEvent, ErrInvalidCost, ErrExceedsLimit, ErrOutage, ErrUncertain, and
// ctx.Err if ctx was done before anything was sent. Any other error names the key: its value is not
// a record of this library, or the record is full. A record holds at most 31 limits, counting the
// limits of all callers that use the Name, and at most 2^53 units. The units may have been counted
// only if the error is ErrUncertain.
func (l *Limiter) AllowN(ctx context.Context, event string, n int64) (Decision, error) {
	return l.decide(ctx, limiter.Allow, event, n)
}

// AllowUpTo grants as many of n units as every limit allows, and counts the granted units. Use it
// for batches of messages, prefetching, or job quotas. Decision.Granted is the number of granted
// units, from 0 to n. If it is less than n, RetryAfter is how soon one more unit can be allowed. A
// limiter that counts denied attempts counts all n units. n can exceed the Max of any limit. The
// errors are those of AllowN, except ErrExceedsLimit.
func (l *Limiter) AllowUpTo(ctx context.Context, event string, n int64) (Decision, error) {
	return l.decide(ctx, limiter.Some, event, n)
}

// Charge counts n units that were already used, even if a limit would deny them. A limit that has
// Max or more units in use allows nothing. Decision.Allowed reports whether all n units fit. If
// not, RetryAfter is how soon one more unit can be allowed.
//
// Charged units are kept in buckets of Per/60 even under an exact limit, unless the limit has a
// Resolution. They are therefore forgotten up to Per/60 late, and so are units that are allowed
// into the same bucket. After ErrUncertain, the units may or may not be counted. To be sure, charge
// again: they may then be counted twice. A limiter in memory that already holds Config.MaxEvents
// events returns an error for a new event. Other errors are those of AllowN.
func (l *Limiter) Charge(ctx context.Context, event string, n int64) (Decision, error) {
	return l.decide(ctx, limiter.Charge, event, n)
}

// Settle corrects d, which counted an estimate, to the actual cost of 0 units or more. It gives
// back surplus units with Refund, or charges missing units with Charge. Use it if the cost is known
// only after the work: language model tokens, bytes, cents.
//
// Settle a decision once. The decision that Settle returns replaces d, and its Counted is actual.
// After a charge, its other fields are those of the charge, except At, which is d.At. If Redis
// counted d but only the Fallback could charge the missing units, the returned decision is Degraded
// and covers only these units. Like Refund, Settle works even if ctx is done. A decision made by
// OverrideUnlimited is returned unchanged, since it counted nothing.
//
// Settle returns the same errors as Refund and Charge. If a Settle that gives back units returns
// ErrUncertain, do not repeat it: it could then give back units of another caller.
func (l *Limiter) Settle(ctx context.Context, event string, d Decision, actual int64) (Decision, error) {
	base := l.made()
	if actual < 0 {
		return Decision{}, base.Wrap(fmt.Errorf("%w; a settled cost is 0 or more, not %d", ErrInvalidCost, actual))
	}
	if d.Override == OverrideUnlimited {
		return d, nil
	}
	if actual > d.Counted {
		ctx, cancel := base.Finishing(ctx)
		defer cancel()
		return l.chargeExcess(ctx, event, d, actual-d.Counted)
	}
	back := d
	back.Counted -= actual
	if err := l.Refund(ctx, event, back); err != nil {
		return Decision{}, err
	}
	d.Counted = actual
	return d, nil
}

// chargeExcess charges units in addition to those that d counted, in Redis or in the Fallback,
// depending on which of them counted d.
func (l *Limiter) chargeExcess(ctx context.Context, event string, d Decision, units int64) (c Decision, err error) {
	if d.Degraded && l.fallback != nil {
		r, by := request{limiter.Charge, event, units, time.Now()}, l.under(event, units)
		f := by.degraded()
		var reply limiter.Reply
		err = f.base.Decide(ctx, &reply, limiter.Charge, event, units)
		reply.Trace = send.Trace{Failure: health.FailureIn(d.Cause)} // the other fields come from the Fallback
		if err == nil {
			by.fill(&c, f, &reply, units)
		}
		by.report(ctx, &r, &reply, err, &c)
	} else {
		c, err = l.Charge(ctx, event, units)
	}
	if err == nil && d.Counted > 0 && c.Degraded == d.Degraded {
		c.At, c.Counted = d.At, d.Counted+c.Counted
	}
	return c, err
}

// Peek is shorthand for PeekN with one unit.
func (l *Limiter) Peek(ctx context.Context, event string) (Decision, error) {
	return l.decide(ctx, limiter.Peek, event, 1)
}

// PeekN returns what AllowN would return, but counts nothing and writes nothing. If the decision is
// Allowed, Usage is as AllowN would leave it. Otherwise Usage is the current usage, even if denied
// attempts count. PeekN returns the same errors as AllowN, except ErrUncertain.
func (l *Limiter) PeekN(ctx context.Context, event string, n int64) (Decision, error) {
	return l.decide(ctx, limiter.Peek, event, n)
}

// Wait calls WaitN with one unit.
func (l *Limiter) Wait(ctx context.Context, event string) (Decision, error) {
	return l.WaitN(ctx, event, 1)
}

// WaitN waits until n units are allowed and counted. If the deadline of ctx comes too early for
// that, WaitN returns at once, with the denial and an error that matches context.DeadlineExceeded.
//
// Waiters are served in no particular order. Each sleeps for its RetryAfter plus up to 5% (at most
// 100 ms), then asks again. Denied attempts of WaitN are never counted, even if CountDenied is set.
// If Config.Now is set, WaitN still sleeps in real time. With Config.Overrides, a waiter refreshes
// the copy of the overrides when it is 5 s old, and asks again if the event's override has changed.
func (l *Limiter) WaitN(ctx context.Context, event string, n int64) (Decision, error) {
	l.made()
	for {
		o := l.under(event, n).override
		d, err := l.decide(ctx, limiter.Wait, event, n)
		if err != nil || d.Allowed {
			return d, err
		}
		if err := l.sleep(ctx, event, n, o, &d); err != nil {
			l.denied(ctx, event, "", &d)
			return d, err
		}
	}
}

// Refund gives back the units that d counted, in every limit that still counts them. It never
// lowers a count below zero, and refunds nothing under a limit whose Per has passed since d.At.
// d.Counted is the number of units, and d.At selects the bucket: the first whose last event is not
// before d.At. If d.Usage is not empty, Refund leaves limits that are not in d.Usage unchanged.
//
// Refund a decision once: a second Refund could give back units of another caller. For a decision
// that counted nothing, Refund does nothing and returns nil. It refunds a Degraded decision in the
// Fallback, and does nothing if there is no Fallback.
//
// Refund works even if ctx is done, for example because a client has gone away. Only Config.Timeout
// bounds it, or 5 s if Timeout is negative. Refund returns the same errors as AllowN. After
// ErrUncertain, the units may or may not have been refunded.
func (l *Limiter) Refund(ctx context.Context, event string, d Decision) error {
	base := l.made()
	switch {
	case d.Counted <= 0 || d.Degraded && l.fallback == nil:
		return nil
	case d.Degraded:
		d.Degraded = false // for the Fallback, it is one of its own decisions
		return l.degraded().Refund(ctx, event, d)
	}
	return base.Refund(ctx, event, l.counted(d))
}

// Reset forgets the event, in the Fallback too: every limit is then as if never used. An override
// stays in force; see EndOverride. If the value in Redis is not a record of this library, Reset
// leaves it unchanged and returns an error. Reset returns the same errors as AllowN.
func (l *Limiter) Reset(ctx context.Context, event string) error {
	base := l.made()
	return limiter.ResetBoth(ctx, base, event, base.Reset, l.fallback, (*Limiter).Reset)
}

// Inspect returns every bucket of every limit, for diagnosis. It writes nothing, and never asks the
// Fallback. The RetryAfter of each Usage is for one unit. If an override gives the event other
// limits, Inspect returns those. It does not show overrides whose Mode is OverrideBlock or
// OverrideUnlimited: see Overrides. Inspect returns the same errors as AllowN, except ErrUncertain.
func (l *Limiter) Inspect(ctx context.Context, event string) (Snapshot, error) {
	l.made()
	by := l.under(event, 1)
	reply, err := by.base.Inspect(ctx, event)
	if err != nil {
		return Snapshot{}, err
	}
	s, err := by.snapshot(reply)
	s.Key = l.base.Key(event)
	return s, err
}
