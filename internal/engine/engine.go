// Package engine decides requests for limiters of every kind: on Redis by their script, or in
// memory. It works in integers, as the scripts do. The packages window and ar1 convert its replies
// to decisions.
//
// A request on Redis passes Limiter.Decide (engine.go), redis.Decide (redis.go) and call.run
// (call.go), which puts the request into the queue of its slot range. A sender takes all queued
// requests (queue.go) and sends them as one batch (batch.go).
package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/keys"
)

// Limiter decides requests on events under limits. It comes from New, NewLocal or With.
type Limiter struct {
	*core
	limits *Limits
}

// core is the part that all limiters share that come from one another by With.
type core struct {
	Config
	own    *Limits // the limits of the limiter from New or NewLocal
	store  Store
	redis  *redis // the same as store, nil in memory
	prefix string // of each key
	suffix string
}

// Store holds the counts of a limiter, in Redis or in memory.
type Store interface {
	// Decide answers a request for n units under limits. It counts them if the verb says so.
	Decide(ctx context.Context, limits *Limits, v Verb, event string, n int64) (Reply, error)
	// Refund gives back units that were counted.
	Refund(ctx context.Context, event string, c Counted) error
	// Reset forgets an event.
	Reset(ctx context.Context, event string) error
	// Inspect returns the integers of the script's verb inspect.
	Inspect(ctx context.Context, limits *Limits, event string) ([]int64, error)
}

// Verb says what a request does with its units, in the words of the scripts.
type Verb string

// The verbs of a request. Stores know all of them except Wait.
const (
	Allow     Verb = "allow"     // count all units if they fit, else none
	Count     Verb = "count"     // count all units in any case
	Some      Verb = "some"      // count as many units as fit
	CountSome Verb = "countsome" // count all units, and say how many fit
	Peek      Verb = "peek"      // count nothing
	Wait      Verb = "wait"      // Allow for a caller that waits: a Fallback does not count its denials either
	Charge    Verb = "charge"    // CountSome for units that were already used: a Fallback counts them in any case, too
)

// sent returns the verb as the scripts know it.
func (v Verb) sent() string {
	if v == Charge {
		return string(CountSome)
	}
	return string(v)
}

// partial reports whether a part of the units can be granted. Waits are then for one more unit.
func (v Verb) partial() bool { return v == Some || v == CountSome || v == Charge }

// Counted records the units that a decision counted, so that they can be refunded.
type Counted struct {
	Units  int64
	At     int64   // in units of the clock
	Limits []Limit // that counted them
}

// Of reports whether a limit of some Per counted the units.
func (c *Counted) Of(per int64) bool {
	return slices.ContainsFunc(c.Limits, func(l Limit) bool { return l.Per == per })
}

// Errors of the caller. The packages of the limiters export them by the same names.
var (
	ErrEmptyEvent   = errors.New("the event is empty; refuse the request, or name its subject")
	ErrCost         = errors.New("an attempt costs at least 1 unit")
	ErrExceedsLimit = errors.New("more units than a limit ever admits; ask for fewer, or raise its Max")
)

// New returns a limiter on Redis.
func New(client rueidis.Client, cfg Config, limits []Limit) (*Limiter, error) {
	if client == nil {
		return newOn(nil, cfg, limits)
	}
	return newOn(ConnectedTo(newRueidisClient(client)), cfg, limits)
}

// NewOn returns a limiter on the Redis of a Connection.
func NewOn(conn *Connection, cfg Config, limits []Limit) (*Limiter, error) {
	if conn != nil && conn.dial == nil && conn.up.Load() == nil {
		return nil, fmt.Errorf("slidegate: limiter %q has a Connection that is zero, or has no dial; make it by window.Connect", cfg.Name)
	}
	return newOn(conn, cfg, limits)
}

