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
	var asked []Check
	var places []int // the index of each asked check in checks
	decisions, denied, retryAfter := make([]Decision, len(checks)), 0, time.Duration(0)
	for i, c := range checks {
		if !c.isFixed() {
			asked, places = append(asked, c), append(places, i)
			continue
		}
		d, err := c.Limiter.AllowN(ctx, c.Event, c.units())
		if err != nil {
			return JointDecision{}, ofCheck(i, err)
		}
		if decisions[i] = d; !d.Allowed {
			denied, retryAfter = i+1, max(retryAfter, d.RetryAfter)
		}
	}
	if denied > 0 {
		return JointDecision{RetryAfter: retryAfter, Decisions: decisions[:denied]}, nil
	}
	d, err := allowAll(ctx, asked, places)
	if d.Decisions != nil {
		d.Decisions = spread(d, places, decisions)
	}
	return d, err
}

// spread adds the decisions of d, whose indices are places, to the decisions on all checks. It
// returns them up to the last check that was decided or, if d is allowed, all of them.
func spread(d JointDecision, places []int, all []Decision) []Decision {
	known := 0
	for k, of := range d.Decisions {
		all[places[k]], known = of, places[k]+1
	}
	if d.Allowed {
		known = len(all)
	}
	return all[:known]
}
