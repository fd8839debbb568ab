// Package inflight bounds how many calls of a fleet run at the same time: 5 exports of a customer,
// 20 calls to a model, 1 migration. A rate limit cannot express that. It works on Redis, on Redis
// Cluster, or in the memory of one process.
//
//	limiter, err := inflight.New(conn, inflight.Config{Name: "exports", Max: 5}) // conn comes from window.Dial
//	// ...
//	lease, err := limiter.Acquire(ctx, "customer 42")
//	if err != nil {
//		return err
//	}
//	defer lease.Release(ctx)
//	export(lease.Context(ctx))
//
// A caller that may run holds a lease. A lease expires after TTL, unless it is renewed, which the
// limiter does in the background. So the places of a process that crashes are free within TTL.
//
// The parameter event of every method names what is bounded: a customer, a model, a job. All places
// of an event are in one Redis key.
package inflight

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/internal/outage"
	"github.com/slidegate/slidegate/internal/pipeline"
	"github.com/slidegate/slidegate/lua"
	"github.com/slidegate/slidegate/window"
)

// Config holds the number of places of a Limiter, and the name that it counts under. Only Name and
// Max are required. Fields without a comment work as in window.Config.
type Config struct {
	// Name is as in window. Limiters of one Name share their places, but not with a limiter of
	// window.
	Name string

	// Max is how many units of an event can be held at once: 1 to 1000.
	Max int64

	// TTL is how long a lease lasts unless it is renewed: whole milliseconds up to a day, and at
	// least three times Timeout; 0 means 10 s. It is renewed after a third of that time. The place
	// of a process that crashes is free after at most TTL.
	TTL time.Duration

	// MaxHold is how long a lease can be held in any case, so that one that is never released does
	// not live as long as its process; 0 means an hour. Observe receives KindOverdue then.
	MaxHold time.Duration

	// Holder identifies the holder of the leases in Inspect: at most 32 bytes, such as a host name.
	// If it is empty, nothing is stored.
	Holder string

	// Track lets waiters see at once that a place is free: the client keeps a copy of the key, and
	// Redis notifies it of changes. It needs a client that supports this, and an ACL rule: see
	// docs/keys.md. Without Track, waiters ask every 50 ms.
	Track bool

	Secret []byte `json:"-"`

	// Timeout bounds how long one call waits for Redis in total: 0 means 250 ms. It must be shorter
	// than a lease.
	Timeout time.Duration

	// Fallback is a limiter in memory. It decides while Redis cannot answer, and keeps existing
	// leases alive. There, each process has its own places.
	Fallback *Limiter `json:"-"`

	// MaxEvents bounds how many events a limiter in memory holds. 0 means no bound, except in a
	// Fallback, where it means 1,048,576. A new event without room is an error.
	MaxEvents int

	// Observe is called after each TryAcquire and Acquire, when a lease is lost, and when an outage
	// starts or ends, as in window. Decision.Allowed says that there was a place.
	Observe func(ctx context.Context, o window.Observation) `json:"-"`

	// OnDenied is called after each TryAcquire that finds no units free, and after each Acquire
	// whose caller leaves before they are free, with the event: see window.Denial.
	OnDenied func(ctx context.Context, d window.Denial) `json:"-"`
}

// These kinds of observations exist only here.
const (
	KindLost    window.Kind = "lost"    // a lease ended although its holder had not released it
	KindOverdue window.Kind = "overdue" // the same, because of MaxHold
)

// Limiter grants places. New, NewLocal and With return one. It is safe for concurrent use.
type Limiter struct {
	*core
	engine *engine.Limiter
	max    int64
}

// core is the state shared by limiters that are derived from one another by With.
type core struct {
	store    store
	ttl      time.Duration
	maxHold  time.Duration
	holder   string
	track    bool
	fallback *Limiter
	observe  func(context.Context, window.Observation) // may be nil
	onDenied func(context.Context, window.Denial)      // may be nil
	keeper   keeper
	lines    lines
}

// A Decision is the answer of TryAcquire.
type Decision struct {
	Used       int64         // units that are held, including those of the lease
	Max        int64         // the most units that can be held
	RetryAfter time.Duration // if denied: until the units fit, if no lease is released or renewed. A hint: a release can shorten it, and a renewal can lengthen it
	At         time.Time     // of the decision, in UTC, on the Redis clock

	// Degraded reports that the Fallback decided. Cause is why Redis did not, as in
	// window.Decision.
	Degraded bool
	Cause    error `json:"-"`
}

// decided is a Decision, and a trace of its Redis call.
type decided struct {
	Decision

	trace pipeline.Trace
}

