package window

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

	// Together asks at the same time as the check before, to save a round trip to Redis. If that
	// one denies, this one may have counted its units, which are then given back. In memory, where
	// there is no round trip, it changes nothing.
	Together bool
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
// are counted, or none. It asks them in the order given, up to the first denial or error, and then
// gives back what was counted, also when ctx has ended: so it can return later than that, by a
// Timeout of those limiters, or 5 s where that is negative. Each check takes a round trip to Redis,
// unless it is asked Together with the one before it.
//
// Put first what an attacker has for himself (his address), and last what he shares with his victim
// (an account): an attempt that is denied for his address then takes nothing of the account, not
// even for a moment. For the same reason, ask Together only what hurts nobody else while it is
// counted for a moment. Whoever can end ctx while the last check is on its way can have that
// counted, and the others given back. Where strangers can, such as by hanging up, give it one that
// they cannot end, by context.WithoutCancel.
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
	results := make([]Result, 0, len(checks))
	for len(results) < len(checks) {
		results = append(results, ask(ctx, stage(checks[len(results):]))...)
		if i := slices.IndexFunc(results, stops); i >= 0 {
			return stopped(ctx, checks, results, i)
		}
	}
	return Joint{Allowed: true, Decisions: decisions(results)}, nil
}

// stage returns the checks at the beginning that are asked at the same time.
func stage(checks []Check) []Check {
	n := 1
	for n < len(checks) && checks[n].Together && checks[n].Limiter.local == nil {
		n++
	}
	return checks[:n]
}

// ask makes checks at the same time.
func ask(ctx context.Context, checks []Check) []Result {
	results := make([]Result, len(checks))
	sideBySide(len(checks), func(i int) {
		c := checks[i]
		results[i].Decision, results[i].Err = c.Limiter.AllowN(ctx, c.Event, c.units())
	})
	return results
}

// sideBySide does n things at the same time, the last of them in the caller's goroutine.
func sideBySide(n int, do func(i int)) {
	var group sync.WaitGroup
	for i := range n - 1 {
		group.Go(func() { do(i) })
	}
	do(n - 1)
	group.Wait()
}

// stops reports whether nothing is asked after this result.
func stops(r Result) bool { return r.Err != nil || !r.Allowed }

// stopped gives back what was counted, and returns the Joint that the i-th result stopped.
func stopped(ctx context.Context, checks []Check, results []Result, i int) (Joint, error) {
	err := giveBack(ctx, checks, results, i)
	if cause := results[i].Err; cause != nil {
		return Joint{}, errors.Join(ofCheck(i, cause), err)
	}
	return Joint{RetryAfter: results[i].RetryAfter, Decisions: decisions(results[:i+1])}, err
}

func decisions(results []Result) []Decision {
	all := make([]Decision, len(results))
	for i, r := range results {
		all[i] = r.Decision
	}
	return all
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

// giveBack refunds all that was counted, side by side: the sooner it is back, the less is denied
// for it. Its errors are about what stays, or may stay, apart from the check that stopped.
func giveBack(ctx context.Context, checks []Check, results []Result, stopped int) error {
	errs := make([]error, len(results))
	sideBySide(len(results), func(i int) {
		if r := &results[i]; r.Err != nil && i != stopped && errors.Is(r.Err, ErrUncertain) {
			errs[i] = ofCheck(i, r.Err)
		} else if r.Err == nil && r.Allowed {
			errs[i] = checks[i].giveBack(ctx, i, &r.Decision)
		}
	})
	return errors.Join(errs...)
}

// giveBack refunds what a decision counted for the i-th check.
func (c Check) giveBack(ctx context.Context, i int, d *Decision) error {
	if err := c.refund(ctx, *d); err != nil {
		return ofCheck(i, err)
	}
	d.Counted = 0
	return nil
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
