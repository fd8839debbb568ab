// Package window is a distributed rate limiter with sliding windows: on Redis, on Redis Cluster, or
// in the memory of one process.
//
// It enforces several limits at once, such as 1 login every 5 s, and 5 an hour, and 20 a day.
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
//	case err != nil: // Redis cannot answer: allow or deny, as you choose
//	case d.Allowed: // go ahead
//	default: // answer HTTP 429; Retry-After is d.RetryAfter in seconds, rounded up
//	}
//
// The parameter event of every method names the subject that is limited: an address, an account, an
// API key. Each event has its own counts, in one Redis key. All processes with the same Name on
// the same Redis share them.
//
// One call of a Lua script decides all limits of an event. It counts the attempt in every limit or
// in none, so a denied attempt uses up nothing. No interval of length Per ever holds more than Max
// allowed units. Retrying after exactly RetryAfter succeeds, unless another caller used the slot.
// All promises, with their exceptions:
// https://github.com/slidegate/slidegate/blob/main/docs/guarantees.md
//
// Dial also takes Sentinels, the nodes of a cluster, TLS and a password. On takes a rueidis.Client,
// and package goredisgate a go-redis client. NewLocal creates a limiter that needs no Redis. Where
// memory matters more than a strict limit, see package ar1.
package window

import (
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/internal/outage"
	"github.com/slidegate/slidegate/internal/pipeline"
)

// Config holds the limits of a Limiter, and the name that it counts under. Only Name and Limits are
// required.
type Config struct {
	// Name is the first part of the limiter's Redis keys: 1 to 64 bytes, only A-Z a-z 0-9 . _ - and
	// :. Limiters of the same Name share their counts.
	Name string

	// Limits holds 1 to 31 limits, no two with the same Per. An attempt must fit all of them. To
	// change them, deploy others under the same Name: limits whose Per stays keep their counts, and
	// added ones start at zero.
	// https://github.com/slidegate/slidegate/blob/main/docs/guarantees.md#keptonchange
	Limits []Limit

	// CountDenied counts denied attempts too, in every limit, as if they were allowed. A client
	// that keeps retrying then stays denied.
	CountDenied bool

	// Secret, if set, replaces each event in its key by the HMAC-SHA256 under this secret. Then the
	// keys reveal no events, and clients cannot choose their shard. It needs at least 16 random
	// bytes; a shorter one is rejected. If a secret leaks, short events can be guessed.
	Secret []byte `json:"-"`

	// Now is the clock, for simulation, replay and tests, from 1970 to 6429. Nil means the clock of
	// the Redis server or, in memory, this process's monotonic clock. With Now, Redis keeps keys
	// for 24 h of real time beyond their last window, and memory keeps events until Reset.
	Now func() time.Time `json:"-"`

	// Timeout bounds how long one call waits for Redis in total. 0 means 250 ms. If it is negative,
	// only the context of the call ends the wait. If the context has an earlier deadline, the call
	// waits until shortly before it: a tenth of its time, from 1 to 20 ms. If Redis has then been
	// silent for 5 ms and 4 times the usual reply time, the call fails, and the Fallback decides.
	// Otherwise the deadline just ends the context, as when the caller leaves.
	// https://github.com/slidegate/slidegate/blob/main/docs/outages.md
	Timeout time.Duration

	// Fallback decides while Redis cannot answer. It typically comes from NewLocal, and has no
	// Fallback itself. Its decisions are Degraded and follow its own limits: each of k processes
	// allows up to its Max, on top of what Redis allowed before.
	// https://github.com/slidegate/slidegate/blob/main/docs/outages.md
	Fallback *Limiter `json:"-"`

	// DenialCache is how many denied events to remember; 0 means none. From the third denial on,
	// the same attempt (event and units) costs Redis nothing. A cached denial can be stale by one
	// round trip and 0.1 ms. If the connection dies silently, that is up to 4 s with Dial, and 12 s
	// with the rueidis defaults. It needs rueidis without DisableCache, no Now and no
	// CountDenied. https://github.com/slidegate/slidegate/blob/main/docs/outages.md
	DenialCache int

	// Overrides allows giving single events other limits while the service runs, for some time: by
	// Override, or by the command slidegate override. A decision then looks for an override of the
	// event in this process's copy. If the copy is older than 5 s, the decision starts a refresh
	// from Redis, without waiting for it. In an outage, the copy stays in force, in the Fallback
	// too. https://github.com/slidegate/slidegate/blob/main/docs/overrides.md
	Overrides bool

	// MaxEvents bounds how many events a limiter in memory holds. Each takes about 250 bytes under
	// one limit. 0 means no bound, except in a Fallback, where it means 1,048,576. A full limiter
	// denies new events, with a RetryAfter of a second. For Redis, set maxmemory instead.
	// https://github.com/slidegate/slidegate/blob/main/docs/keys.md
	MaxEvents int

	// AllowWhenFull allows new events, without counting them, while MaxEvents are held. Otherwise
	// they are denied.
	AllowWhenFull bool

	// Observe is called after each attempt and peek, and about outages, with the context of the
	// call. The end of an outage is reported a second later, from its own goroutine, with the
	// values of that context. The Fallback does not call Observe. Many goroutines call it at once,
	// and each call waits for it: keep it quick. Using the limiter in it could block both forever.
	// https://github.com/slidegate/slidegate/blob/main/docs/outages.md
	Observe func(ctx context.Context, o Observation) `json:"-"`

	// OnDenied is called after each denied attempt, with its event: see Denial. For a page that
	// shows who is denied most, set it to the method Count of a List of package mostdenied. It is
	// called like Observe, and must be as quick.
	OnDenied func(ctx context.Context, d Denial) `json:"-"`
}

