package login

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/window"
)

// Attempt is one attempt to log in, and the answer whether it may be made.
type Attempt struct {
	Allowed    bool          // the password may be looked at
	RetryAfter time.Duration // how soon the budget that denied could allow the same attempt; 0 if Allowed. Budgets that were not asked can deny it then
	Challenge  bool          // denied, but allowed if its client solved a challenge: see BeginChallenged. False also if Redis did not say
	Denied     Budget        // which was used up; empty if Allowed. It is for logs, and not for the user
	Left       int64         // how many more failures its budgets allow now; 0 if denied. After those of a known device come those of an unknown one
	Next       time.Duration // how soon the next attempt could be allowed if this one fails, at most; 0 if at once, or if denied
	Degraded   bool          // decided by the Fallback, in part at least

	guard     *Guard
	charges   []charge
	cleared   []charge // what a success clears
	decisions []window.Decision
	site      *site // counts it as a failure until it succeeds; nil if it does not
	over      atomic.Bool
}

// charge is one unit of a budget.
type charge struct {
	budget Budget
	event  string
}

// begin charges an attempt. Its success gives back the charges, and clears some budgets wholly.
func (g *Guard) begin(ctx context.Context, charges []charge, cleared ...charge) (*Attempt, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("slidegate: login: nothing was charged: %w", err)
	}
	ctx, cancel := g.begun(ctx)
	defer cancel()
	joint, err := window.AllowAll(ctx, g.checks(charges)...)
	if len(joint.Decisions) == 0 {
		return nil, err
	}
	a := &Attempt{Allowed: joint.Allowed, RetryAfter: joint.RetryAfter, guard: g, charges: charges, cleared: cleared, decisions: joint.Decisions}
	a.answer()
	return a, err
}

// checks returns what is asked about charges. What is asked together with the one before it hurts nobody while it is charged for a moment: the pair is
// the attacker's own, like the address, and the total holds no more for unknown devices than the account admitted before.
func (g *Guard) checks(charges []charge) []window.Check {
	checks := make([]window.Check, len(charges))
	for i, c := range charges {
		together := c.budget == Pair || c.budget == ChallengedPair || c.budget == Total && charges[i-1].budget != Device
		checks[i] = window.Check{Limiter: g.limiters[c.budget], Event: c.event, Together: together}
	}
	return checks
}

// begun returns a context that the caller cannot end: a client does that when it hangs up, or by a deadline that it chose. Config.Timeout ends
// each round trip. Only without one, the deadline of ctx stays.
func (g *Guard) begun(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	detached := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok && g.untimed {
		return context.WithDeadline(detached, deadline)
	}
	return detached, func() {}
}

// answer puts the decisions into words.
func (a *Attempt) answer() {
	last := len(a.decisions) - 1
	a.Left = a.decisions[last].Remaining
	for _, d := range a.decisions {
		a.Left, a.Degraded = min(a.Left, d.Remaining), a.Degraded || d.Degraded
		for _, u := range d.Usage {
			a.Next = max(a.Next, u.RetryAfter)
		}
	}
	if !a.Allowed {
		a.Denied, a.Left, a.Next = a.charges[last].budget, 0, 0
		a.over.Store(true)
	}
}

// Succeed says that the password was right. It gives back what the attempt was charged, and forgets the failures of the pair, or of the
// known device, and the streak, with those of challenged attempts. What stays are the failures charged to the address, lest an attacker who has an account clears them
// by logging in, and those charged to the account, lest each login of its owner gives an attacker new guesses.
//
// It works also when ctx has ended, and takes 5 s at most. An error says what could not be given back or cleared, and stays: log it, and let the user in all the same. Of Succeed
// and Cancel only the first call does something, and neither does after a denial.
func (a *Attempt) Succeed(ctx context.Context) error { return a.end(ctx, a.cleared) }

// Cancel gives back what the attempt was charged, as if it had not been made: the password was not looked at, such as because the
// database did not answer. A wrong password is no reason, nor a user who went away. Where another attempt has succeeded since it began, and
// a later one failed, it can take back one failure of that pair, streak or device. Else it is as Succeed.
func (a *Attempt) Cancel(ctx context.Context) error { return a.end(ctx, nil) }

// end gives back the charges, except those to budgets that it clears, unless the attempt is over.
func (a *Attempt) end(ctx context.Context, cleared []charge) error {
	if a.guard == nil || a.over.Swap(true) { // without a guard it is a stand-in for one, as in a test
		return nil
	}
	if a.site != nil {
		a.site.failures.Add(-1)
	}
	ctx = context.WithoutCancel(ctx)
	if !a.guard.inMemory {
		timed, cancel := context.WithTimeout(ctx, endTime)
		defer cancel()
		ctx = timed
	}
	charged := len(a.charges)
	return a.guard.sideBySide(charged+len(cleared), func(i int) error {
		switch {
		case i >= charged:
			return a.guard.clear(ctx, cleared[i-charged])
		case slices.Contains(cleared, a.charges[i]):
			return nil
		}
		return a.refund(ctx, i)
	})
}

// refund gives back the i-th charge.
func (a *Attempt) refund(ctx context.Context, i int) error {
	c := a.charges[i]
	if err := a.guard.limiters[c.budget].Refund(ctx, c.event, a.decisions[i]); err != nil {
		return fmt.Errorf("slidegate: login: what is charged to the %s stays until it is forgotten, as it could not be given back: %w", c.budget, err)
	}
	return nil
}

// sideBySide calls do for 0 to n-1: at the same time, so that the calls share a round trip, or in memory one after the other.
func (g *Guard) sideBySide(n int, do func(i int) error) error {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		if g.inMemory || i == n-1 {
			errs[i] = do(i)
		} else {
			group.Go(func() { errs[i] = do(i) })
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

// endTime is how long the end of an attempt may take in all, where Timeout does not end it sooner.
const endTime = 5 * time.Second
