// Package inflight bounds how many calls run at the same time across many processes: for example 5
// exports per customer, 20 calls to a model, 1 migration. A rate limit cannot express that. It
// works on Redis, on Redis Cluster, or in the memory of one process.
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
// A caller that is allowed to run holds a lease. A lease expires after TTL unless it is renewed,
// which the limiter does in the background. If a process crashes, its places are therefore free
// again within TTL.
//
// The event parameter of every method names what is bounded: a customer, a model, a job. All places
// of an event are kept in one Redis key.
package inflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/internal/report"
	"github.com/slidegate/slidegate/lua"
	"github.com/slidegate/slidegate/window"
)

// Config configures a Limiter. Only Name and Max are required. Fields without a comment work as in
// window.Config.
type Config struct {
	// Name is as in window. Limiters with the same Name share their places, but never with a
	// limiter of package window.
	Name string

	// Max is how many units of one event can be held at once: 1 to 1000.
	Max int64

	// TTL is how long a lease lasts unless it is renewed: whole milliseconds up to a day, and at
	// least three times Timeout; 0 means 10 s. The limiter renews each lease after a third of its
	// TTL. If a process crashes, its places are free after at most TTL.
	TTL time.Duration

	// MaxHold is the longest time for which a lease can be held, even if it is renewed; 0 means an
	// hour. Without it, a lease that is never released would last as long as its process. A lease
	// that reaches MaxHold is lost, and Observe receives KindOverdue.
	MaxHold time.Duration

	// Holder identifies this process as the holder of its leases in Inspect: at most 32 bytes, such
	// as a host name. If it is empty, no holder is stored.
	Holder string

	Secret []byte `json:"-"`

	// Timeout bounds how long one call waits for Redis in total; 0 means 250 ms. It can be at most
	// a third of TTL, and not negative.
	Timeout time.Duration

	// Fallback is a limiter in memory. While Redis cannot answer, it decides, and keeps existing
	// leases alive. Each process has its own places in its Fallback.
	Fallback *Limiter `json:"-"`

	// MaxEvents bounds how many events a limiter in memory holds. 0 means no bound, except in a
	// Fallback, where it means 1,048,576. If there is no room for a new event, acquiring it is an
	// error.
	MaxEvents int

	// Observe is called after each TryAcquire and Acquire, when a lease is lost, and when an outage
	// starts or ends, as in window. Decision.Allowed reports whether the units were acquired.
	Observe func(ctx context.Context, o window.Observation) `json:"-"`

	// OnDenied is called after each TryAcquire that does not find enough free units, and after each
	// Acquire whose caller gives up before the units are free. It receives the event: see
	// window.Denial.
	OnDenied func(ctx context.Context, d window.Denial) `json:"-"`
}

// These kinds of observations exist only in this package.
const (
	KindLost    window.Kind = "lost"    // a lease ended before its holder released it
	KindOverdue window.Kind = "overdue" // a lease ended before its holder released it, because of MaxHold
)

// Limiter grants leases. New, NewLocal and With each return a Limiter. It is safe for concurrent
// use.
type Limiter struct {
	*core
	base *limiter.Limiter
	max  int64
}

// core is what limiters derived from one another with With share. Their leases are in held from
// keep until end. In between, round renews them.
type core struct {
	// These never change.
	store    store
	ttl      time.Duration
	maxHold  time.Duration
	holder   string
	fallback *Limiter
	report   report.To

	closed atomic.Bool // set while mu is locked

	mu    sync.Mutex          // guards the fields below, all leases, and the waiters of each line; no call runs under it
	held  map[*Lease]struct{} // leases that are not over
	timer *time.Timer         // calls round, while there are leases; nil before the first lease
	lines map[string]*line    // callers that wait, by event
}

// These errors can be distinguished with errors.Is.
var (
	// ErrLost is in the cause (see context.Cause) with which Lease.Context is canceled if the lease
	// has ended or may have ended. The cause says why. It also matches ErrOutage or ErrUncertain if
	// the lease was not renewed because Redis did not answer.
	ErrLost = errors.New("the lease is lost; stop what it protects")

	// ErrFull is in the error of an Acquire that failed because ctx was done, if the units were not
	// free at the last check.
	ErrFull = errors.New("at the last check, too few places were free")

	ErrClosed       = errors.New("the limiter is closed and grants no more places; call Close only when the work is done")
	ErrEmptyEvent   = window.ErrEmptyEvent   // the event is ""
	ErrInvalidCost  = window.ErrInvalidCost  // less than one unit
	ErrExceedsLimit = window.ErrExceedsLimit // more units than Max: never allowed
	ErrOutage       = window.ErrOutage       // Redis could not answer; no place was taken
	ErrUncertain    = window.ErrUncertain    // no reply came; if places were taken, they are released immediately if Redis answers, and otherwise after TTL
)

const (
	defaultTTL  = 10 * time.Second
	mostTTL     = 24 * time.Hour
	defaultHold = time.Hour
	mostUnits   = 1000
	mostHolder  = 32
	badMax      = "a Max of %d; choose 1 to 1000 units"
)

// New returns a limiter that keeps its places in the Redis or Redis Cluster that conn connects to.
// Create conn with window.Dial, window.On or package goredisgate. New sends nothing, so an error
// always concerns conn or cfg, and says what to do. The circuit breaker works as in window.
func New(conn *window.Connection, cfg Config) (*Limiter, error) {
	e, err := limiter.New((*connection.Connection)(conn), cfg.base(), limits(cfg.Max, cfg.ttl()))
	if err != nil {
		return nil, err
	}
	return newLimiter(e, &onRedis{e}, cfg)
}

