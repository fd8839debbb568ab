// Package pace books turns for the calls of a fleet: to an external API that allows a number of
// calls per second, to a mail server, to a printer. It is golang.org/x/time/rate for many
// processes, on Redis, on Redis Cluster, or in the memory of one process.
//
//	limiter, err := pace.New(conn, pace.Config{ // conn comes from window.Dial
//		Name:   "api.example.com",
//		Limits: []window.Limit{window.Every(20 * time.Millisecond)},
//	})
//	// ...
//	err = limiter.Wait(ctx, "our account")
//	// call the API
//
// A turn is the earliest time, not before any turn booked earlier, at which every limit allows the
// units. So turns come in the order in which Redis received the requests, and there are never more
// than Max in any span of Per. Package window, in contrast, answers whether something is allowed
// now, and its waiters are served in no particular order.
//
// The parameter event of every method names what is paced: an account, a host, a customer. Each
// event has its own turns, in one Redis key.
package pace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/internal/outage"
	"github.com/slidegate/slidegate/internal/pipeline"
	"github.com/slidegate/slidegate/lua"
	"github.com/slidegate/slidegate/window"
)

// Config holds the limits of a Limiter, and the name that it books under. Only Name and Limits are
// required. Fields work as in window.Config unless described otherwise.
type Config struct {
	// Name is as in window. Limiters of one Name share their turns, but not with a limiter of
	// window.
	Name string

	// Limits holds 1 to 31 limits that the other side allows. Every(20 * time.Millisecond) spaces
	// calls evenly; PerSecond(50) allows 50 at once. Turns are exact to the millisecond up to a Max
	// of 256. Above that, a turn can come up to Per/240 later than the earliest time, and never
	// earlier. So a Resolution has no effect: leave it as window.PerSecond and the other functions
	// set it.
	Limits []window.Limit

	// MaxAhead is how far ahead a turn may be booked, at most a day; 0 means 10 s. A caller whose
	// turn is further ahead waits in the process until it can be booked, first come, first served.
	// The order among processes is kept within MaxAhead.
	MaxAhead time.Duration

	// Secret hides events in keys with HMAC-SHA256, as in window. It needs at least 16 random
	// bytes.
	Secret []byte `json:"-"`

	// Now is the clock of turns, as in window. Waits are still in real time.
	Now func() time.Time `json:"-"`

	// Timeout bounds how long one call waits for Redis in total, as in window. 0 means 250 ms.
	Timeout time.Duration

	// Fallback books turns while Redis cannot answer, by its own limits, as in window. It has no
	// Fallback itself. There, each process has its own turns.
	Fallback *Limiter `json:"-"`

	// MaxEvents bounds how many events a limiter in memory holds, as in window.
	MaxEvents int

	// Observe is called after each Wait and Reserve, and when an outage starts or ends, as in
	// window. Decision.Allowed says that a turn was booked, RetryAfter is its Delay, and At is the
	// turn.
	Observe func(ctx context.Context, o window.Observation) `json:"-"`

	// OnDenied is called after each Reserve that is not OK, and after each Wait that fails because
	// its turn would come after the deadline, with the event: see window.Denial.
	OnDenied func(ctx context.Context, d window.Denial) `json:"-"`
}

// Limiter books turns. New and NewLocal return one. It is safe for concurrent use and needs no Close.
type Limiter struct {
	engine   *engine.Limiter
	store    store
	limits   []window.Limit
	maxAhead int64 // ms
	fallback *Limiter
	observe  func(context.Context, window.Observation) // may be nil
	onDenied func(context.Context, window.Denial)      // may be nil
	lines    lines
}

// store keeps the turns of events, in Redis or in memory. Times are in ms.
type store interface {
	// book books up to k turns in a row, of n units each, as long as they are at most ahead ms from
	// now.
	book(ctx context.Context, event string, k, n, ahead int64) (booking, error)
	// cancel gives back the units of a turn.
	cancel(ctx context.Context, event string, r Reservation) error
	// pause moves all turns after now to later times, none before now + d.
	pause(ctx context.Context, event string, d int64) (state, error)
	// ask returns how far pauses have shifted turns.
	ask(ctx context.Context, event string) (state, error)
	// inspect returns the turns that count, in the integers of the script.
	inspect(ctx context.Context, event string) ([]int64, error)
	// Reset forgets the event.
	Reset(ctx context.Context, event string) error
}

// ErrMissed is returned by Due for a turn that was not taken in time.
var ErrMissed = errors.New("the turn was missed: it came more than a second ago, or before a pause; reserve another")

