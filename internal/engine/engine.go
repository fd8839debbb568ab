// Package engine decides requests for limiters of every kind: on Redis with their script, or in
// memory. It works in integers, as the scripts do. The packages window and ar1 convert its replies
// to decisions.
//
// A request passes through Limiter.Decide (engine.go) and the Store. The Store for Redis (store.go)
// turns requests into script calls, which package pipeline sends, and decodes the replies
// (reply.go).
package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/pipeline"
)

// Limiter decides requests on events under limits. It comes from New, NewLocal or With.
type Limiter struct {
	*core
	limits *Limits
}

// core is the state shared by limiters that are derived from one another by With.
type core struct {
	Config
	own    *Limits // the limits of the limiter from New or NewLocal
	store  Store
	bound  func(maxEvents int) // in memory; otherwise nil
	tagger *keys.Tagger        // nil without a Secret
	prefix string              // of each key
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
	// Inspect returns the integers that the script's verb inspect replies.
	Inspect(ctx context.Context, limits *Limits, event string) ([]int64, error)
}

// Verb says what a request does with its units, in the terms of the scripts.
type Verb string

// The verbs of a request. A limiter that counts denials replaces Allow by Count, and Some by
// CountSome. Stores support all of them except Wait.
const (
	Allow     Verb = "allow"     // count all units if they fit, otherwise none
	Count     Verb = "count"     // count all units in any case
	Some      Verb = "some"      // count as many units as fit
	CountSome Verb = "countsome" // count all units, and return how many fit
	Peek      Verb = "peek"      // count nothing
	Wait      Verb = "wait"      // Allow for a caller that waits, whose denials never count
	Charge    Verb = "charge"    // CountSome for units that were already used
)

// stored returns the verb that is passed to the store.
func (l *core) stored(v Verb) Verb {
	switch {
	case v == Wait:
		return Allow
	case v == Allow && l.CountDenied:
		return Count
	case v == Some && l.CountDenied:
		return CountSome
	}
	return v
}

// sent returns the verb that is passed to the script.
func (v Verb) sent() string {
	if v == Charge {
		return string(CountSome)
	}
	return string(v)
}

// partial reports whether part of the units can be granted. Waits are then for one more unit.
func (v Verb) partial() bool { return v == Some || v == CountSome || v == Charge }

// Denies reports whether a request that is not allowed is a denial for its caller. A caller that
// waits asks again.
func (v Verb) Denies() bool { return v == Allow || v == Some }

// Counted records the units that a decision counted, so that they can be refunded.
type Counted struct {
	Units  int64
	At     int64   // in units of the clock
	Limits []Limit // limits that counted them
}

// Of reports whether a limit of some Per counted the units.
func (c *Counted) Of(per int64) bool {
	return slices.ContainsFunc(c.Limits, func(l Limit) bool { return l.Per == per })
}

// Errors on the caller's side. The packages of the limiters export them under the same names.
var (
	ErrEmptyEvent   = errors.New("the event is empty; refuse the request, or name its subject")
	ErrInvalidCost  = errors.New("an attempt costs at least 1 unit")
	ErrExceedsLimit = errors.New("more units than a limit can ever allow; ask for fewer, or raise its Max")
)

