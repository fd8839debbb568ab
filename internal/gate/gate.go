// Package gate is what limiters have in common, whatever they count by: how an attempt is checked, decided, waited for and
// given back, and who decides while Redis cannot.
package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/remote"
)

// Limiter decides about events by what its State counts. U is window.Usage, which this package cannot name.
type Limiter[U any] struct {
	Config[U]
	State  State[U]
	prefix string // what a key begins with
	suffix string // what it ends with
}

// State is where the counts are: in Redis or in memory.
type State[U any] interface {
	// Decide answers an attempt of n units. It counts them if the verb says so.
	Decide(ctx context.Context, v Verb, event string, n int64) (Decision[U], error)
	// DecideEach answers an attempt of one unit for each event, and tells the answer to that in each place.
	DecideEach(ctx context.Context, v Verb, events []string, tell func(i int, d Decision[U], err error))
	// Refund takes back what d counted.
	Refund(ctx context.Context, event string, d Decision[U]) error
	Reset(ctx context.Context, event string) error
}

// Verb is what a decision does with its units, in the words of the scripts.
type Verb string

// What a decision does.
const (
	Allow Verb = "allow" // count them if they fit
	Count Verb = "count" // count them in any case
	Peek  Verb = "peek"  // count nothing
	Wait  Verb = "wait"  // to a State it is Allow: who waits does not hammer, also where denials count
)

// known is the verb as a State knows it.
func (v Verb) known() Verb {
	if v == Wait {
		return Allow
	}
	return v
}

// Decision is window.Decision, field by field, so that each converts to the other.
type Decision[U any] struct {
	Allowed    bool
	RetryAfter time.Duration
	Remaining  int64
	Counted    int64
	At         time.Time
	Degraded   bool
	Usage      []U
}

// Errors of the caller, who gets them by the same names from the packages of the limiters.
var (
	ErrEmptyEvent   = errors.New("the event is empty; refuse the request, or name its subject")
	ErrCost         = errors.New("an attempt costs at least 1 unit")
	ErrExceedsLimit = errors.New("more units than a limit ever admits; ask for fewer, or raise its Max")
)

// AllowN decides, and counts all n units or none, or all in any case.
func (l *Limiter[U]) AllowN(ctx context.Context, event string, n int64) (Decision[U], error) {
	return l.decide(ctx, l.attempts(), event, n)
}

// PeekN tells what AllowN would answer.
func (l *Limiter[U]) PeekN(ctx context.Context, event string, n int64) (Decision[U], error) {
	return l.decide(ctx, Peek, event, n)
}

// AllowEach decides as AllowN with 1 about each event, and tells the answer to that in each place.
func (l *Limiter[U]) AllowEach(ctx context.Context, events []string, tell func(i int, d Decision[U], err error)) {
	began, v := time.Now(), l.attempts()
	var places []int
	var sound []string
	for i, event := range events {
		if err := l.Check(ctx, event, 1); err != nil {
			l.observe(v, 1, Decision[U]{}, err, began)
			tell(i, Decision[U]{}, err)
		} else {
			places, sound = append(places, i), append(sound, event)
		}
	}
	l.State.DecideEach(ctx, v.known(), sound, func(k int, d Decision[U], err error) {
		d, err = l.settle(ctx, v, sound[k], 1, d, err)
		l.observe(v, 1, d, err, began)
		tell(places[k], d, err)
	})
}

// Every decision about one event comes through here.
func (l *Limiter[U]) decide(ctx context.Context, v Verb, event string, n int64) (Decision[U], error) {
	if l.Observe == nil {
		return l.answer(ctx, v, event, n)
	}
	began := time.Now()
	d, err := l.answer(ctx, v, event, n)
	l.observe(v, n, d, err, began)
	return d, err
}

func (l *Limiter[U]) observe(v Verb, n int64, d Decision[U], err error, began time.Time) {
	if l.Observe != nil {
		l.Observe(Observation[U]{Kind: kindOf(v, d.Allowed, err), Units: n, Decision: d, Took: time.Since(began)})
	}
}

