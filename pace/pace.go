// Package pace schedules calls across many processes: for example calls to an external API that
// allows a limited number of calls per second, or to a mail server or a printer. It is like
// golang.org/x/time/rate, but for many processes, on Redis, on Redis Cluster, or in the memory of
// one process.
//
//	limiter, err := pace.New(conn, pace.Config{ // conn comes from window.Dial
//		Name:   "api.example.com",
//		Limits: []window.Limit{window.Every(20 * time.Millisecond)},
//	})
//	// ...
//	err = limiter.Wait(ctx, "our account")
//	// call the API
//
// Each call books a turn: the earliest time at which every limit allows its units, and which is not
// before any turn booked earlier. Turns therefore come in the order in which Redis received the
// requests, and any interval of length Per contains at most Max units. Package window, in contrast,
// answers whether something is allowed now, and serves waiters in no particular order.
//
// The event parameter of every method names what is paced: an account, a host, a customer. The
// turns of each event are kept in one Redis key.
package pace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/internal/report"
	"github.com/slidegate/slidegate/internal/send"
	"github.com/slidegate/slidegate/lua"
	"github.com/slidegate/slidegate/window"
)

// Config configures a Limiter. Only Name and Limits are required. Fields work as in window.Config
// unless described otherwise.
type Config struct {
	// Name is as in window. Limiters with the same Name share their turns, but never with a limiter
	// of package window.
	Name string

	// Limits holds the 1 to 31 limits of the called service. window.Every(20 * time.Millisecond)
	// spaces calls evenly; window.PerSecond(50) allows 50 at once. If Max is at most 256, turns are
	// exact to the millisecond. Above that, or if a limiter with the same Name has a larger Max for
	// the same Per, a turn can come up to Per/240 later than the limit requires, but never earlier.
	// Limit.Resolution has no effect: leave it as window.PerSecond and similar functions set it.
	Limits []window.Limit

	// MaxAhead is how far in the future a turn may be booked, at most a day; 0 means 10 s. A caller
	// whose turn is further in the future waits in its process, first come, first served, until the
	// turn can be booked. Order across processes is preserved only within MaxAhead.
	MaxAhead time.Duration

	// Secret hides events in keys with HMAC-SHA256, as in window. It needs at least 16 random
	// bytes.
	Secret []byte `json:"-"`

	// Now is the clock that turns are scheduled by, as in window. Wait still waits in real time.
	Now func() time.Time `json:"-"`

	// Timeout bounds how long one call waits for Redis in total, as in window. 0 means 250 ms.
	Timeout time.Duration

	// Fallback books turns under its own limits while Redis cannot answer, as in window. It has no
	// Fallback itself. The turns in a local Fallback are not coordinated across processes.
	Fallback *Limiter `json:"-"`

	// MaxEvents bounds how many events a limiter in memory holds, as in window. If there is no room
	// for a new event, booking a turn is an error.
	MaxEvents int

	// Observe is called after each Wait and Reserve, and when an outage starts or ends, as in
	// window. Decision.Allowed reports whether a turn was booked, Decision.RetryAfter is its Delay,
	// and Decision.At is the time of the turn.
	Observe func(ctx context.Context, o window.Observation) `json:"-"`

	// OnDenied is called after each Reserve whose Reservation is not OK, and after each Wait that
	// fails because its turn would come after the deadline. It receives the event: see
	// window.Denial.
	OnDenied func(ctx context.Context, d window.Denial) `json:"-"`
}

// Limiter books turns. New and NewLocal each return a Limiter. It is safe for concurrent use and
// needs no Close.
type Limiter struct {
	base     *limiter.Limiter
	store    store
	limits   []window.Limit
	maxAhead int64 // ms
	fallback *Limiter
	report   report.To
	lines    lines
}

// store keeps the turns of events, in Redis or in memory. Times are in ms.
type store interface {
	// book books up to k consecutive turns of n units each. It stops at the first turn that would
	// be more than ahead ms from now.
	book(ctx context.Context, event string, k, n, ahead int64) (booking, error)
	// cancel gives back the units of the reserved turn.
	cancel(ctx context.Context, r Reservation) error
	// pause postpones all turns that are still to come, so that none comes before now + d ms.
	pause(ctx context.Context, event string, d int64) (state, error)
	// ask returns by how much pauses have shifted turns.
	ask(ctx context.Context, event string) (state, error)
	// inspect returns the turns that count, in the form of the script's reply.
	inspect(ctx context.Context, event string) ([]int64, error)
	// Reset forgets the event.
	Reset(ctx context.Context, event string) error
}