// These errors can be distinguished with errors.Is.
var (
	// ErrLost is in the cause of the end of Lease.Context: the lease has ended, or may have. The
	// cause says why. It also matches ErrOutage or ErrUncertain if the lease was not renewed
	// because Redis did not answer.
	ErrLost = errors.New("the lease is lost; stop what it protects")

	// ErrFull is in the error of an Acquire whose ctx has ended, if the units were not free at the
	// last check.
	ErrFull = errors.New("at the last check, all places were taken")

	ErrClosed       = errors.New("the limiter is closed and grants no more places; call Close only when the work is done")
	ErrEmptyEvent   = window.ErrEmptyEvent   // the event is ""
	ErrInvalidCost  = window.ErrInvalidCost  // less than one unit
	ErrExceedsLimit = window.ErrExceedsLimit // more units than Max: never allowed
	ErrOutage       = window.ErrOutage       // Redis could not answer; no place was taken
	ErrUncertain    = window.ErrUncertain    // no reply came; a place may be taken, and is released at once if Redis answers, otherwise after TTL
)

const (
	defaultTTL  = 10 * time.Second
	mostTTL     = 24 * time.Hour
	defaultHold = time.Hour
	mostUnits   = 1000
	mostHolder  = 32
	maxTime     = 9e15 // the last µs that the script accepts, in the year 2255
	badMax      = "a Max of %d; choose 1 to 1000 units"
)

// New returns a limiter that keeps its places in the Redis or Redis Cluster of a Connection, which
// comes from window.Dial, window.On or package goredisgate. It sends nothing yet, so an error is
// about conn or cfg, and says what to do. Its circuit breaker works as in window.
func New(conn *window.Connection, cfg Config) (*Limiter, error) {
	e, err := engine.New((*pipeline.Connection)(conn), cfg.engine(), cfg.limits())
	if err != nil {
		return nil, err
	}
	if cfg.Track && !(*pipeline.Connection)(conn).Tracks() {
		return nil, fmt.Errorf("slidegate: limiter %q has Track, but its client does not track keys; leave it out, or use rueidis", cfg.Name)
	}
	return newLimiter(e, &onRedis{e}, cfg)
}

// NewLocal returns a limiter that keeps its places in this process's memory: no Redis, same
// answers. Each one has its own places, whatever its Name. It takes no Fallback, because it never
// needs one.
func NewLocal(cfg Config) (*Limiter, error) {
	if cfg.Fallback != nil {
		return nil, outage.Needless(cfg.Name)
	}
	if cfg.Track {
		return nil, fmt.Errorf("slidegate: limiter %q is in memory and has Track, which it never needs; leave it out", cfg.Name)
	}
	e, err := engine.NewLocal(cfg.engine(), cfg.limits(), nil)
	if err != nil {
		return nil, err
	}
	return newLimiter(e, newLocal(e), cfg)
}

func newLimiter(e *engine.Limiter, s store, cfg Config) (*Limiter, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("slidegate: limiter %q has %w", cfg.Name, err)
	}
	if f := cfg.Fallback; f != nil {
		if err := outage.Use(cfg.Name, cmp.Or(f.engine, &engine.Limiter{}), f.core != nil && f.fallback != nil); err != nil {
			return nil, err
		}
		if !f.engine.InMemory() {
			return nil, fmt.Errorf("slidegate: limiter %q has a Fallback %q on Redis; create it with NewLocal", cfg.Name, f.engine.Name)
		}
	}
	c := &core{
		store: s, ttl: cfg.ttl(), maxHold: cmp.Or(cfg.MaxHold, defaultHold), holder: cfg.Holder, track: cfg.Track,
		fallback: cfg.Fallback, observe: cfg.Observe, onDenied: cfg.OnDenied,
		lines: lines{of: map[string]*line{}},
	}
	c.keeper = keeper{held: map[*Lease]struct{}{}, ttl: c.ttl}
	return &Limiter{c, e, cfg.Max}, nil
}

func (cfg *Config) ttl() time.Duration { return cmp.Or(cfg.TTL, defaultTTL) }

