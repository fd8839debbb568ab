package login

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/window"
)

// Attempt represents one attempt to log in, and says whether it is allowed. If it is, check the
// password. Then call Succeed if the password is right, Cancel if it could not be checked, and
// nothing if it is wrong.
type Attempt struct {
	// Allowed reports whether to check the password.
	Allowed bool

	// RetryAfter is how long it takes until the budgets that denied could allow the same attempt,
	// or 0 if Allowed. On a cluster, it covers only the first budget that denied, and the budgets
	// in the same hash slot or in memory. The other budgets were not asked, and may still deny the
	// attempt after RetryAfter.
	RetryAfter time.Duration

	// Challenge reports whether a denied attempt would be allowed if the client solved a challenge:
	// see BeginChallenged. It is also false if Redis did not answer when it was asked for this.
	Challenge bool

	// DeniedBy is the first budget that was used up, or "" if Allowed. Log it, but do not show it
	// to the user.
	DeniedBy Budget

	// Remaining is how many more failures the budgets of this attempt allow now, or 0 if denied.
	// Once a known device has used up its failures, it still has those of an unknown device.
	Remaining int64

	// NextWait is how long the next attempt has to wait at most if this one fails. It is 0 if there
	// is no wait, or if this attempt is denied.
	NextWait time.Duration

	// Degraded reports whether the Fallback decided, at least in part.
	Degraded bool

	// Cause says why Redis did not answer for the first budget that the Fallback decided, as in
	// window.Decision. It is nil if the Fallback decided nothing.
	Cause error `json:"-"`

	guard     *Guard
	method    methods // the method that began the attempt
	who       subject
	charges   []charge
	decisions []window.Decision
	alarm     *siteAlarm // counts the attempt as a failure until it ends; nil if it is not counted
	ended     atomic.Bool
}

// begin charges an attempt that was made with the given method.
func (g *Guard) begin(ctx context.Context, method methods, who subject) (*Attempt, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("slidegate: login: nothing was charged: %w", err)
	}
	ctx, cancel := g.detach(ctx)
	defer cancel()
	charges := g.charges(method.asks, who)
	checks := make([]window.Check, len(charges))
	for i, c := range charges {
		checks[i] = window.Check{Limiter: c.limiter, Event: c.event}
	}
	joint, err := window.AllowAll(ctx, checks...)
	if len(joint.Decisions) == 0 {
		return nil, g.explain(err)
	}
	a := &Attempt{
		Allowed: joint.Allowed, RetryAfter: joint.RetryAfter, Remaining: math.MaxInt64,
		guard: g, method: method, who: who, charges: charges, decisions: joint.Decisions,
	}
	for i, d := range a.decisions {
		a.Remaining, a.Degraded = min(a.Remaining, d.Remaining), a.Degraded || d.Degraded
		if a.Cause == nil {
			a.Cause = g.explain(d.Cause)
		}
		for _, u := range d.Usage {
			a.NextWait = max(a.NextWait, u.RetryAfter)
		}
		if !d.Allowed && a.DeniedBy == "" {
			a.DeniedBy = charges[i].name
		}
	}
	if !a.Allowed {
		a.Remaining, a.NextWait = 0, 0
		a.ended.Store(true)
	}
	return a, g.explain(err)
}

// detach returns a context that the caller cannot cancel. Otherwise, a client could cancel it by
// hanging up, or by choosing a deadline. Config.Timeout ends each round trip. If Config.Timeout is
// negative, the deadline of ctx is kept.
func (g *Guard) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	detached := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok && g.noTimeout {
		return context.WithDeadline(detached, deadline)
	}
	return detached, func() {}
}

// Succeed records that the password was right. It gives back the charges of this attempt. It also
// resets the budgets of the account's streak, of the pair, and of the known device, including those
// of challenged attempts.
//
// Earlier failures of the address stay charged, because otherwise an attacker could clear them by
// logging into an account of their own. Earlier failures on the account stay charged, because
// otherwise each login by the owner would give an attacker new guesses.
//
// Succeed works even if ctx is done, and takes at most 5 s. An error names the budgets whose
// charges could not be given back or reset. These charges stay: log the error, and let the user in.
// Only the first call of Succeed or Cancel has an effect. After a denial, neither method has an
// effect.
func (a *Attempt) Succeed(ctx context.Context) error { return a.end(ctx, a.method) }

// Cancel gives back the charges of this attempt, as if it had not been made. Call it if the
// password could not be checked, for example because the database did not answer. Do not call it
// after a wrong password, or because the client has gone away.
//
// If another attempt has succeeded since this one began, and a third one has failed after that,
// Cancel can give back the failure of the third attempt from the pair, the streak or the device.
// Like Succeed, Cancel works even if ctx is done, and takes at most 5 s. An error names the budgets
// whose charges stay.
func (a *Attempt) Cancel(ctx context.Context) error { return a.end(ctx, 0) }

// end gives back the charges and resets the budgets that success clears, unless the attempt has
// already ended.
func (a *Attempt) end(ctx context.Context, success methods) error {
	if a.guard == nil || a.ended.Swap(true) { // an Attempt without a guard is a stub in a user's test
		return nil
	}
	if a.alarm != nil {
		a.alarm.failures.Add(-1)
	}
	var back []undo
	for i, c := range a.charges {
		if !success.clears(c.budget) { // otherwise it is reset
			back = append(back, undo{c, window.Undo{Limiter: c.limiter, Event: c.event, Decision: a.decisions[i]}})
		}
	}
	return a.guard.undo(ctx, append(back, resets(a.guard.charges(success.clears, a.who))...))
}

// undo gives back a charge or, if it is a reset, all charges to its event key.
type undo struct {
	charge
	window.Undo
}

// resets returns, for each charge in all, an undo that gives back all charges to its event key.
func resets(all []charge) (undos []undo) {
	for _, c := range all {
		undos = append(undos, undo{c, window.Undo{Limiter: c.limiter, Event: c.event, Reset: true}})
	}
	return undos
}

// undo gives back charges, even if ctx is done, in one round trip and at most 5 s.
func (g *Guard) undo(ctx context.Context, undos []undo) error {
	ctx, cancel := calls.Finish(ctx)
	defer cancel()
	all := make([]window.Undo, len(undos))
	for i, u := range undos {
		all[i] = u.Undo
	}
	errs := window.UndoAll(ctx, all...)
	for i, u := range undos {
		switch {
		case errs[i] == nil:
		case u.Reset:
			errs[i] = fmt.Errorf("slidegate: login: cannot forget what is charged to the %s: %w", u.name, errs[i])
		default:
			errs[i] = fmt.Errorf("slidegate: login: cannot give back what is charged to the %s, so it stays until its window is over: %w", u.name, errs[i])
		}
	}
	return g.explain(errors.Join(errs...))
}
