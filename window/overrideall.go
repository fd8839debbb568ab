package window

import (
	"context"
	"time"

	"github.com/slidegate/slidegate/internal/engine"
)

// underAll replaces the limiter of each check with the limiter that decides on its event: see
// under. It does not modify checks.
func underAll(checks []Check) []Check {
	var with []Check
	for i, c := range checks {
		if c.Limiter == nil || c.Limiter.under(c.Event, 1) == c.Limiter {
			continue
		}
		if by := c.Limiter.under(c.Event, total(checks[:i+1])); by != c.Limiter { // it may have ended meanwhile
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

// total returns how many units the last of the checks and those before it ask for, under the same
// overrides and of the same event.
func total(checks []Check) (n int64) {
	last := checks[len(checks)-1]
	for _, c := range checks {
		if c.Event == last.Event && c.Limiter != nil && c.Limiter.overrides == last.Limiter.overrides && n <= maxUnits {
			n += c.units()
		}
	}
	return n
}

// isFixed reports whether an override answers the check.
func (c Check) isFixed() bool { return c.Limiter.isFixed(engine.Allow) }

// allowSome decides on checks some of which are answered by overrides. If an override denies one of
// the checks, it denies the call. Otherwise it asks the checks that no override answers.
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

// fixedChecks holds checks some of which are answered by overrides.
type fixedChecks struct {
	checks    []Check
	decisions []Decision // on all checks

	asked  []Check // the checks that no override answers, and the index of each in checks
	places []int

	blocked    int // the index after the last check that an override denies; 0 if there is none
	retryAfter time.Duration
}

// fix answers the checks that have an override with a fixed answer, and collects the others in
// asked.
func (f *fixedChecks) fix(ctx context.Context) (err error) {
	for i, c := range f.checks {
		if !c.isFixed() {
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

// spread returns the decisions on all checks, up to the last check that was decided. If d is
// allowed, it returns all of them.
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
