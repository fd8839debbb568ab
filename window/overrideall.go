package window

import (
	"context"
	"time"

	"github.com/slidegate/slidegate/internal/engine"
)

// underAll returns the checks with the limiters that decide on their events: see under.
func underAll(checks []Check) []Check {
	var with []Check
	for i, c := range checks {
		if c.Limiter == nil || c.Limiter.overrides == nil {
			continue
		}
		if by := c.Limiter.under(c.Event); by != c.Limiter {
			if with == nil {
				with = append(with, checks...)
			}
			with[i].Limiter = by
		}
	}
	if with == nil {
		return checks
	}
	return with
}

// isFixed reports whether an override answers the check.
func (c Check) isFixed() bool { return c.Limiter.isFixed(engine.Allow) }

// allowSome decides on checks some of which are fixed: it denies all of them if one is blocked,
// and otherwise asks the others.
func allowSome(ctx context.Context, checks []Check) (JointDecision, error) {
	f := &fixedChecks{checks: checks, decisions: make([]Decision, len(checks))}
	if err := f.fix(ctx); err != nil {
		return JointDecision{}, err
	}
	if f.blocked > 0 {
		return JointDecision{RetryAfter: f.retryAfter, Decisions: f.decisions[:f.blocked]}, nil
	}
	if len(f.asked) == 0 {
		return JointDecision{Allowed: true, Decisions: f.decisions}, nil
	}
	d, err := allowAll(ctx, f.asked, f.places)
	if d.Decisions != nil {
		d.Decisions = f.spread(d)
	}
	return d, err
}

// fixedChecks are checks some of which are fixed.
type fixedChecks struct {
	checks    []Check
	decisions []Decision // about all checks

	asked  []Check // the others, and the index of each
	places []int

	blocked    int // the end of the checks up to the last blocked one; 0 if none is blocked
	retryAfter time.Duration
}

// fix answers the checks that are fixed, and gathers the others. A check that was Together with a
// fixed one is asked Together with the check before that only if the fixed one was Together, too.
func (f *fixedChecks) fix(ctx context.Context) (err error) {
	together := true
	for i, c := range f.checks {
		together = together && c.Together
		if !c.isFixed() {
			c.Together, together = together, true
			f.asked, f.places = append(f.asked, c), append(f.places, i)
			continue
		}
		if f.decisions[i], err = c.Limiter.AllowN(ctx, c.Event, c.units()); err != nil {
			return ofCheck(i, err)
		}
		if d := &f.decisions[i]; !d.Allowed {
			f.blocked, f.retryAfter = i+1, max(f.retryAfter, d.RetryAfter)
		}
	}
	return nil
}

// spread returns the decisions about all checks, up to the last one that was asked, or all if allowed.
func (f *fixedChecks) spread(d JointDecision) []Decision {
	known := 0
	for k, of := range d.Decisions {
		f.decisions[f.places[k]], known = of, f.places[k]+1
	}
	if d.Allowed {
		known = len(f.decisions)
	}
	return f.decisions[:known]
}
