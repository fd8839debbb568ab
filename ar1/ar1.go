// Package ar1 is a distributed rate limiter that keeps one number per limit: on Redis, on Redis
// Cluster, or in the memory of one process.
//
// That number is a level: an exponential moving average of the rate. Each unit raises the level by
// 1, and the level halves every 0.69 x Per. Memory use therefore does not grow with the counts, and
// the level also estimates the rate. In return, ar1 is looser than the sliding windows of package
// window: an interval of length Per can hold up to 2 x Max units. It also cannot show which
// attempts caused a denial. Do not use it to enforce a minimum distance between events, such as one
// every 5 s.
//
//	limiter, err := ar1.New(conn, ar1.Config{ // conn comes from window.Dial
//		Name:   "api",
//		Limits: []window.Limit{window.PerMinute(1000), window.PerDay(100_000)},
//	})
//	// ...
//	d, err := limiter.Allow(ctx, "API key 17")
//	switch {
//	case err != nil: // Redis cannot answer: allow or deny, your choice
//	case d.Allowed: // go ahead
//	default: // respond with HTTP 429; Retry-After is d.RetryAfter in seconds, rounded up
//	}
//
// The event parameter of every method names the subject that is limited: an address, an account, an
// API key. The levels of each event are kept in one Redis key. Methods work as in window, but ar1
// has no AllowAll, AllowUpTo, Charge, Settle, Wait or With.
//
// # How rate limiting by a level works
//
// Sampled at equal steps of time, the level is a first-order autoregressive process, x' = φ·x + n
// with φ = e^(-step/Per), hence the name. A request for n units is allowed if
//
//	x + n <= C, where C = 1 / (1 - e^(-1/Max))
//
// C is the peak level of a steady flow of Max units per Per. It is about Max + 1/2: for a Max of 5,
// it is 5.52. For a limit of 5 in 10 s, for example:
//
//   - When the level is 0, exactly Max units are allowed at once: 5.
//   - A steady flow of single units of up to Max per Per, evenly spaced and at least 5 µs apart, is
//     never denied: one every 2 s, forever. Batches can be denied: allowing 5 at once again takes
//     23 s of silence.
//   - An interval of length Per can hold up to 2 x Max: the burst of 5, and 5 more as the level
//     decays. Package window never allows more than Max.
//
// A level below 1/4 counts as 0, and the event is forgotten. That takes 1.4 x Per after a single
// unit, and ln(4 x level) x Per in general. The maths, and a comparison with window:
// https://github.com/slidegate/slidegate/blob/main/docs/algorithm.md
package ar1

import (
	"context"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/internal/report"
	"github.com/slidegate/slidegate/window"
)

// Config configures a Limiter. Only Name and Limits are required. Fields work as in window.Config
// unless described otherwise.
type Config struct {
	// Name is as in window. Limiters with the same Name share their levels, but never with a
	// limiter of package window.
	Name string

	// Limits holds 1 to 31 limits, as in window. Each allows exactly Max units at once after a rest,
	// a steady Max per Per, and up to 2 x Max in any interval of length Per. Max is 1 to 10^7.
	// Resolution must be 0, since a level has no buckets. Format a limit with Label, because String
	// shows a Resolution for a large Max. Create limits with window.PerHour or window.ParseLimit,
	// for example, but not with window.Every, because a level cannot enforce a minimum distance. If
	// Max is lowered, a level above the new Max causes denials until it has decayed.
	// https://github.com/slidegate/slidegate/blob/main/docs/algorithm.md
	Limits []window.Limit

	// CountDenied makes denied attempts count too, as in window. They raise a level to at most C,
	// so once a client stops, its next unit is allowed after Per/Max.
	CountDenied bool

	// Secret hides events in keys with HMAC-SHA256, as in window. It needs at least 16 random
	// bytes.
	Secret []byte `json:"-"`

	// Now is the clock, as in window, but with a resolution of 1 µs, and for times from 1970 to
	// 2255.
	Now func() time.Time `json:"-"`

	// Timeout bounds how long one call waits for Redis in total, as in window. 0 means 250 ms. If
	// Timeout is negative, only the call's context ends the wait.
	// https://github.com/slidegate/slidegate/blob/main/docs/outages.md
	Timeout time.Duration

	// Fallback decides while Redis cannot answer, as in window. It has no Fallback itself.
	Fallback *Limiter `json:"-"`

	// MaxEvents bounds how many events a limiter in memory holds, as in window.
	MaxEvents int

	// Observe is called after each attempt and peek, and when an outage starts or ends, as in
	// window.
	Observe func(ctx context.Context, o window.Observation) `json:"-"`

	// OnDenied is called after each denied attempt, as in window. Unlike Observe, it receives the
	// event.
	OnDenied func(ctx context.Context, d window.Denial) `json:"-"`
}

