// Package limiter implements what all kinds of limiters share. It decides requests in Redis, with
// the script of the limiter, or in memory. Like the scripts, it computes with integers. The
// packages window and ar1 convert its replies to decisions; pace and inflight make calls of their own.
//
// A request passes through Limiter.Decide (limiter.go) to the Store. The Store for Redis (store.go)
// turns requests into script calls, which package send sends, and decodes the replies
// (reply.go).
package limiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/send"
)

// Limiter decides requests for events under its limits. Create it with New, NewLocal or With.
type Limiter struct {
	*core
	limits *Limits
}

// core is the state that a limiter shares with those derived from it by With.
type core struct {
	Config
	own    *Limits // the limits passed to New or NewLocal
	store  Store
	Bound  func(maxEvents int) // sets how many events a limiter in memory holds; otherwise nil
	prefix string              // the start of each key
	hider  *keys.Hider         // nil without a Secret
}

// Store keeps a limiter's counts, in Redis or in memory.
type Store interface {
	// Decide decides a request for n units under limits, and counts the units as v specifies.
	Decide(ctx context.Context, limits *Limits, v Verb, event string, n int64) (Reply, error)
	// Refund gives back the units that c records.
	Refund(ctx context.Context, event string, c Counted) error
	// Reset forgets the event.
	Reset(ctx context.Context, event string) error
	// Inspect returns the integers of the script's reply to the verb inspect.
	Inspect(ctx context.Context, limits *Limits, event string) ([]int64, error)
}

// Verb specifies what a request does with its units. Most verbs are also verbs of the scripts.
type Verb string

// The verbs of requests. A limiter that counts denials replaces Allow with Count, and Some with
// CountSome. Stores support all of these verbs except Wait.
const (
	Allow     Verb = "allow"     // count all units if they fit, otherwise none
	Count     Verb = "count"     // count all units in any case
	Some      Verb = "some"      // count as many units as fit
	CountSome Verb = "countsome" // count all units, and return how many fit
	Peek      Verb = "peek"      // count nothing
	Wait      Verb = "wait"      // Allow for a caller that waits; denials never count
	Charge    Verb = "charge"    // CountSome for units that have already been used
)

// stored returns the verb to pass to the Store for v.
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

// sent returns the verb to pass to the script for v.
func (v Verb) sent() string {
	if v == Charge {
		return string(CountSome)
	}
	return string(v)
}

// Partial reports whether v can grant part of the units. If it can, waits are for one more unit.
func (v Verb) Partial() bool { return v == Some || v == CountSome || v == Charge }

// Denies reports whether the caller is denied if the request is not allowed. With Wait, for
// example, the caller tries again.
func (v Verb) Denies() bool { return v == Allow || v == Some }

// Counted records the units that a decision counted, so that they can be refunded.
type Counted struct {
	Units  int64
	At     int64   // in units of the clock
	Limits []Limit // the limits that counted the units
}

// Of reports whether the limit with the given Per counted the units.
func (c *Counted) Of(per int64) bool {
	return slices.ContainsFunc(c.Limits, func(l Limit) bool { return l.Per == per })
}

// Errors that the caller causes. The limiters' packages export them under the same names.
var (
	ErrEmptyEvent   = errors.New("the event is empty; refuse the request, or name its subject")
	ErrInvalidCost  = errors.New("an attempt costs at least 1 unit")
	ErrExceedsLimit = errors.New("more units than a limit can ever allow; ask for fewer, or raise its Max")
)