// ErrMissed is returned by Due for a turn that was not used in time.
var ErrMissed = errors.New("the turn was missed: it came more than a second ago, or before a pause; reserve another")

// These errors can be distinguished with errors.Is. They are the same values as in window.
var (
	ErrEmptyEvent   = window.ErrEmptyEvent   // the event is ""
	ErrInvalidCost  = window.ErrInvalidCost  // less than one unit
	ErrExceedsLimit = window.ErrExceedsLimit // more units than the Max of a limit: never allowed
	ErrOutage       = window.ErrOutage       // Redis could not answer; nothing was booked
	ErrUncertain    = window.ErrUncertain    // no reply came; a turn may have been booked
)

const (
	defaultAhead = 10 * time.Second
	mostAhead    = 24 * time.Hour
	exactMax     = 256     // the largest Max whose turns are exact to the millisecond
	maxUnits     = 1 << 53 // as in the script
	reservedPer  = (1<<32 - 1) * time.Millisecond
)

// New returns a limiter that keeps its turns in the Redis or Redis Cluster that conn connects to.
// Create conn with window.Dial, window.On or package goredisgate. New sends nothing, so an error
// always concerns conn or cfg, and says what to do. The circuit breaker works as in window.
func New(conn *window.Connection, cfg Config) (*Limiter, error) {
	e, err := limiter.New((*connection.Connection)(conn), cfg.base(), baseLimits(cfg.Limits))
	if err != nil {
		return nil, err
	}
	return newLimiter(e, newOnRedis(e), cfg)
}

// NewLocal returns a limiter that keeps its turns in this process's memory: no Redis, same answers.
// Each local limiter has its own turns, even if it shares its Name with another. It forgets expired
// events by itself, unless Config.Now sets its clock. Config.Fallback must be nil, because a local
// limiter never needs one.
func NewLocal(cfg Config) (*Limiter, error) {
	if cfg.Fallback != nil {
		return nil, limiter.NeedlessFallback(cfg.Name)
	}
	e, err := limiter.NewLocal(cfg.base(), baseLimits(cfg.Limits), nil)
	if err != nil {
		return nil, err
	}
	return newLimiter(e, newLocal(e), cfg)
}

func newLimiter(e *limiter.Limiter, s store, cfg Config) (*Limiter, error) {
	if cfg.MaxAhead < 0 || cfg.MaxAhead > mostAhead || cfg.MaxAhead%time.Millisecond != 0 {
		return nil, fmt.Errorf("slidegate: limiter %q has a MaxAhead of %v; choose whole milliseconds up to a day, or 0 for 10 s", cfg.Name, cfg.MaxAhead)
	}
	if f := cfg.Fallback; f != nil {
		if err := limiter.UseFallback(cfg.Name, f.base, f.fallback != nil); err != nil {
			return nil, err
		}
	}
	return &Limiter{
		base: e, store: s, limits: slices.Clone(cfg.Limits), maxAhead: cmp.Or(cfg.MaxAhead, defaultAhead).Milliseconds(),
		fallback: cfg.Fallback, report: cfg.report(), lines: lines{of: map[string]*line{}},
	}, nil
}

// base converts the configuration into the form that all kinds of limiters share.
func (cfg Config) base() limiter.Config {
	return limiter.Config{
		Kind: "r", Script: func(string) *lua.Script { return lua.Pace }, File: "pace.lua", MaxUnits: maxUnits,
		Name: cfg.Name, Secret: slices.Clone(cfg.Secret), Timeout: cfg.Timeout, MaxEvents: cfg.MaxEvents,
		Clock: clock.Millis(cfg.Now), Notify: cfg.report().Outages(cfg.Name),
	}
}

func (cfg Config) report() report.To { return report.To{Observe: cfg.Observe, OnDenied: cfg.OnDenied} }

// baseLimits converts limits into the form that all kinds of limiters share.
func baseLimits(limits []window.Limit) (all []limiter.Limit) {
	for _, l := range limits {
		width, fault := time.Millisecond, limiter.CheckRange(l.Max, maxUnits, "2^53", l.Per)
		if l.Max > exactMax {
			width = clock.Milliseconds((l.Per.Milliseconds() + 239) / 240)
		}
		if made := clock.Milliseconds((l.Per.Milliseconds() + 59) / 60); fault == nil && l.Resolution != 0 && l.Resolution != made {
			fault = fmt.Errorf("a Resolution of %v; leave it at 0, because turns have their own bucket width", l.Resolution)
		}
		if l.Per == reservedPer && fault == nil {
			fault = fmt.Errorf("a Per of %v, which the stored record uses for itself; choose another", l.Per)
		}
		all = append(all, limiter.Limit{Max: l.Max, Per: l.Per.Milliseconds(), Fine: width.Milliseconds(), Coarse: width.Milliseconds(), Fault: fault})
	}
	return all
}