// Limiter allows or denies attempts under its limits, as in window. New and NewLocal each return a
// Limiter. It is safe for concurrent use and needs no Close.
//
// Most callers should use Allow. Inspect also estimates the rate, for dashboards and scores.
type Limiter struct {
	base     *limiter.Limiter
	limits   []window.Limit
	plan     string // for Observe; see WithPlan
	fallback *Limiter
	report   report.To
}

// These errors can be distinguished with errors.Is. They are the same values as in window.
var (
	ErrEmptyEvent   = window.ErrEmptyEvent   // the event is ""
	ErrInvalidCost  = window.ErrInvalidCost  // less than one unit
	ErrExceedsLimit = window.ErrExceedsLimit // more units than the Max of a limit: never allowed
	ErrOutage       = window.ErrOutage       // Redis could not answer; nothing was counted
	ErrUncertain    = window.ErrUncertain    // no reply came; it may or may not have been counted
)

// New returns a limiter that keeps its levels in the Redis or Redis Cluster that conn connects to.
// Create conn with window.Dial, window.On or package goredisgate. New sends nothing, so an error
// always concerns conn or cfg, and says what to do. The circuit breaker works as in window.
func New(conn *window.Connection, cfg Config) (*Limiter, error) {
	base, err := limiter.New((*connection.Connection)(conn), cfg.base(), baseLimits(cfg.Limits))
	return newLimiter(base, err, cfg)
}

// NewLocal returns a limiter that keeps its levels in this process's memory: no Redis, same
// answers. Each local limiter has its own levels, even if it shares its Name with another. It
// forgets expired events by itself, unless Config.Now sets its clock. Config.Fallback must be nil,
// because a local limiter never needs one.
func NewLocal(cfg Config) (*Limiter, error) {
	if cfg.Fallback != nil {
		return nil, limiter.NeedlessFallback(cfg.Name)
	}
	c, limits := cfg.base(), baseLimits(cfg.Limits)
	base, err := limiter.NewLocal(c, limits, newMemory(c, limits))
	return newLimiter(base, err, cfg)
}

func newLimiter(base *limiter.Limiter, err error, cfg Config) (*Limiter, error) {
	if f := cfg.Fallback; f != nil && err == nil {
		err = limiter.UseFallback(cfg.Name, f.base, f.fallback != nil)
	}
	if err != nil {
		return nil, err
	}
	return &Limiter{base: base, limits: slices.Clone(cfg.Limits), fallback: cfg.Fallback, report: cfg.report()}, nil
}

// WithPlan returns a limiter that is like l but sets Observation.Plan to the given plan, as in
// window. It does not change the limits: for each plan that has its own limits, create a separate
// limiter with the same Name.
func (l *Limiter) WithPlan(plan string) *Limiter {
	l.made()
	named := *l
	named.plan = plan
	return &named
}

// made returns the base of l. It panics if the limiter was not created by New or NewLocal,
// which is a programming error.
func (l *Limiter) made() *limiter.Limiter {
	if l == nil || l.base == nil {
		limiter.Unmade("ar1")
	}
	return l.base
}

// Allow calls AllowN with one unit.
func (l *Limiter) Allow(ctx context.Context, event string) (window.Decision, error) {
	return l.AllowN(ctx, event, 1)
}

