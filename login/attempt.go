package login

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/window"
)

// Attempt is one attempt to log in, and the answer whether it may be made.
type Attempt struct {
	Allowed    bool          // the password may be looked at
	RetryAfter time.Duration // how soon the same attempt could be allowed; 0 if Allowed
	Denied     Budget        // which was used up; empty if Allowed. It is for logs, and not for the user
	Left       int64         // how many more failures are allowed now; 0 if denied
	Degraded   bool          // decided by the Fallback, in part at least

	checks  []window.Check
	joint   window.Joint
	budgets []Budget
	over    atomic.Bool
}

// charge is what an attempt costs one unit of.
type charge struct {
	budget Budget
	event  string
}

func (g *Guard) begin(ctx context.Context, charges ...charge) (*Attempt, error) {
	a := &Attempt{}
	for _, c := range charges {
		a.budgets = append(a.budgets, c.budget)
		a.checks = append(a.checks, window.Check{Limiter: g.limiters[c.budget], Event: c.event, N: 1})
	}
	var err error
	a.joint, err = window.AllowAll(ctx, a.checks...)
	if len(a.joint.Decisions) == 0 {
		return nil, err
	}
	a.answer()
	return a, err
}

// answer puts the decisions into words.
func (a *Attempt) answer() {
	last := len(a.joint.Decisions) - 1
	a.Allowed, a.RetryAfter = a.joint.Allowed, a.joint.RetryAfter
	if !a.Allowed {
		a.Denied = a.budgets[last]
		a.over.Store(true)
	}
	a.Left = a.joint.Decisions[last].Remaining
	for _, d := range a.joint.Decisions {
		a.Left, a.Degraded = min(a.Left, d.Remaining), a.Degraded || d.Degraded
	}
}

// Succeed says that the password was right. It gives back what the attempt was charged, and forgets the failures of the pair, or of the
// known device, and the streak. What stays are the failures charged to the address, lest an attacker who has an account clears them
// by logging in, and those charged to the account, lest each login of its owner gives an attacker new guesses.
//
// It works also when ctx has ended. An error says what could not be given back: log it, and let the user in all the same. Of Succeed
// and Cancel only the first call does something, and neither does after a denial.
func (a *Attempt) Succeed(ctx context.Context) error {
	return a.end(ctx, func(budget Budget) bool { return budget == Pair || budget == Streak || budget == Device })
}

// Cancel gives back what the attempt was charged, as if it had not been made: the password was not looked at, such as because the
// database did not answer. A wrong password is no reason, nor a user who went away. Else it is as Succeed.
func (a *Attempt) Cancel(ctx context.Context) error {
	return a.end(ctx, func(Budget) bool { return false })
}

// end gives back what was charged, and all of a budget that it clears, side by side.
func (a *Attempt) end(ctx context.Context, clears func(Budget) bool) error {
	if a.over.Swap(true) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	errs := make([]error, len(a.checks))
	var group sync.WaitGroup
	for i, c := range a.checks {
		group.Go(func() {
			if clears(a.budgets[i]) {
				errs[i] = c.Limiter.Reset(ctx, c.Event)
			} else {
				errs[i] = c.Limiter.Refund(ctx, c.Event, a.joint.Decisions[i])
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// endTime is how long the end of an attempt may take in all, where Timeout does not end it sooner.
const endTime = 5 * time.Second