// Limiter allows or denies attempts under its limits. New, NewLocal and With return one. It is safe
// for concurrent use and needs no Close. Its goroutines end when there are no more calls. Only
// those that wait for a hanging Redis stay, until rueidis gives up.
//
// Most callers should use Allow. Wait is for callers that can be delayed. Peek and Inspect read
// without counting.
type Limiter struct {
	engine   engine.Limiter
	limits   []Limit
	derived  bool   // it comes from With, so its Fallback uses its limits, too
	plan     string // for Observe; see WithPlan
	fallback *Limiter
	observe  func(context.Context, Observation) // may be nil
	onDenied func(context.Context, Denial)      // may be nil

	overrides *overrides    // of the Name; nil without Config.Overrides, and if override is set
	override  *override     // decides instead of its own limits; nil if none does
	wait      time.Duration // until the override ends

	few [4]Limit // limits, unless there are more
}

// These errors can be distinguished with errors.Is.
var (
	// ErrEmptyEvent is returned for the event "", which all callers without a name would share.
	ErrEmptyEvent = engine.ErrEmptyEvent
	// ErrInvalidCost is returned for less than one unit.
	ErrInvalidCost = engine.ErrInvalidCost
	// ErrExceedsLimit is returned for more units than the Max of a limit. Such a request can never
	// be allowed.
	ErrExceedsLimit = engine.ErrExceedsLimit
	// ErrOutage is returned when Redis could not answer and nothing was counted. Decide without it,
	// or try again later.
	ErrOutage = pipeline.ErrOutage
	// ErrUncertain is returned when no reply came. The attempt was sent only once, and may or may
	// not have been counted.
	ErrUncertain = pipeline.ErrUncertain
)

// New returns a limiter that keeps its counts in the Redis or Redis Cluster of a Connection. It
// sends nothing yet, so an error is about conn or cfg, and says what to do.
//
// A circuit breaker notices when Redis, or a part of a cluster, cannot answer. After three failures
// in a row, the limiter sends nothing to those hash slots for a second. Calls get ErrOutage or the
// Fallback at once. Then one call probes whether they are back.
func New(conn *Connection, cfg Config) (*Limiter, error) {
	e, err := engine.New((*pipeline.Connection)(conn), cfg.engine(), appendEngine(nil, cfg.Limits, cfg.CountDenied))
	l, err := newLimiter(e, err, cfg)
	if err == nil && cfg.Overrides {
		l.overrides, err = newOverrides(conn, &l.engine)
	}
	return l, err
}