// AllowN decides whether n units of the event are allowed now, as in window, and counts all of them
// or none. After a denial, retrying the same request after exactly RetryAfter succeeds, and
// retrying a millisecond earlier fails, unless something else changes the levels in between. Errors
// are the same as in window, except that a record can be full only because of the number of limits,
// not of units.
//
// Decision.At has a resolution of 1 µs, and is the time of the clock even if the clock has stepped
// back. If a denied attempt is counted, Decision.Counted is the number of units asked for, although
// the level rises by less (see Config.CountDenied). Each Usage is derived from the level. Remaining
// is how many units the limit would allow at once. Used is Max - Remaining: it approximates the
// level, and is never above Max. ResetAfter is the time until the level counts as 0. Waits above
// 290 years, which occur only if Per is decades long, are reported as 290 years.
func (l *Limiter) AllowN(ctx context.Context, event string, n int64) (window.Decision, error) {
	return l.decide(ctx, limiter.Allow, event, n)
}

// Peek calls PeekN with one unit.
func (l *Limiter) Peek(ctx context.Context, event string) (window.Decision, error) {
	return l.PeekN(ctx, event, 1)
}

// PeekN returns what AllowN would return, as in window, but counts nothing and writes nothing. If
// the clock has stepped back to before the time of the record, the level does not start to decay,
// and RetryAfter does not start to shrink, until the next attempt, which moves the record to the
// time of the clock.
func (l *Limiter) PeekN(ctx context.Context, event string, n int64) (window.Decision, error) {
	return l.decide(ctx, limiter.Peek, event, n)
}

// Refund gives back what is left of the units that d counted, under each limit in d.Usage. Since
// d.At, they have decayed like the level itself. If less than 1/4 of a unit is left, Refund gives
// back nothing, because the level may have been forgotten. It does not refund a denial, because
// that may have raised a level by less than its units (see Config.CountDenied).
//
// Refund a decision once, and not after a Reset or a step of the clock: that could give back units
// of another caller. Otherwise Refund works as in window.
func (l *Limiter) Refund(ctx context.Context, event string, d window.Decision) error {
	base := l.made()
	switch {
	case !d.Allowed || d.Counted <= 0 || d.Degraded && l.fallback == nil:
		return nil
	case d.Degraded:
		d.Degraded = false // for the Fallback, it is one of its own decisions
		return l.fallback.Refund(ctx, event, d)
	}
	return base.Refund(ctx, event, l.counted(d))
}

// Reset forgets the event, as in window: it sets all levels of the event to 0, in the Fallback too.
func (l *Limiter) Reset(ctx context.Context, event string) error {
	base := l.made()
	return limiter.ResetBoth(ctx, base, event, base.Reset, l.fallback, (*Limiter).Reset)
}

// Inspect returns the levels of the event, and the rates that they correspond to. Unless denied
// attempts count, these are the rates of allowed units. Inspect writes nothing, and never asks the
// Fallback. The RetryAfter of each Usage is for one unit. Inspect returns the same errors as
// AllowN, except ErrUncertain.
func (l *Limiter) Inspect(ctx context.Context, event string) (Snapshot, error) {
	reply, err := l.made().Inspect(ctx, event)
	if err != nil {
		return Snapshot{}, err
	}
	s, err := l.snapshot(reply)
	s.Key = l.base.Key(event)
	return s, err
}

// Snapshot is the state of one event.
type Snapshot struct {
	Key    string       // the key in Redis
	At     time.Time    // as in Decision
	Limits []LimitState // in the order of Config.Limits

	// Others are the levels of the event that belong to limits of other callers. Redis does not
	// store the Max of a limit, so only Limit.Per is known, and Used, Remaining and RetryAfter are
	// 0. In memory, Others is empty.
	Others []LimitState
}

// LimitState is the state of one limit of one event. Averaged over time, Rate is the rate of
// counted units, provided that there is at least one unit per Per. If units are rarer, Rate is
// lower, because a level below 1/4 counts as 0. Each unit raises Rate by 1/Per.
type LimitState struct {
	window.Usage // see AllowN

	Level    float64       // in units, to 10^-8; 0 below 1/4
	Rate     float64       // units per second: Level / Per
	HalfLife time.Duration // the time in which the level decays by half: Per x ln 2
}
