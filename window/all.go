package window

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/engine"
)

// Check is one of the attempts of AllowAll: N units of the Event under the Limiter, as AllowN has
// them.
type Check struct {
	Limiter *Limiter // which decides; those of several checks can be different ones, and the same
	Event   string   // never empty
	N       int64    // units; 0 stands for 1
}

// Joint is the answer of AllowAll.
type Joint struct {
	Allowed    bool          // all checks are admitted, and counted
	RetryAfter time.Duration // of the check that denied; another may deny then; 0 if Allowed

	// Decisions are those that were made, in the order of the checks: all if Allowed, else up to
	// the denial. What was given back of one is no longer in its Counted.
	Decisions []Decision
}

// AllowAll decides about several subjects at once, such as an address and an account: all checks
// are counted, or none. It asks them in the order given, one after the other, up to the first
// denial or error, and then gives back what was counted, also when ctx has ended: so it can return
// later than that, by a Timeout of those limiters, or 5 s where that is negative.
//
// Put first what an attacker has for himself (his address), and last what he shares with his victim
// (an account): an attempt that is denied for his address then takes nothing of the account, not
// even for a moment. Whoever can end ctx while the last check is on its way can have that counted,
// and the others given back. Where strangers can, such as by hanging up, give it one that they
// cannot end, by context.WithoutCancel.
//
// It never admits beyond a limit. It can deny too much while a charge is on its way back; and where
// one was not given back, because that failed or the process died, up to when it is forgotten.
//
// Errors are as those of AllowN, each about one check, whose place it tells; after ErrUncertain
// that check may be counted. Beside it, or beside a denial, there can be errors about what could
// not be given back, which say so, and match ErrOutage or ErrUncertain. With an error that is not
// beside a denial, the Joint is empty. What can be known before anything is sent is told before,
// such as a Check without a Limiter, or checks that cost one event more together than its limits
// ever admit.
//
// To give back an allowed Joint later, Refund each of its Decisions by the Limiter and Event of its
// Check. A limiter that counts denied attempts keeps the one that it denied.
func AllowAll(ctx context.Context, checks ...Check) (Joint, error) {
	if err := sound(ctx, checks); err != nil {
		return Joint{}, err
	}
	j := Joint{Allowed: true, Decisions: make([]Decision, 0, len(checks))}
	for i, c := range checks {
		d, err := c.Limiter.AllowN(ctx, c.Event, c.units())
		if err != nil {
			return Joint{}, errors.Join(ofCheck(i, err), j.giveBack(ctx, checks))
		}
		if !d.Allowed {
			err = j.giveBack(ctx, checks)
			j.Allowed, j.RetryAfter, j.Decisions = false, d.RetryAfter, append(j.Decisions, d)
			return j, err
		}
		j.Decisions = append(j.Decisions, d)
	}
	return j, nil
}

func (c Check) units() int64 { return cmp.Or(c.N, 1) }

// ofCheck adds to an error which check it is about: several can have the same limiter.
func ofCheck(i int, err error) error { return fmt.Errorf("%w (check %d of AllowAll)", err, i+1) }

// sound refuses checks that could not be made, or never be admitted, also for what several of them
// cost one event together.
func sound(ctx context.Context, checks []Check) error {
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

// giveBack refunds all that was counted so far, side by side: the sooner it is back, the less is
// denied for it.
func (j *Joint) giveBack(ctx context.Context, checks []Check) error {
	errs := make([]error, len(j.Decisions))
	back := func(i int) {
		if err := checks[i].refund(ctx, j.Decisions[i]); err != nil {
			errs[i] = ofCheck(i, err)
		} else {
			j.Decisions[i].Counted = 0
		}
	}
	var group sync.WaitGroup
	for i := range j.Decisions {
		if i == len(j.Decisions)-1 {
			back(i)
		} else {
			group.Go(func() { back(i) })
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

// refund does not end with ctx, but in time.
func (c Check) refund(ctx context.Context, d Decision) error {
	ctx = context.WithoutCancel(ctx)
	if c.Limiter.engine.Timeout < 0 {
		timed, cancel := context.WithTimeout(ctx, refundTime)
		defer cancel()
		ctx = timed
	}
	if err := c.Limiter.Refund(ctx, c.Event, d); err != nil {
		return fmt.Errorf("%d units stay counted, since they could not be given back: %w", d.Counted, err)
	}
	return nil
}

// refundTime is how long a Refund may take where Timeout leaves that to the context.
const refundTime = 5 * time.Second