func newOn(conn *Connection, cfg Config, limits []Limit) (*Limiter, error) {
	if err := cfg.check(limits); err != nil {
		return nil, err
	}
	if conn == nil {
		return nil, fmt.Errorf("slidegate: limiter %q has no client; pass one from rueidis.NewClient, or use NewLocal", cfg.Name)
	}
	if cfg.MaxEvents != 0 {
		return nil, fmt.Errorf("slidegate: limiter %q is on Redis and has a MaxEvents; bound Redis by maxmemory, and leave it out", cfg.Name)
	}
	if cfg.DenialCache > 0 && !conn.tracks() {
		return nil, fmt.Errorf("slidegate: limiter %q has a DenialCache, and a client that does not track keys; leave it out, or use rueidis", cfg.Name)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	cfg.Fallback.bound()
	l := newLimiter(cfg, limits)
	l.redis = newRedis(conn, l.core)
	l.store = l.redis
	return l, nil
}

// bound bounds the number of events that a Fallback in memory holds, unless it already has a bound.
func (l *Limiter) bound() {
	if l == nil || l.MaxEvents > 0 {
		return
	}
	if store, inMemory := l.store.(interface{ Bound(maxEvents int) }); inMemory {
		store.Bound(fallbackEvents)
	}
}

// NewLocal returns a limiter in memory, on a store made for the same configuration.
func NewLocal(cfg Config, limits []Limit, store Store) (*Limiter, error) {
	if err := cfg.checkMemory(); err != nil {
		return nil, err
	}
	if err := cfg.check(limits); err != nil {
		return nil, err
	}
	l := newLimiter(cfg, limits)
	l.store = store
	return l, nil
}

func newLimiter(cfg Config, limits []Limit) *Limiter {
	own := newLimits(limits, cfg.CountDenied)
	return &Limiter{&core{Config: cfg, own: own, prefix: cfg.Name + ":{", suffix: "}:" + cfg.Kind}, own}
}

// Made reports whether the limiter comes from New, NewLocal or With.
func (l *Limiter) Made() bool { return l.core != nil }

// With returns the limiter under other limits, which its Fallback uses too. They share everything
// else.
func (l *Limiter) With(limits []Limit) (Limiter, error) {
	if err := l.checkLimits(limits); err != nil {
		return Limiter{}, fmt.Errorf("slidegate: With for limiter %q has %w", l.Name, err)
	}
	return Limiter{l.core, newLimits(limits, l.CountDenied)}, nil
}

// Limits returns the limits. Do not change them.
func (l *Limiter) Limits() []Limit { return l.limits.list }

// Same reports whether two limiters share their counts and have the same limits.
func (l *Limiter) Same(other *Limiter) bool {
	return l.core == other.core && l.limits.same(other.limits)
}

// Derived reports whether the limiter comes from With.
func (l *Limiter) Derived() bool { return l.limits != l.own }

// FallbackUnderSame returns the Fallback, which must exist. If the limiter comes from With, the
// Fallback gets its limits.
func (l *Limiter) FallbackUnderSame() Limiter {
	f := *l.Fallback
	if l.Derived() {
		f.limits = newLimits(l.limits.list, f.CountDenied)
	}
	return f
}

// Key returns the Redis key of an event: the name, the event as hash tag, the kind of record.
func (l *core) Key(event string) string { return l.prefix + keys.Tag(l.Secret, event) + l.suffix }

// Attempt returns the verb of an attempt.
func (l *Limiter) Attempt() Verb {
	if l.CountDenied {
		return Count
	}
	return Allow
}

// AttemptSome returns the verb of an attempt that is granted as many units as fit.
func (l *Limiter) AttemptSome() Verb {
	if l.CountDenied {
		return CountSome
	}
	return Some
}

// Decide answers a request for n units of an event. If Redis cannot answer, the Fallback does.
func (l *Limiter) Decide(ctx context.Context, v Verb, event string, n int64) (Reply, error) {
	if err := l.Check(ctx, v, event, n); err != nil {
		return Reply{}, err
	}
	stored := v
	if v == Wait {
		stored = Allow
	}
	r, err := l.store.Decide(ctx, l.limits, stored, event, min(n, l.MaxUnits))
	if err != nil {
		return l.fallBack(ctx, v, event, n, r.Trace, err)
	}
	return r, nil
}

// An Answer is a Reply, or the reason why there is none.
type Answer struct {
	Reply
	Err error
}

// AttemptEach answers an attempt of one unit for each event, in order.
func (l *Limiter) AttemptEach(ctx context.Context, events []string) []Answer {
	v, answers := l.Attempt(), make([]Answer, len(events))
	if l.redis == nil {
		for i, event := range events {
			answers[i].Reply, answers[i].Err = l.Decide(ctx, v, event, 1)
		}
		return answers
	}
	var indices []int
	for i, event := range events {
		if answers[i].Err = l.Check(ctx, v, event, 1); answers[i].Err == nil {
			indices = append(indices, i)
		}
	}
	l.redis.decideEach(ctx, l.limits, v, events, indices, answers)
	for _, i := range indices {
		if err := answers[i].Err; err != nil {
			answers[i].Reply, answers[i].Err = l.fallBack(ctx, v, events[i], 1, answers[i].Trace, err)
		}
	}
	return answers
}

// fallBack asks the Fallback if cause is an outage. The configuration of the Fallback says whether
// it counts denials. If it cannot answer either, fallBack returns the error of Redis, which says
// whether the request was counted there.
func (l *Limiter) fallBack(ctx context.Context, v Verb, event string, n int64, trace Trace, cause error) (Reply, error) {
	failed := Reply{Trace: trace}
	if l.Fallback == nil || !isOutage(cause) || ctx.Err() != nil {
		return failed, l.Wrap(cause)
	}
	f := l.FallbackUnderSame()
	r, err := f.Decide(ctx, f.translate(v), event, n)
	if err != nil {
		return failed, l.Wrap(fmt.Errorf("%w; nor does the Fallback decide: %v", cause, err)) //nolint:errorlint // it must match the cause alone
	}
	r.Degraded, r.Trace = true, trace
	return r, nil
}

// translate returns the verb with which to ask a Fallback.
func (l *Limiter) translate(v Verb) Verb {
	switch v {
	case Allow, Count:
		return l.Attempt()
	case Some, CountSome:
		return l.AttemptSome()
	}
	return v
}

// Sleep waits until a denied request for n units can be made again. It waits up to 5 % longer (at
// most 100 ms), so that waiters do not all retry at once. If the deadline of ctx is sooner, it
// returns an error at once.
func (l *Limiter) Sleep(ctx context.Context, n int64, retryAfter time.Duration, degraded bool) error {
	if degraded {
		retryAfter = min(retryAfter, RecoveryDelay) // Redis may be back by then
	}
	err := context.DeadlineExceeded
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) >= retryAfter {
		err = sleep(ctx, retryAfter+time.Duration(rand.Float64()*float64(min(retryAfter/20, 100*time.Millisecond))))
	}
	if err != nil {
		return l.Wrap(fmt.Errorf("a wait of %v for n = %d: %w", rounded(retryAfter), n, err))
	}
	return nil
}