// These errors can be distinguished with errors.Is. They are those of window.
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
	maxTime      = 1 << 47 // the first ms that the script rejects, in the year 6429
)

// New returns a limiter that keeps its turns in the Redis or Redis Cluster of a Connection, which
// comes from window.Dial, window.On or package goredisgate. It sends nothing yet, so an error is
// about conn or cfg, and says what to do. Its circuit breaker works as in window.
func New(conn *window.Connection, cfg Config) (*Limiter, error) {
	e, err := engine.New((*pipeline.Connection)(conn), cfg.engine(), engineLimits(cfg.Limits))
	if err != nil {
		return nil, err
	}
	return newLimiter(e, newOnRedis(e), cfg)
}

// NewLocal returns a limiter that keeps its turns in this process's memory: no Redis, same answers.
// Each one has its own turns, whatever its Name. It forgets events by itself, unless Config.Now
// sets its clock. It takes no Fallback, because it never needs one.
func NewLocal(cfg Config) (*Limiter, error) {
	if cfg.Fallback != nil {
		return nil, outage.Needless(cfg.Name)
	}
	e, err := engine.NewLocal(cfg.engine(), engineLimits(cfg.Limits), nil)
	if err != nil {
		return nil, err
	}
	return newLimiter(e, newLocal(e), cfg)
}

func newLimiter(e *engine.Limiter, s store, cfg Config) (*Limiter, error) {
	if cfg.MaxAhead < 0 || cfg.MaxAhead > mostAhead || cfg.MaxAhead%time.Millisecond != 0 {
		return nil, fmt.Errorf("slidegate: limiter %q has a MaxAhead of %v; choose whole milliseconds up to a day, or 0 for 10 s", cfg.Name, cfg.MaxAhead)
	}
	if f := cfg.Fallback; f != nil {
		if err := outage.Use(cfg.Name, cmp.Or(f.engine, &engine.Limiter{}), f.fallback != nil); err != nil {
			return nil, err
		}
	}
	return &Limiter{
		engine: e, store: s, limits: slices.Clone(cfg.Limits), maxAhead: cmp.Or(cfg.MaxAhead, defaultAhead).Milliseconds(),
		fallback: cfg.Fallback, observe: cfg.Observe, onDenied: cfg.OnDenied, lines: lines{of: map[string]*line{}},
	}, nil
}