// check returns an error that says what is wrong with the configuration, apart from what is checked
// for all kinds of limiters.
func (cfg *Config) check() error {
	timeout := cmp.Or(cfg.Timeout, engine.DefaultTimeout)
	switch {
	case cfg.Max < 1 || cfg.Max > mostUnits:
		return fmt.Errorf(badMax, cfg.Max)
	case cfg.TTL < 0 || cfg.TTL > mostTTL || cfg.TTL%time.Millisecond != 0:
		return fmt.Errorf("a TTL of %v; choose whole milliseconds up to a day, or 0 for 10 s", cfg.TTL)
	case timeout < 0:
		return fmt.Errorf("a Timeout of %v; choose more than 0, or 0 for %v", cfg.Timeout, engine.DefaultTimeout)
	case cfg.ttl() < 3*timeout:
		return fmt.Errorf("a TTL of %v and a Timeout of %v; choose a TTL of at least three times that, so that a lease can be renewed in time", cfg.ttl(), timeout)
	case cfg.MaxHold < 0:
		return fmt.Errorf("a MaxHold of %v; choose more than the TTL of %v, or 0 for an hour", cfg.MaxHold, cfg.ttl())
	case cfg.MaxHold > 0 && cfg.MaxHold < cfg.ttl():
		return fmt.Errorf("a MaxHold of %v, less than the TTL of %v; choose more, or 0 for an hour", cfg.MaxHold, cfg.ttl())
	case len(cfg.Holder) > mostHolder:
		return fmt.Errorf("a Holder of %d bytes; choose at most 32", len(cfg.Holder))
	}
	return nil
}

// engine converts the configuration into the form that limiters of every kind share.
func (cfg *Config) engine() engine.Config {
	c := engine.Config{
		Kind: "l", Script: lua.Inflight, MaxUnits: mostUnits,
		Name: cfg.Name, Secret: slices.Clone(cfg.Secret), Timeout: cfg.Timeout, MaxEvents: cfg.MaxEvents,
		Clock: clock.Clock{Tick: time.Microsecond, Unit: time.Time.UnixMicro, Time: time.UnixMicro, End: maxTime, Year: 2255},
		Text:  func(l engine.Limit) string { return fmt.Sprintf("a Max of %d", l.Max) },
	}
	if cfg.Observe != nil {
		c.Notify = func(ctx context.Context, r pipeline.Report) {
			cfg.Observe(ctx, window.Observation{
				Limiter: cfg.Name, Kind: window.Kind(r.Kind), SlotRange: r.SlotRange, RangesOut: r.Out,
				Reason: window.Reason(r.Failure.Reason()), Err: r.Failure.Err(),
			})
		}
	}
	return c
}

// limits returns Max in the form that limiters of every kind share.
func (cfg *Config) limits() []engine.Limit { return limits(cfg.Max, cfg.ttl()) }

func limits(most int64, ttl time.Duration) []engine.Limit {
	return []engine.Limit{{Max: most, Per: ttl.Milliseconds(), Fine: 1, Coarse: 1}}
}

// made returns the engine of a limiter from New, NewLocal or With. It panics for any other limiter, which is
// a mistake in the program.
func (l *Limiter) made() *engine.Limiter {
	if l == nil || l.engine == nil {
		panic("slidegate: this limiter is nil or zero; create one with inflight.New or NewLocal")
	}
	return l.engine
}

// With returns the same limiter with another Max, for plans. Both share their places.
func (l *Limiter) With(most int64) (*Limiter, error) {
	e, err := l.made().With(limits(most, l.ttl))
	if err == nil && (most < 1 || most > mostUnits) {
		err = fmt.Errorf("slidegate: With for limiter %q has "+badMax, l.engine.Name, most)
	}
	if err != nil {
		return nil, err
	}
	return &Limiter{l.core, &e, most}, nil
}

// TryAcquire calls TryAcquireN with one unit.
func (l *Limiter) TryAcquire(ctx context.Context, event string) (*Lease, Decision, error) {
	return l.TryAcquireN(ctx, event, 1)
}

// TryAcquireN takes n units of an event if they are free. A nil Lease without an error means that
// they are not. Release the Lease when the work is done.
//
// The errors are ErrEmptyEvent, ErrInvalidCost, ErrExceedsLimit, ErrOutage, ErrUncertain,
// ErrClosed, ErrLost if the process was stopped meanwhile for longer than TTL, and those of ctx.
// Any other error names the key: its value is not a record of this library.
func (l *Limiter) TryAcquireN(ctx context.Context, event string, n int64) (lease *Lease, d Decision, err error) {
	if err := l.made().Check(ctx, engine.Allow, event, n); err != nil {
		return nil, d, err
	}
	began := time.Now()
	lease, found, err := l.try(ctx, event, n)
	l.report(ctx, n, lease, found, err, began)
	if lease == nil && err == nil {
		l.denied(ctx, event, found.Decision)
	}
	return lease, found.Decision, err
}