// New returns a limiter on the Redis of a Connection.
func New(conn *pipeline.Connection, cfg Config, limits []Limit) (*Limiter, error) {
	if err := cfg.check(limits); err != nil {
		return nil, err
	}
	if err := conn.Refusal(); err != nil {
		return nil, fmt.Errorf("slidegate: limiter %q has no Redis: %w", cfg.Name, err)
	}
	if cfg.MaxEvents != 0 {
		return nil, fmt.Errorf("slidegate: limiter %q is on Redis and has a MaxEvents; bound Redis with maxmemory, and leave it out", cfg.Name)
	}
	if cfg.DenialCache > 0 && !conn.Tracks() {
		return nil, fmt.Errorf("slidegate: limiter %q has a DenialCache, but its client does not track keys; leave it out, or use rueidis", cfg.Name)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	l := newLimiter(cfg, limits)
	l.store = newOnRedis(conn, l.core)
	return l, nil
}

// BoundEvents bounds how many events a limiter in memory holds, unless it already has a bound.
func (l *Limiter) BoundEvents(n int) {
	if l.bound != nil && l.MaxEvents == 0 {
		l.bound(n)
	}
}

// InMemory reports whether the limiter works without Redis.
func (l *Limiter) InMemory() bool {
	_, asksRedis := l.store.(*onRedis)
	return !asksRedis
}

// NewLocal returns a limiter in memory, on a store that was created for the same configuration.
func NewLocal(cfg Config, limits []Limit, store Store) (*Limiter, error) {
	if err := cfg.checkMemory(); err != nil {
		return nil, err
	}
	if err := cfg.check(limits); err != nil {
		return nil, err
	}
	l := newLimiter(cfg, limits)
	l.store = store
	if bounded, is := store.(interface{ Bound(maxEvents int) }); is {
		l.BoundBy(bounded.Bound)
	}
	return l, nil
}

// BoundBy sets the function that bounds the events of a limiter in memory, once its Store exists.
func (l *Limiter) BoundBy(bound func(maxEvents int)) { l.bound = bound }

func newLimiter(cfg Config, limits []Limit) *Limiter {
	own := newLimits(limits, cfg.CountDenied)
	return &Limiter{&core{Config: cfg, own: own, tagger: keys.NewTagger(cfg.Secret), prefix: cfg.Name + ":{", suffix: "}:" + cfg.Kind}, own}
}

// Made reports whether the limiter comes from New, NewLocal or With.
func (l *Limiter) Made() bool { return l.core != nil }

// With returns the limiter under other limits. They share everything else.
func (l *Limiter) With(limits []Limit) (Limiter, error) {
	if err := l.checkLimits(limits); err != nil {
		return Limiter{}, fmt.Errorf("slidegate: With for limiter %q has %w", l.Name, err)
	}
	return l.Under(limits), nil
}

// Under is like With, for limits that are already checked.
func (l *Limiter) Under(limits []Limit) Limiter {
	return Limiter{l.core, newLimits(limits, l.CountDenied)}
}

// Limits returns the limits. Do not modify them.
func (l *Limiter) Limits() []Limit { return l.limits.list }

// Same reports whether two limiters share their counts and have the same limits.
func (l *Limiter) Same(other *Limiter) bool {
	return l.core == other.core && l.limits.same(other.limits)
}

// Key returns the Redis key of an event: the name, the event as hash tag, and the kind of record.
func (l *core) Key(event string) string { return l.prefix + l.Tag(event) + l.suffix }

// Tag returns the hash tag of an event.
func (l *core) Tag(event string) string { return l.tagger.Tag(event) }

// Shown returns an event as shown in lists of denials: the event itself or, if its key has a hash
// in its place, that hash. The key is that of the event, or empty if it was not created yet.
func (l *core) Shown(event, key string) (text string, hashed bool) {
	if !keys.IsHashed(l.Secret, event) {
		return event, false
	}
	if key == "" {
		return keys.Tag(l.Secret, event), true
	}
	return key[len(l.prefix) : len(key)-len(l.suffix)], true
}

// Decide writes the answer to a request for n units of an event to r, to avoid copying a Reply.
func (l *Limiter) Decide(ctx context.Context, r *Reply, v Verb, event string, n int64) (err error) {
	if err := l.Check(ctx, v, event, n); err != nil {
		return err
	}
	*r, err = l.store.Decide(ctx, l.limits, l.stored(v), event, min(n, l.MaxUnits))
	return l.Wrap(err)
}

// DecideEach answers Allow or Peek of one unit for each event, in order: with a Reply or an error.
// Under holds for each event this limiter, one derived by Under, or nil to skip the event. It is
// nil if this limiter answers for all events.
func (l *Limiter) DecideEach(ctx context.Context, v Verb, events []string, under []*Limiter) ([]Reply, []error) {
	replies, errs := make([]Reply, len(events)), make([]error, len(events))
	s, asksRedis := l.store.(*onRedis)
	if !asksRedis {
		for i, event := range events {
			errs[i] = l.Decide(ctx, &replies[i], v, event, 1)
		}
		return replies, errs
	}
	limiter := func(i int) *Limiter {
		if under == nil {
			return l
		}
		return under[i]
	}
	var indices []int
	for i, event := range events {
		if by := limiter(i); by == nil {
			continue
		} else if errs[i] = by.Check(ctx, v, event, 1); errs[i] == nil {
			indices = append(indices, i)
		}
	}
	s.decideEach(ctx, func(i int) *Limits { return limiter(i).limits }, l.stored(v), events, indices, replies, errs)
	for _, i := range indices {
		errs[i] = l.Wrap(errs[i])
	}
	return replies, errs
}

// Sleep waits until a denied request for n units can be made again. It waits up to 5 % longer (at
// most 100 ms), so that waiters do not all retry at once. If the deadline of ctx comes too early
// for that, it returns an error at once.
func (l *Limiter) Sleep(ctx context.Context, n int64, retryAfter time.Duration, degraded bool) error {
	if degraded {
		retryAfter = min(retryAfter, pipeline.RecoveryDelay) // Redis may be back by then
	}
	err := context.DeadlineExceeded
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) >= retryAfter {
		err = pipeline.Sleep(ctx, retryAfter+time.Duration(rand.Float64()*float64(min(retryAfter/20, 100*time.Millisecond))))
	}
	if err != nil {
		return l.Wrap(fmt.Errorf("a wait of %v for n = %d: %w", pipeline.Rounded(retryAfter), n, err))
	}
	return nil
}

// Finishing returns a context for what must be done even if ctx has ended: refunding units, or
// charging them. It keeps the values of ctx. Timeout ends the call, or 5 s if it is negative.
func (l *core) Finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.Timeout < 0 {
		return calls.Finish(ctx)
	}
	return context.WithoutCancel(ctx), func() {}
}

// Refund gives back the units that a decision of this limiter counted, even if ctx has ended.
func (l *Limiter) Refund(ctx context.Context, event string, c Counted) error {
	ctx, cancel := l.Finishing(ctx)
	defer cancel()
	if err := l.Check(ctx, Charge, event, 1); err != nil || len(c.Limits) == 0 {
		return err
	}
	return l.Wrap(l.store.Refund(ctx, event, c))
}

// Reset forgets the event, which must have passed Check.
func (l *Limiter) Reset(ctx context.Context, event string) error {
	return l.Wrap(l.store.Reset(ctx, event))
}

// Inspect returns the state of an event, in the integers that the script's verb inspect replies.
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
		return l.Wrap(fmt.Errorf("%w, not %d", ErrInvalidCost, n))
	case ctx.Err() != nil:
		return l.Wrap(pipeline.NotSent(ctx.Err()))
	case n > l.MaxUnits && (v == Charge || l.stored(v) == CountSome):
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
	return &namedError{l.Name, err}
}

// namedError is an error of a limiter. Its text is only built when it is read: most errors while
// Redis is down are never read, because a Fallback decides.
type namedError struct {
	name string
	err  error
}

func (e *namedError) Error() string { return fmt.Sprintf("slidegate: limiter %q: %v", e.name, e.err) }
func (e *namedError) Unwrap() error { return e.err }