// engine converts the configuration into the form that limiters of every kind share.
func (cfg Config) engine() engine.Config {
	c := engine.Config{
		Kind: "r", Script: lua.Pace, MaxUnits: maxUnits,
		Name: cfg.Name, Secret: slices.Clone(cfg.Secret), Timeout: cfg.Timeout, MaxEvents: cfg.MaxEvents,
		Clock: clock.Clock{Now: cfg.Now, Tick: time.Millisecond, Unit: time.Time.UnixMilli, Time: time.UnixMilli, End: maxTime, Year: 6429},
		Text:  limitText,
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

// engineLimits converts the limits into the form that limiters of every kind share.
func engineLimits(limits []window.Limit) (all []engine.Limit) {
	for _, l := range limits {
		width, fault := time.Millisecond, engine.CheckRange(l.Max, maxUnits, "2^53", l.Per)
		if l.Max > exactMax {
			width = clock.Milliseconds((l.Per.Milliseconds() + 239) / 240)
		}
		if made := clock.Milliseconds((l.Per.Milliseconds() + 59) / 60); fault == nil && l.Resolution != 0 && l.Resolution != made {
			fault = fmt.Errorf("a Resolution of %v; leave it at 0, because turns have their own bucket width", l.Resolution)
		}
		all = append(all, engine.Limit{Max: l.Max, Per: l.Per.Milliseconds(), Fine: width.Milliseconds(), Coarse: width.Milliseconds(), Fault: fault})
	}
	return all
}

// limitText formats a limit for messages.
func limitText(l engine.Limit) string {
	return window.Limit{Max: l.Max, Per: clock.Milliseconds(l.Per)}.Label()
}

// made returns the engine of a limiter from New or NewLocal. It panics for any other limiter,
// which is a mistake in the program.
func (l *Limiter) made() *engine.Limiter {
	if l == nil || l.engine == nil {
		panic("slidegate: this limiter is nil or zero; create one with pace.New or NewLocal")
	}
	return l.engine
}

func (l *Limiter) ahead() time.Duration { return milliseconds(l.maxAhead) }

// Wait calls WaitN with one unit.
func (l *Limiter) Wait(ctx context.Context, event string) error { return l.WaitN(ctx, event, 1) }

// WaitN returns when the caller's turn has come, for n units at once. It never returns early. If
// the turn would come after the deadline of ctx, it fails at once and books nothing.
//
// A caller that leaves because ctx ends hands its turn to the next one that waits in this process.
// A turn that no caller in the process waits for is cancelled: the next one to book can get it, but
// no earlier one. So if all leave at once, the next turn can come as late as the last one that was
// booked, within MaxAhead.
//
// The errors are ErrEmptyEvent, ErrInvalidCost, ErrExceedsLimit, ErrOutage, ErrUncertain, and those
// of ctx. Any other error names the key: its value is not a record of this library.
func (l *Limiter) WaitN(ctx context.Context, event string, n int64) (err error) {
	if err := l.made().Check(ctx, engine.Allow, event, n); err != nil {
		return err
	}
	began := time.Now()
	w, err := l.await(ctx, event, n)
	l.report(ctx, n, w.turn.Reservation, w.turn.trace, err, began)
	var late *lateError
	if errors.As(err, &late) {
		l.denied(ctx, event, late.after)
	}
	return err
}

// await waits for a turn. If it wakes too late for one, it waits for another.
func (l *Limiter) await(ctx context.Context, event string, n int64) (w *waiter, err error) {
	for {
		w = &waiter{n: n, done: make(chan error, 1)}
		w.deadline, _ = ctx.Deadline()
		on := l.lines.join(l, event, w)
		select {
		case err = <-w.done:
		case <-ctx.Done():
			on.leave(w)
			err = l.engine.Wrap(fmt.Errorf("the caller left before its turn, which goes to others: %w", ctx.Err()))
		}
		if err != nil || time.Since(w.turn.due) <= maxLate {
			return w, err
		}
	}
}

// Reserve calls ReserveN with one unit.
func (l *Limiter) Reserve(ctx context.Context, event string) (Reservation, error) {
	return l.ReserveN(ctx, event, 1)
}

// ReserveN books a turn for n units and returns at once, for job queues: start the job after Delay,
// but call Due then, because there may have been a Pause in the meantime. A Reservation that is not
// OK booked nothing, and holds no place: try again after its Delay.
//
// Errors are those of WaitN. After ErrUncertain, a turn may be booked that no caller uses, and you
// can reserve again.
func (l *Limiter) ReserveN(ctx context.Context, event string, n int64) (r Reservation, err error) {
	if err := l.made().Check(ctx, engine.Allow, event, n); err != nil {
		return r, err
	}
	began := time.Now()
	b, err := l.book(ctx, event, 1, n, l.maxAhead)
	if all := b.reservations(n); len(all) > 0 {
		r = all[0]
	} else if err == nil {
		r = Reservation{Delay: b.wait(), N: n, Shift: b.shift, Degraded: b.degraded, Cause: b.cause}
	}
	l.report(ctx, n, r, b.trace, err, began)
	if err == nil && !r.OK {
		l.denied(ctx, event, r.Delay)
	}
	return r, err
}

// book books turns; in an outage, the Fallback does.
func (l *Limiter) book(ctx context.Context, event string, k, n, ahead int64) (b booking, err error) {
	b, err = l.store.book(ctx, event, k, n, ahead)
	if err != nil {
		cause, trace := pipeline.FailureIn(err).Err(), b.trace
		err = outage.Ask(ctx, err, l.fallback, func(ctx context.Context, f *Limiter) (err error) {
			if err = f.engine.Check(ctx, engine.Allow, event, n); err != nil {
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

// Due returns how long until the turn of a Reservation comes, taking each Pause into account. 0
// means that it has come: go. If it came more than a second ago, or before a Pause, the error is
// ErrMissed: reserve another. A Reservation that is not OK is an error. Other errors are those of
// WaitN, but never ErrUncertain: if Redis does not answer, go after Delay.
func (l *Limiter) Due(ctx context.Context, event string, r Reservation) (time.Duration, error) {
	of := l.of(r)
	if err := of.made().Check(ctx, engine.Peek, event, 1); err != nil {
		return 0, err
	}
	if !r.OK {
		return 0, of.engine.Wrap(errors.New("the reservation is not OK, so nothing was booked; reserve again after its Delay"))
	}
	s, err := of.store.ask(ctx, event)
	if err != nil {
		return 0, err
	}
	due, err := s.due(r)
	return due, of.engine.Wrap(err)
}

// of returns the limiter that made a Reservation: the Fallback or l.
func (l *Limiter) of(r Reservation) *Limiter {
	if r.Degraded && l.fallback != nil {
		return l.fallback
	}
	return l
}

// Cancel gives back the units of a Reservation, even if ctx has ended. Call it once, and only if
// the turn was not used: a second call can free the units of another caller that booked that turn
// meanwhile. The turns of others do not move. The next caller to book can get the turn if it was
// the newest, but never one before the newest. A turn that came before a later Pause stays booked.
// Errors are those of WaitN.
func (l *Limiter) Cancel(ctx context.Context, event string, r Reservation) error {
	of := l.of(r)
	if err := of.made().Check(context.WithoutCancel(ctx), engine.Peek, event, 1); err != nil || !r.OK {
		return err
	}
	if r.N < 1 || r.Shift < 0 {
		return of.engine.Wrap(fmt.Errorf("a reservation of %d units under a shift of %d; pass it as Reserve returned it", r.N, r.Shift))
	}
	defer l.lines.retry(event)
	return of.cancel(ctx, event, r)
}

func (l *Limiter) cancel(ctx context.Context, event string, r Reservation) error {
	ctx, cancel := l.engine.Finishing(ctx)
	defer cancel()
	of := l.of(r)
	return of.store.cancel(ctx, event, r)
}

// Pause stops the turns of an event, in every process: none comes before now + d, up to a day.
// Turns that were booked keep their order and their distances. A pause that would end before one in
// force adds nothing, and neither does one of 0 or less. Call it if the other side says when to
// come back, for example with Retry-After. Other processes notice before their next turn, unless
// that comes within 100 ms.
//
// Errors are those of WaitN. The Fallback pauses, too. While Redis does not answer, only the
// Fallback of this process pauses.
func (l *Limiter) Pause(ctx context.Context, event string, d time.Duration) error {
	if err := l.made().Check(ctx, engine.Peek, event, 1); err != nil {
		return err
	}
	if d > mostAhead {
		return l.engine.Wrap(fmt.Errorf("a pause of %v; choose one of up to a day", d))
	}
	if d <= 0 {
		return nil
	}
	ms := (d + time.Millisecond - 1).Milliseconds()
	s, err := l.store.pause(ctx, event, ms)
	if err == nil {
		l.lines.hear(event, s, false)
	}
	if l.fallback != nil {
		s, failed := l.fallback.store.pause(ctx, event, ms)
		if failed == nil {
			l.lines.hear(event, s, true)
		}
		if pipeline.IsOutage(err) {
			err = nil
		}
		err = errors.Join(err, failed)
	}
	return err
}

// Reset forgets the turns and pauses of the event, and those of the Fallback. A caller that has a
// turn keeps it, so more than Max can go out once. Errors are those of WaitN.
func (l *Limiter) Reset(ctx context.Context, event string) error {
	if err := l.made().Check(ctx, engine.Peek, event, 1); err != nil {
		return err
	}
	err := l.store.Reset(ctx, event)
	l.lines.retry(event)
	if l.fallback != nil {
		err = errors.Join(err, l.fallback.Reset(ctx, event))
	}
	return err
}

// report calls Observe about a Wait or Reserve.
func (l *Limiter) report(ctx context.Context, n int64, r Reservation, trace pipeline.Trace, err error, began time.Time) {
	if l.observe == nil {
		return
	}
	failure := pipeline.FailureIn(cmp.Or(err, r.Cause))
	l.observe(ctx, window.Observation{
		Limiter: l.engine.Name, Kind: window.Kind(engine.KindOf(engine.Allow, r.OK, err)), Units: n, Took: time.Since(began),
		Decision: window.Decision{Allowed: r.OK && err == nil, RetryAfter: r.Delay, At: r.At, Degraded: r.Degraded, Cause: r.Cause},
		InRedis:  trace.InRedis, Merged: trace.Merged, Batch: trace.Batch, SlotRange: trace.SlotRange,
		Reason: window.Reason(failure.Reason()), Err: failure.Err(),
	})
}

// denied calls OnDenied about an attempt that got no turn.
func (l *Limiter) denied(ctx context.Context, event string, retryAfter time.Duration) {
	if l.onDenied == nil {
		return
	}
	slowest := slices.MinFunc(l.limits, func(a, b window.Limit) int { return cmp.Compare(rate(a), rate(b)) })
	d := window.Denial{Limiter: l.engine.Name, Limit: slowest, RetryAfter: retryAfter, At: time.Now().UTC()}
	d.Event, d.Hashed = l.engine.Shown(event, "")
	l.onDenied(ctx, d)
}

func rate(l window.Limit) float64 { return float64(l.Max) / float64(l.Per) }