// NewLocal returns a limiter that keeps its places in this process's memory: no Redis, same
// answers. Each local limiter has its own places, even if it shares its Name with another.
// Config.Fallback must be nil, because a local limiter never needs one.
func NewLocal(cfg Config) (*Limiter, error) {
	if cfg.Fallback != nil {
		return nil, limiter.NeedlessFallback(cfg.Name)
	}
	e, err := limiter.NewLocal(cfg.base(), limits(cfg.Max, cfg.ttl()), nil)
	if err != nil {
		return nil, err
	}
	return newLimiter(e, newLocal(e), cfg)
}

func newLimiter(e *limiter.Limiter, s store, cfg Config) (*Limiter, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("slidegate: limiter %q has %w", cfg.Name, err)
	}
	if f := cfg.Fallback; f != nil {
		if err := limiter.UseFallback(cfg.Name, f.base, f.core != nil && f.fallback != nil); err != nil {
			return nil, err
		}
		if !f.base.InMemory() {
			return nil, fmt.Errorf("slidegate: limiter %q has a Fallback %q on Redis; create it with NewLocal", cfg.Name, f.base.Name)
		}
	}
	c := &core{
		store: s, ttl: cfg.ttl(), maxHold: cmp.Or(cfg.MaxHold, defaultHold), holder: cfg.Holder,
		fallback: cfg.Fallback, report: cfg.report(),
		held: map[*Lease]struct{}{}, lines: map[string]*line{},
	}
	return &Limiter{c, e, cfg.Max}, nil
}

func (cfg *Config) ttl() time.Duration { return cmp.Or(cfg.TTL, defaultTTL) }

// check returns an error that says what is wrong with the configuration. It does not check what is
// checked for all kinds of limiters.
func (cfg *Config) check() error {
	timeout := cmp.Or(cfg.Timeout, limiter.DefaultTimeout)
	switch {
	case cfg.Max < 1 || cfg.Max > mostUnits:
		return fmt.Errorf(badMax, cfg.Max)
	case cfg.TTL < 0 || cfg.TTL > mostTTL || cfg.TTL%time.Millisecond != 0:
		return fmt.Errorf("a TTL of %v; choose whole milliseconds up to a day, or 0 for 10 s", cfg.TTL)
	case timeout < 0:
		return fmt.Errorf("a Timeout of %v; choose more than 0, or 0 for %v", cfg.Timeout, limiter.DefaultTimeout)
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

// base converts the configuration into the form that all kinds of limiters share.
func (cfg *Config) base() limiter.Config {
	return limiter.Config{
		Kind: "l", Script: func(string) *lua.Script { return lua.Inflight }, File: "inflight.lua", MaxUnits: mostUnits,
		Name: cfg.Name, Secret: slices.Clone(cfg.Secret), Timeout: cfg.Timeout, MaxEvents: cfg.MaxEvents,
		Clock: clock.Micros(nil), Notify: cfg.report().Outages(cfg.Name),
		Text: func(l limiter.Limit) string { return fmt.Sprintf("a Max of %d", l.Max) },
	}
}

func (cfg *Config) report() report.To { return report.To{Observe: cfg.Observe, OnDenied: cfg.OnDenied} }

// limits returns a Max in the form that all kinds of limiters share.
func limits(most int64, ttl time.Duration) []limiter.Limit {
	return []limiter.Limit{{Max: most, Per: ttl.Milliseconds(), Fine: 1, Coarse: 1}}
}

// made returns the base of l. It panics if the limiter was not created by New, NewLocal or
// With, which is a programming error.
func (l *Limiter) made() *limiter.Limiter {
	if l == nil || l.base == nil {
		limiter.Unmade("inflight")
	}
	return l.base
}

// With returns a limiter that is like l but has the given Max: for plans, for example. Both
// limiters share their places.
func (l *Limiter) With(most int64) (*Limiter, error) {
	e, err := l.made().With(limits(most, l.ttl))
	if err == nil && (most < 1 || most > mostUnits) {
		err = fmt.Errorf("slidegate: With for limiter %q has "+badMax, l.base.Name, most)
	}
	if err != nil {
		return nil, err
	}
	return &Limiter{l.core, &e, most}, nil
}

// Reset forgets the event, in the Fallback too. A lease that is still held takes its units again
// when it is renewed. Reset returns the same errors as TryAcquireN.
func (l *Limiter) Reset(ctx context.Context, event string) error {
	e := l.made()
	return limiter.ResetBoth(ctx, e, event, l.store.Reset, l.fallback, (*Limiter).Reset)
}

// Close releases all leases that this process holds through l and through all limiters related to l
// by With. After that, these limiters grant no more leases. An error means that some places may
// stay taken until their TTL ends.
func (l *Limiter) Close(ctx context.Context) error {
	l.made()
	l.mu.Lock()
	l.closed.Store(true)
	parts := inParts(slices.Collect(maps.Keys(l.held)))
	l.mu.Unlock()
	var mu sync.Mutex
	var last error
	failed := 0
	concurrently(parts, func(part []*Lease) {
		if err := l.release(context.WithoutCancel(ctx), part); err != nil {
			mu.Lock()
			defer mu.Unlock()
			last = err
			failed += len(part)
		}
	})
	if failed > 1 {
		last = fmt.Errorf("%w (%d leases)", last, failed)
	}
	return last
}
