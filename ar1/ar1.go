// Package ar1 limits how often events happen, by one number per limit: a level that each unit raises by 1 and that decays
// by half every 0.69 x Per. It has the verbs of the package window
// but AllowAll, AllowUpTo, Charge, Settle and With. Its memory does not grow with what is counted. It cannot tell which
// attempts a denial is due to, and holds less strictly.
//
// The level divided by Per is an exponential moving average of the rate. In steps of time it is a first-order
// autoregressive process, x' = φ·x + n with φ = e^(-step/Per), hence the name. A request for n units is admitted while
//
//	x + n <= C, where C = 1 / (1 - e^(-1/Max))
//
// C is the peak of a steady flow of Max per Per: for a Max of 5 it is 5.52, and in general about Max + 1/2. So, for a limit
// of 5 in 10 s:
//
//   - of an event at rest, whose level is 0, exactly Max units are admitted at once: 5;
//   - a steady flow of single units of up to Max per Per, evenly spaced and at least 5 µs apart, is never denied: one every
//     2 s, for ever. Batches are: all 5 at once again need 23 s of silence;
//   - an interval of length Per holds up to 2 x Max: the burst of 5, and 5 more as the level decays. Where that is too much,
//     or a minimum distance between two events is wanted, use window, which never admits more than Max.
//
// A level below 1/4 counts as 0, and the event is forgotten: 1.4 x Per after a single unit, ln(4 x level) x Per in general.
// The state is one Redis key per event, or this process's memory. docs/algorithm.md has the maths, in symbols and in numbers,
// and a picture beside window.
package ar1

import (
	"context"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/window"
)

// What both kinds of limiter share.
type (
	// Limit bounds what is admitted: exactly Max units at once from rest, a steady Max per Per, and up to 2 x Max in any
	// span of Per; it is no minimum distance, so not for window.Every. Max is 1 to 10^7. Resolution must be 0: a level has no
	// buckets, though String shows one for a large Max. window.PerHour and window.ParseLimit make such limits.
	Limit = window.Limit

	// Decision is the answer to one attempt. At is the time of the clock in whole microseconds, also after a step back. Of a
	// denial, Counted is what was asked for, not what was added: that is less (see Config.CountDenied).
	Decision = window.Decision
	// Result is what AllowEach answers about one event: a Decision, or why there is none.
	Result = window.Result

	// Usage is how much of one limit is used. Remaining is how many units it would admit at once, and Used is Max less that,
	// so never above Max: about the level. ResetAfter is until the level counts as 0. A wait that is longer than 290 years,
	// which only a Per of decades has, is told as that.
	Usage = window.Usage

	// Observation is what Config.Observe is told; its kinds are those of window.
	Observation = window.Observation
)

// Config says what a Limiter counts, and under which name. Only Name and Limits are needed.
type Config struct {
	// Name names the limiter in its keys: 1 to 64 bytes of A-Z a-z 0-9 . _ - : only. Limiters of one name share their levels,
	// but none with a limiter of window.
	Name string

	// Limits holds 1 to 31 limits, no two with the same Per. An attempt must fit all of them. Each may hold up to 2 x Max in
	// a span of Per.
	//
	// To change them, deploy other limits under the same Name: every limit whose Per stays keeps its level, an added one
	// starts at zero. A level above that of a lowered Max denies until it has decayed.
	Limits []Limit

	// CountDenied counts denied attempts too, in every limit, so that whoever keeps hammering stays out. They raise a level
	// to its C at most: after the last attempt, the next unit is admitted Per/Max later.
	CountDenied bool

	// Secret, if set, hides events in keys: a key then holds an HMAC-SHA256 of the event under this secret. Give it at least
	// 16 random bytes; whoever knows it can find short events again by trying. A shorter one is refused.
	Secret []byte `json:"-"`

	// Now is the clock, in whole microseconds; nil is the clock of the Redis server, or this process's monotonic clock in
	// memory. It is for simulations, replay and tests. Its times lie between 1970 and 2255. Redis keeps keys of such a
	// limiter for 24 h of real time beyond their end; in memory, an event is held until it is Reset.
	Now func() time.Time `json:"-"`

	// Timeout is how long one call may wait for Redis in all: 0 is a second, less than 0 is for ever, so that only the context
	// of the call ends it.
	Timeout time.Duration

	// Fallback decides while Redis cannot answer, typically one from NewLocal. Its decisions are Degraded, and by its own
	// limits. It must not have a Fallback itself.
	Fallback *Limiter `json:"-"`

	// DenialCache is how many denied events to remember, as in window; 0 is none.
	DenialCache int

	// MaxEvents bounds how many events a limiter in memory holds; 0 is no bound, except that a Fallback then holds 1,048,576. With one limit
	// an event takes some 250 bytes. If there is no room for another event, those that are forgotten make room: a new event causes a
	// look at 64 others. If none is found, a new event is denied, with a RetryAfter of a second, or admitted, and not counted. Events
	// that are held keep their counts. Observation.Full reports it. On Redis, use maxmemory instead.
	MaxEvents int

	// AllowWhenFull admits new events while MaxEvents are held, instead of denying them.
	AllowWhenFull bool

	// Observe is told of every attempt and peek, with the context of its call, and of the begin and end of an outage, with that of the call
	// that noticed; not of those of the Fallback. It is called by many goroutines at once, and the call that it is told of waits for it.
	// Keep it quick. It must not use the limiter: that could block both for ever.
	Observe func(ctx context.Context, o Observation) `json:"-"`
}