// NewLocal returns a limiter that keeps its counts in this process's memory: no Redis, same
// answers. Each one has its own counts, whatever its Name. It forgets events by itself and holds
// memory only for those that still count, unless Config.Now sets its clock. It takes no Fallback,
// because it never needs one.
func NewLocal(cfg Config) (*Limiter, error) {
	if cfg.Fallback != nil {
		return nil, outage.Needless(cfg.Name)
	}
	if cfg.Overrides {
		return nil, fmt.Errorf("slidegate: limiter %q is in memory and has Overrides, which are kept in Redis; leave it out", cfg.Name)
	}
	c := cfg.engine()
	e, err := engine.NewLocal(c, appendEngine(nil, cfg.Limits, cfg.CountDenied), newMemory(c))
	return newLimiter(e, err, cfg)
}

func newLimiter(e *engine.Limiter, err error, cfg Config) (*Limiter, error) {
	if f := cfg.Fallback; f != nil && err == nil {
		err = outage.Use(cfg.Name, &f.engine, f.fallback != nil)
	}
	if err != nil {
		return nil, err
	}
	l := &Limiter{engine: *e, fallback: cfg.Fallback, observe: cfg.Observe, onDenied: cfg.OnDenied}
	l.limits = append(l.few[:0], cfg.Limits...)
	return l, nil
}

// With returns the same limiter under other limits: for plans, or for customers with their own
// limits. It shares everything else with l: keys, counts, connection, circuit breaker, denial
// cache, Observe, OnDenied, overrides, and the Fallback, which then decides by these limits too. It
// sends nothing and needs no Close. Call it for each request, or keep what it returns.
//
// If both limiters have a limit with the same Per, its counts continue, as after a deployment. For
// example, a customer who has used 2 of 2/1h, and gets 4/1h, has 2 left. A limit with another Per
// starts at zero. The counts of a limit that is left out stay until they are forgotten. One event
// can be counted under limits of at most 31 different Per. The errors are those of New about
// limits.
func (l *Limiter) With(limits ...Limit) (*Limiter, error) {
	var few [4]engine.Limit
	e, err := l.made().With(appendEngine(few[:0], limits, l.engine.CountDenied))
	if err != nil {
		return nil, err
	}
	with := &Limiter{engine: e, derived: true, plan: l.plan, fallback: l.fallback, observe: l.observe, onDenied: l.onDenied, overrides: l.overrides}
	with.limits = append(with.few[:0], limits...)
	return with, nil
}

// WithPlan returns the same limiter with the name of a plan for metrics: Observation.Plan. It does
// not change the limits. Limiters that With derives from it have the plan, too. It costs one small
// allocation, and none in a decision: call it for each request, or keep what it returns. Use few
// names, and none that a client can choose, as each can be a time series.
func (l *Limiter) WithPlan(plan string) *Limiter {
	l.made()
	named := *l
	named.plan = plan
	return &named
}

// Name returns Config.Name. Limiters from With and WithPlan have the Name of the one that they come
// from.
func (l *Limiter) Name() string { return l.made().Name }

// made returns the engine of a limiter from New, NewLocal or With. It panics for any other limiter,
// which is a mistake in the program.
func (l *Limiter) made() *engine.Limiter {
	if l == nil || !l.engine.Made() {
		panic("slidegate: this limiter is nil or zero; create one with window.New or NewLocal")
	}
	return &l.engine
}

// Allow is shorthand for AllowN with one unit.
func (l *Limiter) Allow(ctx context.Context, event string) (Decision, error) {
	return l.decide(ctx, engine.Allow, event, 1)
}

// AllowN decides whether n units of the event are allowed now, and counts all of them or none. A
// denial is a Decision, not an error.
//
// The errors are ErrEmptyEvent, ErrInvalidCost, ErrExceedsLimit, ErrOutage, ErrUncertain, and those
// of ctx if it ended before anything was sent. Any other error names the key: its value is not a
// record of this library, or is full. A record holds at most 31 limits of all callers of one Name,
// and 2^53 units. Only after ErrUncertain may the units be counted.
func (l *Limiter) AllowN(ctx context.Context, event string, n int64) (Decision, error) {
	return l.decide(ctx, engine.Allow, event, n)
}

// AllowUpTo grants as many of n units as every limit allows, and counts them: for batches of
// messages, prefetching, or quotas of jobs. Decision.Granted is the number of granted units, from 0
// to n. If it is less than n, RetryAfter is how soon one more unit can be allowed. A limiter that
// counts denied attempts counts all n units. n can exceed any Max. Other errors are those of
// AllowN.
func (l *Limiter) AllowUpTo(ctx context.Context, event string, n int64) (Decision, error) {
	return l.decide(ctx, engine.Some, event, n)
}