// sleep sleeps for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Refund gives back the units that a decision of this limiter counted.
func (l *Limiter) Refund(ctx context.Context, event string, c Counted) error {
	if err := l.Check(ctx, Charge, event, 1); err != nil || len(c.Limits) == 0 {
		return err
	}
	return l.Wrap(l.store.Refund(ctx, event, c))
}

// Reset forgets the event, also in the Fallback.
func (l *Limiter) Reset(ctx context.Context, event string) error {
	if err := l.Check(ctx, Peek, event, 1); err != nil {
		return err
	}
	err := l.Wrap(l.store.Reset(ctx, event))
	if l.Fallback != nil {
		err = errors.Join(err, l.Fallback.Reset(ctx, event))
	}
	return err
}

// Inspect returns the state of an event, in the integers of the script's verb inspect. It never
// asks the Fallback.
func (l *Limiter) Inspect(ctx context.Context, event string) ([]int64, error) {
	if err := l.Check(ctx, Peek, event, 1); err != nil {
		return nil, err
	}
	reply, err := l.store.Inspect(ctx, l.limits, event)
	return reply, l.Wrap(err)
}

// Check returns an error for a request that could never be allowed, or whose context has ended.
func (l *Limiter) Check(ctx context.Context, v Verb, event string, n int64) error {
	switch {
	case event == "":
		return l.Wrap(ErrEmptyEvent)
	case n < 1:
		return l.Wrap(fmt.Errorf("%w, not %d", ErrCost, n))
	case ctx.Err() != nil:
		return l.Wrap(notSent(ctx.Err()))
	case n > l.MaxUnits && (v == Charge || v == CountSome):
		return l.Wrap(fmt.Errorf("%d units in one call, which counts at most %d; count them in several", n, l.MaxUnits))
	case v.partial():
		return nil
	}
	for _, limit := range l.limits.list {
		if n > limit.Max {
			return l.Wrap(fmt.Errorf("%d units under %s: %w", n, l.Text(limit), ErrExceedsLimit))
		}
	}
	return nil
}

// Wrap adds the name of the limiter to an error.
func (l *core) Wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("slidegate: limiter %q: %w", l.Name, err)
}