// Limiter decides about events. It comes from New or NewLocal, is safe for concurrent use and needs no Close. Its goroutines
// end when nothing is asked, except those that wait for a Redis that hangs: they end when rueidis gives up.
//
// Most callers should use Allow. Inspect also serves as an estimator of the rate, for dashboards and scores.
type Limiter struct {
	engine   *engine.Limiter
	limits   []Limit
	fallback *Limiter
	observe  func(context.Context, Observation) // nil if nobody observes
}

// Errors that a caller may want to tell apart, by errors.Is. They are those of window.
var (
	ErrEmptyEvent   = window.ErrEmptyEvent   // the event is ""
	ErrCost         = window.ErrCost         // less than one unit
	ErrExceedsLimit = window.ErrExceedsLimit // more units than the Max of a limit: never admitted
	ErrOutage       = window.ErrOutage       // Redis could not answer; nothing was counted
	ErrUncertain    = window.ErrUncertain    // no reply came; it may or may not have been counted
)

// New returns a limiter that keeps its levels in the Redis or Redis Cluster behind client. It sends nothing yet, so an
// error is about client or cfg, and says what to do. What it does about a Redis in trouble is what a limiter of window does.
func New(client rueidis.Client, cfg Config) (*Limiter, error) {
	e, err := engine.New(client, cfg.engine(), engineLimits(cfg.Limits))
	if err != nil {
		return nil, err
	}
	return newLimiter(e, cfg), nil
}

// NewOn is New on a Connection, from window.Connect or from package goredisgate. While there is no
// connection yet, answers are those of an outage.
func NewOn(conn *window.Connection, cfg Config) (*Limiter, error) {
	e, err := engine.NewOn(conn, cfg.engine(), engineLimits(cfg.Limits))
	if err != nil {
		return nil, err
	}
	return newLimiter(e, cfg), nil
}

// NewLocal returns the same limiter on levels in this process's memory: no Redis, same answers. Each has levels of its own,
// whatever its Name. It forgets events by itself, unless it has a clock of its own in Config.Now. It takes no Fallback, as
// it never needs one.
func NewLocal(cfg Config) (*Limiter, error) {
	c, limits := cfg.engine(), engineLimits(cfg.Limits)
	e, err := engine.NewLocal(c, limits, newMemory(c, limits))
	if err != nil {
		return nil, err
	}
	return newLimiter(e, cfg), nil
}

func newLimiter(e *engine.Limiter, cfg Config) *Limiter {
	return &Limiter{engine: e, limits: slices.Clone(cfg.Limits), fallback: cfg.Fallback, observe: cfg.Observe}
}

// made returns the engine of a limiter from New or NewLocal. Any other limiter is a mistake in the program.
func (l *Limiter) made() *engine.Limiter {
	if l == nil || l.engine == nil {
		panic("slidegate: this limiter is nil or zero; make it with ar1.New or NewLocal")
	}
	return l.engine
}

// Allow is shorthand for AllowN(ctx, event, 1).
func (l *Limiter) Allow(ctx context.Context, event string) (Decision, error) {
	return l.AllowN(ctx, event, 1)
}

// AllowN decides whether n units of the event may happen now, and counts all of them or none. A denial is a Decision, not
// an error; the same request is admitted RetryAfter later, and not a millisecond sooner, if nothing else happens in
// between. The errors are ErrEmptyEvent, ErrCost, ErrExceedsLimit, ErrOutage, ErrUncertain, those of ctx if it ended before
// anything was sent, and one that names the key if its value is not a record of this library, or can hold no more: 31
// limits of all callers of one Name. In each of these but ErrUncertain nothing was counted.
func (l *Limiter) AllowN(ctx context.Context, event string, n int64) (Decision, error) {
	return l.decide(ctx, l.made().Attempt(), event, n)
}

