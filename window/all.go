package window

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/internal/engine"
)

// Check is one of the attempts of AllowAll: N units of the Event under the Limiter, as in AllowN.
type Check struct {
	Limiter *Limiter // decides; several checks can have different ones, or the same
	Event   string   // names the subject that is limited; never empty
	N       int64    // units; 0 stands for 1

	// Together asks at the same time as the check before, to save a round trip to Redis. If that
	// one denies, this one may have counted its units, which are then given back. In memory, where
	// there is no round trip, it changes nothing.
	Together bool
}

// JointDecision is the answer of AllowAll.
type JointDecision struct {
	Allowed    bool          // all checks were admitted, and counted
	RetryAfter time.Duration // of the check that denied, 0 if Allowed; after it, another check may deny

	// Decisions are those that were made, in the order of the checks: all if Allowed, else up to
	// the denial. Counted does not include units that were given back.
	Decisions []Decision
}

// AllowAll decides about several events at once, such as an address and an account: all checks are
// counted, or none. It asks them in the order given, up to the first denial or error. Then it gives
// back what was counted, even if ctx has ended. So it can return later than ctx ends: by one more
// Timeout of the limiters, or by 5 s where that is negative. Each check takes a round trip to
// Redis, unless it is asked Together with the one before it.
//
// Put first what belongs to an attacker alone (the address), and last what the victim shares (the
// account). An attempt that is denied for its address then takes nothing from the account, not even
// for a moment. For the same reason, ask Together only where units that count for a moment deny
// nobody else.
//
// A client that can end ctx while the last check is on its way can leave that one counted, and have
// the others given back. Where strangers can end it, for example by closing a connection, pass a
// context that they cannot end, from context.WithoutCancel.
//
// AllowAll never admits beyond a limit. It can deny too much while units are on their way back. If
// giving back failed, or the process died, that lasts until the units are forgotten.
//
// Errors are as those of AllowN. Each names the position of its check; after ErrUncertain that
// check may be counted. Beside an error or a denial, other errors can report units that could not
// be given back. They match ErrOutage or ErrUncertain. With an error and no denial, the
// JointDecision is zero. Mistakes are reported before anything is sent: a Check without a Limiter,
// or checks whose units of one event together exceed what its limits ever admit.
//
// To give back an allowed JointDecision later, Refund each of its Decisions by the Limiter and
// Event of its Check. A limiter that counts denied attempts keeps the one that it denied.
func AllowAll(ctx context.Context, checks ...Check) (JointDecision, error) {
	if err := validate(ctx, checks); err != nil {
		return JointDecision{}, err
	}
	a := answers{make([]Decision, len(checks)), make([]error, len(checks))}
	try := func(i int) {
		a.decisions[i], a.errs[i] = checks[i].Limiter.AllowN(ctx, checks[i].Event, checks[i].units())
	}
	for done := 0; done < len(checks); {
		next := done + stage(checks[done:])
		calls.Concurrently(done, next, inMemory(checks), try)
		for i := done; i < next; i++ {
			if a.stops(i) {
				return a.stopped(ctx, checks[:next], i)
			}
		}
		done = next
	}
	return JointDecision{Allowed: true, Decisions: a.decisions}, nil
}

// inMemory returns a function that reports whether the i-th check is decided in memory.
func inMemory(checks []Check) func(i int) bool {
	return func(i int) bool { return checks[i].Limiter.engine.InMemory() }
}

// answers holds the answers to checks, in their order.
type answers struct {
	decisions []Decision
	errs      []error
}

// stage returns how many checks at the beginning are asked at the same time.
func stage(checks []Check) (n int) {
	for n = 1; n < len(checks) && checks[n].Together && !checks[n].Limiter.engine.InMemory(); {
		n++
	}
	return n
}

// stops reports whether nothing is asked after the i-th check.
func (a answers) stops(i int) bool { return a.errs[i] != nil || !a.decisions[i].Allowed }

// stopped gives back the units of the checks that were asked, and returns the JointDecision that
// the i-th one stopped.
func (a answers) stopped(ctx context.Context, asked []Check, i int) (JointDecision, error) {
	err := a.giveBack(ctx, asked, i)
	if cause := a.errs[i]; cause != nil {
		return JointDecision{}, errors.Join(ofCheck(i, cause), err)
	}
	return JointDecision{RetryAfter: a.decisions[i].RetryAfter, Decisions: a.decisions[:i+1]}, err
}

func (c Check) units() int64 { return cmp.Or(c.N, 1) }

// ofCheck adds to an error the number of its check, since several checks can have the same limiter.
func ofCheck(i int, err error) error { return fmt.Errorf("%w (check %d of AllowAll)", err, i+1) }

// validate refuses checks without a limiter, or that can never be admitted. Several checks of one
// event under one limiter are added up.
func validate(ctx context.Context, checks []Check) error {
	if len(checks) == 0 {
		return errors.New("slidegate: AllowAll has no checks; give it at least one")
	}
	for i, c := range checks {
		if c.Limiter == nil || !c.Limiter.engine.Made() {
			return fmt.Errorf("slidegate: check %d of AllowAll has no Limiter from New or NewLocal; make one", i+1)
		}
		n := c.units()
		for _, before := range checks[:i] {
			if n > 0 && n <= maxUnits && before.Limiter.engine.Same(&c.Limiter.engine) && before.Event == c.Event {
				n += before.units()
			}
		}
		if err := c.Limiter.engine.Check(ctx, engine.Allow, c.Event, n); err != nil {
			return ofCheck(i, err)
		}
	}
	return nil
}

// giveBack refunds all units that were counted, concurrently: the sooner they are back, the fewer
// others are denied. It returns errors about units that stay, or may stay, counted, except in the
// check that stopped.
func (a answers) giveBack(ctx context.Context, asked []Check, stopped int) error {
	errs := make([]error, len(asked))
	calls.Concurrently(0, len(asked), inMemory(asked), func(i int) {
		if err := a.errs[i]; err != nil && i != stopped && errors.Is(err, ErrUncertain) {
			errs[i] = ofCheck(i, err)
		} else if !a.stops(i) {
			errs[i] = asked[i].giveBack(ctx, i, &a.decisions[i])
		}
	})
	return errors.Join(errs...)
}

// giveBack refunds the units that a decision counted for the i-th check.
func (c Check) giveBack(ctx context.Context, i int, d *Decision) error {
	if err := c.Limiter.Refund(ctx, c.Event, *d); err != nil {
		return ofCheck(i, fmt.Errorf("%d units stay counted, since they could not be given back: %w", d.Counted, err))
	}
	d.Counted = 0
	return nil
}
