package login

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/window"
)

// Attempt represents one attempt to log in, and whether it is allowed. If it is, check the
// password. Then call Succeed if it is right, Cancel if it could not be checked, and nothing if it
// is wrong.
type Attempt struct {
	// Allowed reports whether to check the password.
	Allowed bool

	// RetryAfter is how long until the budget that denied could allow the same attempt, or 0 if
	// Allowed. Budgets that were not asked can still deny it then.
	RetryAfter time.Duration

	// Challenge reports that a denied attempt would be allowed if the client solved a challenge:
	// see BeginChallenged. It is false also if Redis did not answer that question.
	Challenge bool

	// DeniedBy is the budget that was used up, or empty if Allowed. Log it, and do not show it to
	// the user.
	DeniedBy Budget

	// Remaining is how many more failures the budgets of this attempt allow now, or 0 if denied.
	// After those of a known device come those of an unknown device.
	Remaining int64

	// NextWait is the longest possible wait for the next attempt if this one fails. It is 0 if
	// there is no wait, or if denied.
	NextWait time.Duration

	// Degraded reports that the Fallback decided, at least in part.
	Degraded bool

	// Cause is why Redis did not answer, as in window.Decision: of the first budget that the
	// Fallback decided. Otherwise it is nil.
	Cause error `json:"-"`

	guard     *Guard
	charges   []charge
	cleared   []charge // by Succeed
	decisions []window.Decision
	alarm     *siteAlarm // counts the attempt as a failure until it ends; nil if it is not counted
	ended     atomic.Bool
}

// charge is one unit, charged to an event key of a budget.
type charge struct {
	budget Budget
	event  string
}

// begin charges an attempt. Succeed gives back the charges, and resets the budgets in cleared.
func (g *Guard) begin(ctx context.Context, charges []charge, cleared ...charge) (*Attempt, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("slidegate: login: nothing was charged: %w", err)
	}
	ctx, cancel := g.detach(ctx)
	defer cancel()
	joint, err := window.AllowAll(ctx, g.checks(charges)...)
	if len(joint.Decisions) == 0 {
		return nil, err
	}
	a := &Attempt{Allowed: joint.Allowed, RetryAfter: joint.RetryAfter, guard: g, charges: charges, cleared: cleared, decisions: joint.Decisions}
	a.summarize()
	return a, err
}

// checks returns the questions for window.AllowAll. A budget may be asked in the same round trip as
// the one before it if a charge that is held for a moment harms nobody else. The pair belongs to
// the attacker, like the address. And Total has no more for unknown devices than Account has
// admitted.
func (g *Guard) checks(charges []charge) []window.Check {
	checks := make([]window.Check, len(charges))
	for i, c := range charges {
		together := c.budget == BudgetPair || c.budget == BudgetChallengedPair || c.budget == BudgetTotal && charges[i-1].budget != BudgetDevice
		checks[i] = window.Check{Limiter: g.limiters[c.budget], Event: c.event, Together: together}
	}
	return checks
}

// detach returns a context that the caller cannot end. A client could end it by hanging up, or by a
// deadline of its choice. Config.Timeout ends each round trip. If that is below 0, the deadline of
// ctx stays.
func (g *Guard) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	detached := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok && g.noTimeout {
		return context.WithDeadline(detached, deadline)
	}
	return detached, func() {}
}

// summarize sets the results from the decisions of the budgets.
func (a *Attempt) summarize() {
	last := len(a.decisions) - 1
	a.Remaining = a.decisions[last].Remaining
	for _, d := range a.decisions {
		a.Remaining, a.Degraded = min(a.Remaining, d.Remaining), a.Degraded || d.Degraded
		if a.Cause == nil {
			a.Cause = d.Cause
		}
		for _, u := range d.Usage {
			a.NextWait = max(a.NextWait, u.RetryAfter)
		}
	}
	if !a.Allowed {
		a.DeniedBy, a.Remaining, a.NextWait = a.charges[last].budget, 0, 0
		a.ended.Store(true)
	}
}

// Succeed reports that the password was right. It gives back the charges of this attempt. It also
// resets the streak and the pair or the known device, with their challenged budgets.
//
// Earlier failures on the address stay, because otherwise an attacker could clear them by logging
// into an account of their own. Earlier failures on the account stay, because otherwise each login
// of the owner would give an attacker new guesses.
//
// Succeed also works after ctx has ended, and takes at most 5 s. An error names the budgets that
// could not be given back or reset, whose charges stay: log it, and let the user in. Only the first
// call of Succeed or Cancel has an effect, and neither has one after a denial.
func (a *Attempt) Succeed(ctx context.Context) error { return a.end(ctx, a.cleared) }

// Cancel gives back the charges of this attempt, as if it had not been made. Call it if the
// password could not be checked, for example because the database did not answer. Do not call it
// after a wrong password, or because the client has gone.
//
// If another attempt has succeeded since this one began, and a later one failed, Cancel can give
// back that failure of the pair, the streak or the device. Like Succeed, it works after ctx has
// ended, and takes at most 5 s. An error names the charges that stay.
func (a *Attempt) Cancel(ctx context.Context) error { return a.end(ctx, nil) }

// end gives back the charges and resets the cleared budgets, if the attempt has not ended.
func (a *Attempt) end(ctx context.Context, cleared []charge) error {
	if a.guard == nil || a.ended.Swap(true) { // an Attempt without a guard is a stub in a user's test
		return nil
	}
	if a.alarm != nil {
		a.alarm.failures.Add(-1)
	}
	ctx, cancel := calls.Finish(ctx)
	defer cancel()
	charged := len(a.charges)
	return a.guard.concurrently(charged+len(cleared), func(i int) error {
		switch {
		case i >= charged:
			return a.guard.clear(ctx, cleared[i-charged])
		case slices.Contains(cleared, a.charges[i]):
			return nil
		}
		return a.refund(ctx, i)
	})
}

// refund gives back the charge of index i.
func (a *Attempt) refund(ctx context.Context, i int) error {
	c := a.charges[i]
	if err := a.guard.limiters[c.budget].Refund(ctx, c.event, a.decisions[i]); err != nil {
		return fmt.Errorf("slidegate: login: cannot give back what is charged to the %s, so it stays until its window is over: %w", c.budget, err)
	}
	return nil
}

// concurrently calls do for 0 to n-1 at the same time, so that the calls share a round trip. In
// memory it calls them in sequence.
func (g *Guard) concurrently(n int, do func(i int) error) error {
	errs := make([]error, n)
	calls.Concurrently(0, n, func(int) bool { return g.inMemory }, func(i int) { errs[i] = do(i) })
	return errors.Join(errs...)
}