// Charge counts n units that were already used, even if a limit denies them. While a limit has Max
// or more in use, it allows nothing. Decision.Allowed reports whether all n units fit. If not,
// RetryAfter is how soon one more unit can be allowed.
//
// Charged units are kept in buckets of Per/60 even under an exact limit, unless it has a
// Resolution. So they come back up to Per/60 late, and so do units that are allowed into such a
// bucket. After ErrUncertain they may not be counted. To be sure, charge again: they may then be
// counted twice. In memory, a new event is an error while Config.MaxEvents are held. Other errors
// are those of AllowN.
func (l *Limiter) Charge(ctx context.Context, event string, n int64) (Decision, error) {
	return l.decide(ctx, engine.Charge, event, n)
}

// Settle corrects d, which counted an estimate, to the actual cost of 0 units or more. It gives
// back surplus units by Refund, or charges missing ones by Charge. Use it when the cost is only
// known afterwards: tokens of a language model, bytes, cents.
//
// Settle a decision once. The decision that Settle returns replaces d, with Counted as settled.
// After a charge, its other fields are those of the charge, except At, which stays. If the Fallback
// charged what Redis could not, the decision is Degraded and stands for these units alone. Settle
// works after ctx has ended, like Refund. A decision of OverrideUnlimited stays as it is, since it
// counted nothing.
//
// Errors are those of Refund and Charge. After ErrUncertain do not settle fewer units again: that
// could refund units of another caller.
func (l *Limiter) Settle(ctx context.Context, event string, d Decision, actual int64) (Decision, error) {
	if e := l.made(); actual < 0 {
		return Decision{}, e.Wrap(fmt.Errorf("%w; a settled cost is 0 or more, not %d", ErrInvalidCost, actual))
	}
	if d.Override == OverrideUnlimited {
		return d, nil
	}
	if actual > d.Counted {
		ctx, cancel := l.engine.Finishing(ctx)
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

// chargeExcess charges units beyond those that d counted: in Redis or in the Fallback, wherever d
// was counted.
func (l *Limiter) chargeExcess(ctx context.Context, event string, d Decision, units int64) (c Decision, err error) {
	if d.Degraded && l.fallback != nil {
		began, by := time.Now(), l.under(event)
		f := by.degraded()
		var reply engine.Reply
		failure := f.engine.Decide(ctx, &reply, engine.Charge, event, units)
		reply.Trace = pipeline.Trace{Failure: pipeline.FailureIn(d.Cause)} // the rest is that of the Fallback
		err = by.conclude(ctx, &c, engine.Charge, units, f, &reply, failure, began)
	} else {
		c, err = l.Charge(ctx, event, units)
	}
	if err == nil && d.Counted > 0 && c.Degraded == d.Degraded {
		c.At, c.Counted = d.At, d.Counted+c.Counted
	}
	return c, err
}

// AllowEach decides on many events at once. The answers are those of successive calls of Allow,
// in one round trip to each shard. Results are in the order of events, each with its own error, so
// a shard in trouble fails only its own events. If an event occurs twice, the first occurrence is
// decided first.
//
// More than 4,096 events are sent in several rounds, each within Config.Timeout. If a part of the
// hash slots (see Observation.SlotRange) does not reply in time, or runs nothing, it gets no
// further rounds.
func (l *Limiter) AllowEach(ctx context.Context, events []string) []Result {
	return l.decideEach(ctx, engine.Allow, events)
}

// decideEach answers a request of one unit for each event.
func (l *Limiter) decideEach(ctx context.Context, v engine.Verb, events []string) []Result {
	began, results := time.Now(), make([]Result, len(events))
	e := l.made()
	by := l.underEach(events)
	under := enginesOf(v, by)
	replies, errs := e.DecideEach(ctx, v, events, under)
	for i, event := range events {
		of := l
		if by != nil {
			of = by[i]
		}
		if under != nil && under[i] == nil {
			results[i].Decision, results[i].Err = of.fix(ctx, v, event, 1, began)
		} else {
			results[i].Err = of.finish(ctx, &results[i].Decision, v, event, 1, &replies[i], errs[i], began)
		}
	}
	return results
}

// enginesOf returns the engines that answer requests of a verb, with nil where an override answers.
func enginesOf(v engine.Verb, by []*Limiter) (engines []*engine.Limiter) {
	for _, l := range by {
		e := &l.engine
		if l.isFixed(v) {
			e = nil
		}
		engines = append(engines, e)
	}
	return engines
}

// Peek is shorthand for PeekN with one unit.
func (l *Limiter) Peek(ctx context.Context, event string) (Decision, error) {
	return l.decide(ctx, engine.Peek, event, 1)
}

// PeekN returns what AllowN would answer, but counts nothing and writes nothing. If it allows,
// Usage is as AllowN would leave it. If it denies, Usage is the current one, even if denied
// attempts count. Errors are those of AllowN, but never ErrUncertain.
func (l *Limiter) PeekN(ctx context.Context, event string, n int64) (Decision, error) {
	return l.decide(ctx, engine.Peek, event, n)
}

// PeekEach returns what Peek would return for each of many events, in one round trip to each shard.
// Results are in the order of events, each with its own error. An event that occurs twice gets the
// same answer twice, because a peek counts nothing. Many events are sent in rounds, as with
// AllowEach.
func (l *Limiter) PeekEach(ctx context.Context, events []string) []Result {
	return l.decideEach(ctx, engine.Peek, events)
}

// Wait calls WaitN with one unit.
func (l *Limiter) Wait(ctx context.Context, event string) (Decision, error) {
	return l.WaitN(ctx, event, 1)
}

// WaitN waits until n units are allowed and counted. If the deadline of ctx comes too early for
// that, WaitN returns at once, with the denial and an error that matches context.DeadlineExceeded.
//
// Waiters are served in no particular order. Each sleeps for its wait and up to 5 % more (at most
// 100 ms), then asks again. If denied attempts count, those of WaitN still do not. With Config.Now,
// the sleep is still in real time.
func (l *Limiter) WaitN(ctx context.Context, event string, n int64) (Decision, error) {
	for {
		d, err := l.decide(ctx, engine.Wait, event, n)
		if err != nil || d.Allowed {
			return d, err
		}
		if err := l.engine.Sleep(ctx, n, nap(ctx, &d), d.Degraded); err != nil {
			l.denied(ctx, engine.Allow, event, "", &d)
			return d, err
		}
	}
}

// Refund gives back the units that d counted, in every limit that still counts them. It never goes
// below zero, and refunds no units as old as Per. d.Counted is the number of units, and d.At
// selects the bucket: the first whose last event is not before d.At. If d.Usage is not empty,
// limits that are not in it are left alone.
//
// Refund a decision once: a second Refund gives back units of another caller. A decision that
// counted nothing changes nothing, without an error. A Degraded decision is refunded in the
// Fallback; without one, nowhere.
//
// Refund works even if ctx has ended, for example because a client has gone: only Config.Timeout
// ends it, or 5 s if that is negative. Errors are those of AllowN. After ErrUncertain the units may
// or may not be refunded.
func (l *Limiter) Refund(ctx context.Context, event string, d Decision) error {
	e := l.made()
	switch {
	case d.Counted <= 0 || d.Degraded && l.fallback == nil:
		return nil
	case d.Degraded:
		d.Degraded = false // for the Fallback, it is one of its own decisions
		return l.degraded().Refund(ctx, event, d)
	}
	return e.Refund(ctx, event, l.counted(d))
}

// Reset forgets the event: all its limits are as if never used, those of a Fallback too. An
// override stays; see EndOverride. If the value in Redis is not a record of this library, Reset
// leaves it alone and returns an error. Errors are those of AllowN.
func (l *Limiter) Reset(ctx context.Context, event string) error {
	return outage.Reset(ctx, l.made(), event, l.fallback, (*Limiter).Reset)
}

// Inspect returns every bucket of every limit, for diagnosis. It writes nothing, and never asks the
// Fallback. RetryAfter in its Usage is for one unit. Limits of an override replace its own. The
// modes OverrideBlock and OverrideUnlimited do not show: see Overrides. Errors are those of AllowN,
// but never ErrUncertain.
func (l *Limiter) Inspect(ctx context.Context, event string) (Snapshot, error) {
	l.made()
	by := l.under(event)
	reply, err := by.engine.Inspect(ctx, event)
	if err != nil {
		return Snapshot{}, err
	}
	s, err := by.snapshot(reply)
	s.Event, s.Key = event, l.engine.Key(event)
	return s, err
}