// try takes n units if they are free; in an outage, it takes those of the Fallback.
func (l *Limiter) try(ctx context.Context, event string, n int64) (*Lease, decided, error) {
	if l.keeper.isClosed() {
		return nil, decided{}, l.engine.Wrap(ErrClosed)
	}
	lease := &Lease{limiter: l, event: event, ref: ref{id: newID(), n: n, max: l.max}, since: time.Now()}
	d, err := lease.enter(ctx, l)
	if err != nil {
		cause, trace := err, d.trace
		err = outage.Ask(ctx, err, l.fallback, func(ctx context.Context, f *Limiter) (err error) {
			if err = f.engine.Check(ctx, engine.Allow, event, n); err != nil {
				return err
			}
			lease.degraded, lease.failure = true, pipeline.FailureIn(cause)
			d, err = lease.enter(ctx, f)
			d.Degraded, d.Cause, d.trace = true, pipeline.FailureIn(cause).Err(), trace
			return err
		})
		if pipeline.IsOutage(cause) { // a reply may be lost, or the call still in flight
			lease.giveUp(lease.ref)
		}
	}
	if err != nil || lease.end.IsZero() {
		return nil, d, err
	}
	switch {
	case !l.keeper.add(lease):
		err = ErrClosed
	case lease.Left() == 0: // the process was stopped meanwhile
		err = ErrLost
	default:
		return lease, d, nil
	}
	return nil, d, errors.Join(l.engine.Wrap(err), lease.Release(ctx))
}

func newID() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return string(id[:])
}

// Acquire calls AcquireN with one unit.
func (l *Limiter) Acquire(ctx context.Context, event string) (*Lease, error) {
	return l.AcquireN(ctx, event, 1)
}

// AcquireN waits until n units of an event are free, and takes them. Callers of one limiter are
// served in order. There is no order among processes, and TryAcquire does not wait in line. Release
// the Lease when the work is done. Errors are those of TryAcquireN, and ErrFull.
func (l *Limiter) AcquireN(ctx context.Context, event string, n int64) (*Lease, error) {
	if err := l.made().Check(ctx, engine.Allow, event, n); err != nil {
		return nil, err
	}
	began := time.Now()
	lease, d, err := l.lines.wait(ctx, l, event, n)
	l.report(ctx, n, lease, d, err, began)
	if errors.Is(err, errLeft) {
		l.denied(ctx, event, d.Decision)
	}
	return lease, err
}

// Reset forgets the event, in the Fallback too. A lease that is alive takes its place again when it
// is renewed. Errors are those of TryAcquireN.
func (l *Limiter) Reset(ctx context.Context, event string) error {
	if err := l.made().Check(ctx, engine.Peek, event, 1); err != nil {
		return err
	}
	err := l.store.reset(ctx, event)
	if l.fallback != nil {
		err = errors.Join(err, l.fallback.Reset(ctx, event))
	}
	return err
}

// Close releases all places that this process holds through the limiter, and through those from
// With. After that, it grants no more. An error means that places may last until their TTL ends.
func (l *Limiter) Close(ctx context.Context) error {
	l.made()
	ctx = context.WithoutCancel(ctx)
	var mu sync.Mutex
	var last error
	failed := 0
	inParts(l.keeper.close(), func(g group, all []*Lease) {
		err := g.release(ctx, all)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			last = err
			failed += len(all)
		}
	})()
	if failed > 1 {
		last = fmt.Errorf("%w (%d leases)", last, failed)
	}
	return last
}

// report calls Observe about a TryAcquire or Acquire.
func (l *Limiter) report(ctx context.Context, n int64, lease *Lease, d decided, err error, began time.Time) {
	if l.observe == nil {
		return
	}
	failure := pipeline.FailureIn(cmp.Or(err, d.Cause))
	l.observe(ctx, window.Observation{
		Limiter: l.engine.Name, Kind: window.Kind(engine.KindOf(engine.Allow, lease != nil, err)), Units: n, Took: time.Since(began),
		Decision: window.Decision{Allowed: lease != nil, RetryAfter: d.RetryAfter, At: d.At, Degraded: d.Degraded, Cause: d.Cause},
		InRedis:  d.trace.InRedis, Batch: d.trace.Batch, SlotRange: d.trace.SlotRange,
		Reason: window.Reason(failure.Reason()), Err: failure.Err(),
	})
}

// denied calls OnDenied about an attempt that got no units. A caller that left may never have asked
// for them.
func (l *Limiter) denied(ctx context.Context, event string, found Decision) {
	if l.onDenied == nil {
		return
	}
	d := window.Denial{Limiter: l.engine.Name, Limit: window.Limit{Max: cmp.Or(found.Max, l.max)}, RetryAfter: found.RetryAfter, At: time.Now().UTC()}
	d.Event, d.Hashed = l.engine.Shown(event, "")
	l.onDenied(ctx, d)
}