func (l *Limiter[U]) answer(ctx context.Context, v Verb, event string, n int64) (Decision[U], error) {
	if err := l.Check(ctx, event, n); err != nil {
		return Decision[U]{}, err
	}
	d, err := l.State.Decide(ctx, v.known(), event, n)
	return l.settle(ctx, v, event, n, d, err)
}

// settle has the Fallback decide where Redis could not.
func (l *Limiter[U]) settle(ctx context.Context, v Verb, event string, n int64, d Decision[U], err error) (Decision[U], error) {
	if l.Fallback != nil && remote.IsOutage(err) && ctx.Err() == nil {
		d, err = l.fallBack(ctx, v, event, n, err)
	}
	if err != nil {
		return Decision[U]{}, l.wrap(err)
	}
	return d, nil
}

// fallBack has the Fallback decide. Whether denials count is its own affair. If it cannot either, the error is that of Redis,
// which says whether the attempt was counted there.
func (l *Limiter[U]) fallBack(ctx context.Context, v Verb, event string, n int64, cause error) (Decision[U], error) {
	if v != Peek && v != Wait {
		v = l.Fallback.attempts()
	}
	d, err := l.Fallback.answer(ctx, v, event, n)
	if err != nil {
		return Decision[U]{}, fmt.Errorf("%w; nor does the Fallback decide: %v", cause, err) //nolint:errorlint // it is to match the cause alone
	}
	d.Degraded = true
	return d, nil
}

// attempts is the verb of an attempt.
func (l *Limiter[U]) attempts() Verb {
	if l.CountDenied {
		return Count
	}
	return Allow
}

// WaitN asks until n units are admitted and counted, and sleeps in between.
func (l *Limiter[U]) WaitN(ctx context.Context, event string, n int64) (Decision[U], error) {
	for {
		d, err := l.decide(ctx, Wait, event, n)
		if err != nil || d.Allowed {
			return d, err
		}
		wait := d.RetryAfter
		if d.Degraded {
			wait = min(wait, remote.LeftAlone) // Redis may be back by then
		}
		if err := sleepUntil(ctx, wait); err != nil {
			return d, l.wrap(fmt.Errorf("a wait of %v for n = %d: %w", wait, n, err))
		}
	}
}

// Refund gives back what d counted, where it was counted.
func (l *Limiter[U]) Refund(ctx context.Context, event string, d Decision[U]) error {
	if d.Counted <= 0 || d.Degraded && l.Fallback == nil {
		return nil
	}
	if d.Degraded {
		d.Degraded = false // to the Fallback it is its own
		return l.Fallback.Refund(ctx, event, d)
	}
	if err := l.Check(ctx, event, 1); err != nil {
		return err
	}
	return l.wrap(l.State.Refund(ctx, event, d))
}

// Reset forgets the event, in the Fallback too.
func (l *Limiter[U]) Reset(ctx context.Context, event string) error {
	if err := l.Check(ctx, event, 1); err != nil {
		return err
	}
	err := l.wrap(l.State.Reset(ctx, event))
	if l.Fallback != nil {
		err = errors.Join(err, l.Fallback.Reset(ctx, event))
	}
	return err
}

// Inspect has the state of an event told by inspect.
func (l *Limiter[U]) Inspect(ctx context.Context, event string, inspect func() error) error {
	if err := l.Check(ctx, event, 1); err != nil {
		return err
	}
	return l.wrap(inspect())
}

// Check refuses what could never be admitted, and what comes too late.
func (l *Limiter[U]) Check(ctx context.Context, event string, n int64) error {
	switch {
	case event == "":
		return l.wrap(ErrEmptyEvent)
	case n < 1:
		return l.wrap(fmt.Errorf("%w, not %d", ErrCost, n))
	case ctx.Err() != nil:
		return l.wrap(fmt.Errorf("nothing was sent: %w", ctx.Err()))
	}
	for i := range l.Limits {
		if n > l.Limits[i].Max {
			return l.wrap(fmt.Errorf("%d units under %s: %w", n, l.Limits[i].Text, ErrExceedsLimit))
		}
	}
	return nil
}

func (l *Limiter[U]) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("slidegate: limiter %q: %w", l.Name, err)
}