// made returns the base of l. It panics if the limiter was not created by New or NewLocal,
// which is a programming error.
func (l *Limiter) made() *limiter.Limiter {
	if l == nil || l.base == nil {
		limiter.Unmade("pace")
	}
	return l.base
}

func (l *Limiter) ahead() time.Duration { return clock.Milliseconds(l.maxAhead) }

// Wait calls WaitN with one unit.
func (l *Limiter) Wait(ctx context.Context, event string) error { return l.WaitN(ctx, event, 1) }

// WaitN books a turn for n units, and returns when the turn has come, never earlier. If the turn
// would come after the deadline of ctx, WaitN fails immediately and books nothing.
//
// If a caller gives up because ctx is done, its turn goes to the next caller that waits in this
// process. A turn that no caller in the process waits for is cancelled. The next caller to book can
// get that turn if it is the newest one, but never a turn before the newest. If all callers give up
// at once, the next turn can therefore be as late as the newest turn that was booked, which is at
// most MaxAhead away.
//
// The errors are ErrEmptyEvent, ErrInvalidCost, ErrExceedsLimit, ErrOutage, ErrUncertain, and
// ctx.Err. Any other error names the key: its value is not a record of this library.
func (l *Limiter) WaitN(ctx context.Context, event string, n int64) (err error) {
	if err := l.made().Check(ctx, limiter.Allow, event, n); err != nil {
		return err
	}
	began := time.Now()
	t, err := l.await(ctx, event, n)
	l.observe(ctx, n, t.Reservation, t.trace, err, began)
	var late *lateError
	if errors.As(err, &late) {
		l.denied(ctx, event, late.after)
	}
	return err
}

// Reserve calls ReserveN with one unit.
func (l *Limiter) Reserve(ctx context.Context, event string) (Reservation, error) {
	return l.ReserveN(ctx, event, 1)
}

// ReserveN books a turn for n units and returns immediately. It is meant for job queues: start the
// job after Delay, but call Due first, because there may have been a Pause since. If the
// Reservation is not OK, nothing was booked, and the caller has no place in the order: try again
// after Delay.
//
// ReserveN returns the same errors as WaitN. After ErrUncertain, you can reserve again: at worst,
// one booked turn stays unused.
func (l *Limiter) ReserveN(ctx context.Context, event string, n int64) (r Reservation, err error) {
	if err := l.made().Check(ctx, limiter.Allow, event, n); err != nil {
		return r, err
	}
	began := time.Now()
	b, err := l.book(ctx, event, 1, n, l.maxAhead)
	if all := b.reservations(event, n); err == nil && len(all) > 0 {
		r = all[0]
	} else if err == nil {
		r = b.reservation(event, n)
	}
	l.observe(ctx, n, r, b.trace, err, began)
	if err == nil && !r.OK {
		l.denied(ctx, event, r.Delay)
	}
	return r, err
}

// book books turns in the store or, in an outage, in the Fallback.
func (l *Limiter) book(ctx context.Context, event string, k, n, ahead int64) (b booking, err error) {
	b, err = l.store.book(ctx, event, k, n, ahead)
	if err != nil {
		cause, trace := health.FailureIn(err).Err(), b.trace
		err = limiter.AskFallback(ctx, err, l.fallback, func(ctx context.Context, f *Limiter) (err error) {
			if err = f.base.Check(ctx, limiter.Allow, event, n); err != nil {
				return err
			}
			b, err = f.store.book(ctx, event, k, n, ahead)
			b.degraded, b.cause, b.trace = err == nil, cause, trace
			return err
		})
	}
	b.arrived = time.Now()
	return b, err
}

// Due returns how long it takes until the turn of r comes, taking each Pause into account. 0 means
// that the turn has come: proceed. If the turn came more than a second ago, or before a Pause, the
// error is ErrMissed: reserve another. If r is not OK, Due returns an error. Other errors are those
// of WaitN, except ErrUncertain. If Redis does not answer, proceed after Delay.
func (l *Limiter) Due(ctx context.Context, r Reservation) (time.Duration, error) {
	of := l.of(r)
	if !r.OK {
		return 0, of.made().Wrap(errors.New("the reservation is not OK, so nothing was booked; reserve again after its Delay"))
	}
	if err := of.made().Check(ctx, limiter.Peek, r.Event, 1); err != nil {
		return 0, err
	}
	s, err := of.store.ask(ctx, r.Event)
	if err != nil {
		return 0, err
	}
	due, err := s.due(r)
	return due, of.base.Wrap(err)
}