// New returns a limiter that uses Redis through conn.
func New(conn *connection.Connection, cfg Config, limits []Limit) (*Limiter, error) {
	if err := cfg.check(limits); err != nil {
		return nil, err
	}
	if err := conn.Refusal(); err != nil {
		return nil, fmt.Errorf("slidegate: limiter %q has no Redis: %w", cfg.Name, err)
	}
	if cfg.MaxEvents != 0 {
		return nil, fmt.Errorf("slidegate: limiter %q is on Redis and has a MaxEvents; bound Redis with maxmemory, and leave it out", cfg.Name)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	l := newLimiter(cfg, limits)
	s := &onRedis{core: l.core, pipeline: send.New(conn, cfg.Name, cfg.Notify)}
	if cfg.DenialCache > 0 {
		s.denials = newDenialCache(cfg.DenialCache)
	}
	l.store = s
	return l, nil
}

// InMemory reports whether the limiter counts in memory, without Redis.
func (l *Limiter) InMemory() bool {
	_, asksRedis := l.store.(*onRedis)
	return !asksRedis
}

// NewLocal returns a limiter in memory. The store must have been created for the same
// configuration. If it is created later, the caller must set Bound.
func NewLocal(cfg Config, limits []Limit, store Store) (*Limiter, error) {
	if cfg.DenialCache != 0 {
		return nil, fmt.Errorf("slidegate: limiter %q is in memory and has a DenialCache, which would save it nothing; leave it out", cfg.Name)
	}
	if err := cfg.check(limits); err != nil {
		return nil, err
	}
	l := newLimiter(cfg, limits)
	l.store = store
	if bounded, is := store.(interface{ Bound(maxEvents int) }); is {
		l.Bound = bounded.Bound
	}
	return l, nil
}

func newLimiter(cfg Config, limits []Limit) *Limiter {
	own := newLimits(limits, cfg.CountDenied)
	return &Limiter{&core{Config: cfg, own: own, prefix: cfg.Name + ":{", hider: keys.NewHider(cfg.Secret)}, own}
}

// Unmade panics, because a limiter of the package with the given name is nil or zero, which is a
// programming error.
func Unmade(name string) {
	panic("slidegate: this limiter is nil or zero; create one with " + name + ".New or NewLocal")
}

// Made reports whether the limiter was created with New, NewLocal or With.
func (l *Limiter) Made() bool { return l != nil && l.core != nil }

// With returns a limiter that has the given limits and shares everything else with l.
func (l *Limiter) With(limits []Limit) (Limiter, error) {
	if err := l.checkLimits(limits); err != nil {
		return Limiter{}, fmt.Errorf("slidegate: With for limiter %q has %w", l.Name, err)
	}
	return l.Under(limits), nil
}

// Under is like With, for limits that have already been checked.
func (l *Limiter) Under(limits []Limit) Limiter {
	return Limiter{l.core, newLimits(limits, l.CountDenied)}
}

// Limits returns the limits. Do not modify them.
func (l *Limiter) Limits() []Limit { return l.limits.list }

// Same reports whether l and other share their counts and have the same limits.
func (l *Limiter) Same(other *Limiter) bool {
	return l.core == other.core && l.limits.text == other.limits.text
}

// Key returns the Redis key of an event: the name, the event as hash tag, and the kind of record.
func (l *core) Key(event string) string { return l.keyOf(l.Tag(event)) }

// keyOf returns the Redis key of the event with the given hash tag.
func (l *core) keyOf(tag string) string { return l.prefix + tag + "}:" + l.Kind }

// Tag returns the hash tag of an event.
func (l *core) Tag(event string) string { return l.hider.Tag(event) }

// Shown returns the event in the form that lists of denials show: the event itself or, if its key
// contains a hash instead, that hash. The key is the event's key, or "" if it has not been computed
// yet.
func (l *core) Shown(event, key string) (text string, hashed bool) {
	if !keys.IsHashed(l.Secret, event) {
		return event, false
	}
	if key == "" {
		return l.Tag(event), true
	}
	return key[len(l.prefix) : len(key)-len("}:")-len(l.Kind)], true
}

// Decide decides a request for n units of event. It stores the reply in r, to avoid copying a
// Reply.
func (l *Limiter) Decide(ctx context.Context, r *Reply, v Verb, event string, n int64) (err error) {
	if err := l.Check(ctx, v, event, n); err != nil {
		return err
	}
	*r, err = l.store.Decide(ctx, l.limits, l.stored(v), event, min(n, l.MaxUnits))
	if err != nil {
		r.Trace.Failure = health.FailureIn(err)
		err = l.Wrap(err)
	}
	return err
}

// Sleep waits until a denied request for n units can be retried. It waits up to 5% longer, at most
// by 100 ms, so that waiters do not all retry at once. If the deadline of ctx is too soon, Sleep
// returns an error immediately.
func (l *Limiter) Sleep(ctx context.Context, n int64, retryAfter time.Duration, degraded bool) error {
	if degraded {
		retryAfter = min(retryAfter, health.RecoveryDelay) // by then, Redis may have recovered
	}
	err := context.DeadlineExceeded
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) >= retryAfter {
		err = clock.Sleep(ctx, retryAfter+time.Duration(rand.Float64()*float64(min(retryAfter/20, 100*time.Millisecond))))
	}
	if err != nil {
		return l.Wrap(fmt.Errorf("a wait of %v for n = %d: %w", clock.Rounded(retryAfter), n, err))
	}
	return nil
}

// Finishing returns a context for a call that must be made even if ctx is done: to refund or charge
// units. The context keeps the values of ctx. The call ends after Timeout, or after 5 s if Timeout
// is negative.
func (l *core) Finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	return finishing(ctx, l.Timeout)
}

func finishing(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout < 0 {
		return calls.Finish(ctx)
	}
	return context.WithoutCancel(ctx), func() {}
}

// Refund gives back the units that a decision of this limiter counted, even if ctx is done.
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

// ForgetDenial makes the denial cache of a limiter on Redis forget the event.
func (l *Limiter) ForgetDenial(event string) { l.store.(*onRedis).denials.forget(l.Key(event)) }

// Inspect returns the state of event, as the integers of the script's reply to the verb inspect.
func (l *Limiter) Inspect(ctx context.Context, event string) ([]int64, error) {
	if err := l.Check(ctx, Peek, event, 1); err != nil {
		return nil, err
	}
	reply, err := l.store.Inspect(ctx, l.limits, event)
	return reply, l.Wrap(err)
}

// Check returns an error if the request is invalid, could never be allowed, or if ctx is done.
func (l *Limiter) Check(ctx context.Context, v Verb, event string, n int64) error {
	switch {
	case event == "":
		return l.Wrap(ErrEmptyEvent)
	case n < 1:
		return l.Wrap(fmt.Errorf("%w, not %d", ErrInvalidCost, n))
	case ctx.Err() != nil:
		return l.Wrap(health.NotSent(ctx.Err()))
	case n > l.MaxUnits && (v == Charge || l.stored(v) == CountSome):
		return l.Wrap(fmt.Errorf("%d units in one call, which counts at most %d; count them in several", n, l.MaxUnits))
	case v.Partial():
		return nil
	}
	for _, limit := range l.limits.list {
		if n > limit.Max {
			return l.Wrap(fmt.Errorf("%d units under %s: %w", n, l.text(limit), ErrExceedsLimit))
		}
	}
	return nil
}

// Wrap adds the limiter's name to err.
func (l *core) Wrap(err error) error {
	if err == nil {
		return nil
	}
	return &namedError{l.Name, err}
}

// namedError is an error with the name of its limiter. It formats its text only on demand: while
// Redis is down, most errors are never read, because a Fallback decides.
type namedError struct {
	name string
	err  error
}

func (e *namedError) Error() string { return fmt.Sprintf("slidegate: limiter %q: %v", e.name, e.err) }
func (e *namedError) Unwrap() error { return e.err }