// AllowEach is Allow for each of many events, sent together, as in window: the answers are those of as many calls of Allow in order, in
// one round trip to each shard, each with an error of its own.
func (l *Limiter) AllowEach(ctx context.Context, events []string) []Result {
	began, results := time.Now(), make([]Result, len(events))
	for i, a := range l.made().AttemptEach(ctx, events) {
		results[i].Decision, results[i].Err = l.finish(ctx, l.engine.Attempt(), 1, &a.Reply, a.Err, began)
	}
	return results
}

// Peek is shorthand for PeekN(ctx, event, 1).
func (l *Limiter) Peek(ctx context.Context, event string) (Decision, error) {
	return l.PeekN(ctx, event, 1)
}

// PeekN tells what AllowN would answer, but counts nothing and writes nothing. If it admits, Usage is as AllowN would leave
// it; if it denies, Usage is as it stands, even where denied attempts count. While the clock reads earlier than the record, as
// it stepped back, a wait begins with the next attempt, which dates the levels anew. Errors are as those of AllowN, but
// never ErrUncertain.
func (l *Limiter) PeekN(ctx context.Context, event string, n int64) (Decision, error) {
	return l.decide(ctx, engine.Peek, event, n)
}

// Wait is shorthand for WaitN(ctx, event, 1).
func (l *Limiter) Wait(ctx context.Context, event string) (Decision, error) {
	return l.WaitN(ctx, event, 1)
}

// WaitN waits until n units are admitted and counted. It returns at once, with an error that matches
// context.DeadlineExceeded and the denial, if the deadline of ctx is sooner than that can be. Waiters are served in no
// order, and hold no place: each sleeps its wait and up to 5 % more (at most 100 ms), then asks again. Waiting is not
// hammering: where denied attempts count, those of WaitN do not. Where Config.Now is set, the sleep is still one of real time.
func (l *Limiter) WaitN(ctx context.Context, event string, n int64) (Decision, error) {
	for {
		d, err := l.decide(ctx, engine.Wait, event, n)
		if err != nil || d.Allowed {
			return d, err
		}
		if err := l.engine.Sleep(ctx, n, d.RetryAfter, d.Degraded); err != nil {
			return d, err
		}
	}
}

// Refund gives back what is left of the units that d counted: they have decayed since d.At, in every limit of d.Usage, as the
// level has. Less than 1/4 of a unit is not given back, as it may be forgotten. Of a denial nothing is given back, as it may have raised a level by less than its units (see CountDenied). A
// decision that counted nothing changes nothing. Refund a decision once, and not across a Reset or a step of the clock:
// else it gives back somebody else's units. Errors are as those of AllowN; after ErrUncertain the units may or may not be
// given back. A Degraded decision is given back in the Fallback; where there is none, nowhere.
func (l *Limiter) Refund(ctx context.Context, event string, d Decision) error {
	e := l.made()
	switch {
	case !d.Allowed || d.Counted <= 0 || d.Degraded && l.fallback == nil:
		return nil
	case d.Degraded:
		d.Degraded = false // to the Fallback it is a decision of its own
		return l.fallback.Refund(ctx, event, d)
	}
	return e.Refund(ctx, event, l.counted(d))
}

// Reset forgets the event: all its levels are 0, those of a Fallback too. A value that is not of this library is an error,
// and left alone. Errors are as those of AllowN.
func (l *Limiter) Reset(ctx context.Context, event string) error {
	return l.made().Reset(ctx, event)
}

// Inspect shows the levels of an event, and the rates that they stand for: of what was counted, so of what was admitted unless
// denied attempts count. It writes nothing, and never asks the Fallback. RetryAfter in its Usage is for one
// unit. Errors are as those of AllowN, but never ErrUncertain.
func (l *Limiter) Inspect(ctx context.Context, event string) (Snapshot, error) {
	reply, err := l.made().Inspect(ctx, event)
	if err != nil {
		return Snapshot{}, err
	}
	s, err := l.snapshot(reply)
	s.Event, s.Key = event, l.engine.Key(event)
	return s, err
}

// Snapshot is the state of one event.
type Snapshot struct {
	Event  string       // as it was asked for
	Key    string       // the key in Redis
	At     time.Time    // as in Decision
	Limits []LimitState // in the order of Config.Limits

	// Others are the levels that callers with other limits count for the event. Redis does not store how much a limit holds, so of their
	// Limit only Per is known, and Used, Remaining and RetryAfter are 0. In memory there are none.
	Others []LimitState
}

// LimitState is the state of one limit of one event. The average of Rate over time is the rate of what was counted, if that is
// at least one unit in a Per; of rarer ones it is less, as a level below 1/4 counts as 0. Right after a unit it reads 1/Per
// higher than right before.
type LimitState struct {
	Usage
	Level    float64       // in units, to 10^-8; 0 below 1/4
	Rate     float64       // units per second: Level / Per
	HalfLife time.Duration // in which the level decays by half: Per x ln 2
}