// of returns the limiter that made the Reservation: the Fallback or l.
func (l *Limiter) of(r Reservation) *Limiter {
	if r.Degraded && l.fallback != nil {
		return l.fallback
	}
	return l
}

// Cancel gives back the units of r, even if ctx is done. Call it once, and only if the turn was not
// used: a second call could give back the units of another caller that has since booked the same
// turn. The turns of other callers do not move. The next caller to book can get the cancelled turn
// if it was the newest, but never a turn before the newest. If the turn came and was followed by a
// Pause, or may have been booked before the clock stepped back, nothing is given back. Cancel returns
// the same errors as WaitN.
func (l *Limiter) Cancel(ctx context.Context, r Reservation) error {
	if !r.OK {
		return nil
	}
	of := l.of(r)
	if err := of.made().Check(context.WithoutCancel(ctx), limiter.Peek, r.Event, 1); err != nil {
		return err
	}
	if r.N < 1 || r.Shift < 0 {
		return of.base.Wrap(fmt.Errorf("a reservation of %d units under a shift of %d; pass it as Reserve returned it", r.N, r.Shift))
	}
	defer l.lines.retry(r.Event)
	return of.cancel(ctx, r)
}

func (l *Limiter) cancel(ctx context.Context, r Reservation) error {
	ctx, cancel := l.base.Finishing(ctx)
	defer cancel()
	return l.of(r).store.cancel(ctx, r)
}

// Pause postpones the turns of the event, in every process, so that none comes before now + d. d is
// at most a day. Turns that are already booked keep their order and the distances between them.
// Pause has no effect if d is 0 or less, or if another pause in force ends later. Call Pause if the
// called service says when to come back, for example with Retry-After. Other processes notice the
// pause before their next turn, unless that turn comes within 100 ms.
//
// Pause also pauses the Fallback. While Redis does not answer, it pauses only the Fallback of this
// process. Pause returns the same errors as WaitN.
func (l *Limiter) Pause(ctx context.Context, event string, d time.Duration) error {
	if err := l.made().Check(ctx, limiter.Peek, event, 1); err != nil {
		return err
	}
	if d > mostAhead {
		return l.base.Wrap(fmt.Errorf("a pause of %v; choose one of up to a day", d))
	}
	if d <= 0 {
		return nil
	}
	ms := (d + time.Millisecond - 1).Milliseconds()
	s, err := l.store.pause(ctx, event, ms)
	if err == nil {
		l.lines.on(event, func(q *line) { q.hear(s, time.Now(), false) })
	}
	if l.fallback != nil {
		s, failed := l.fallback.store.pause(ctx, event, ms)
		if failed == nil {
			l.lines.on(event, func(q *line) { q.hear(s, time.Now(), true) })
		}
		if health.IsOutage(err) {
			err = nil
		}
		err = errors.Join(err, failed)
	}
	return err
}

// Reset forgets the turns and pauses of the event, in the Fallback too. Callers keep the turns that
// they have already booked, so more than Max units can be used in one interval of length Per. Reset
// returns the same errors as WaitN.
func (l *Limiter) Reset(ctx context.Context, event string) error {
	e := l.made()
	defer l.lines.retry(event)
	return limiter.ResetBoth(ctx, e, event, l.store.Reset, l.fallback, (*Limiter).Reset)
}

// observe calls Observe after a Wait or Reserve.
func (l *Limiter) observe(ctx context.Context, n int64, r Reservation, trace send.Trace, err error, began time.Time) {
	d := window.Decision{Allowed: r.OK && err == nil, RetryAfter: r.Delay, At: r.At, Degraded: r.Degraded, Cause: r.Cause}
	l.report.Attempt(ctx, l.base, limiter.Allow, window.Observation{Units: n, Decision: d}, trace, err, began)
}

// denied calls OnDenied after an attempt that got no turn.
func (l *Limiter) denied(ctx context.Context, event string, retryAfter time.Duration) {
	slowest := slices.MinFunc(l.limits, func(a, b window.Limit) int { return cmp.Compare(rate(a), rate(b)) })
	l.report.Denied(ctx, l.base, event, "", window.Denial{Limit: slowest, Decision: window.Decision{RetryAfter: retryAfter, At: time.Now().UTC()}})
}

func rate(l window.Limit) float64 { return float64(l.Max) / float64(l.Per) }
