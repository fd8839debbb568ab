package window

import (
	"context"
	"time"

	"github.com/slidegate/slidegate/internal/engine"
)

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
