package httplimit

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/slidegate/slidegate/window"
)

// verdict is the decision for a request.
type verdict struct {
	window.Decision
	limiters []string // the limiter's name for each Usage; nil without Checks
}

// limitJointly limits a request by all of its checks.
func (m *Middleware) limitJointly(w http.ResponseWriter, r *http.Request, next http.Handler) {
	checks := m.cfg.Checks(r)
	if len(checks) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	j, err := allowAll(r.Context(), checks)
	switch {
	case err != nil && len(j.Decisions) == 0:
		m.fail(w, r, err, next)
		return
	case err != nil:
		m.cfg.Log.Warn("slidegate: a denied request stays partly counted, because units could not be given back", "err", err)
	}
	v := joint(checks, j)
	m.outages.Record(v.Degraded, v.Cause)
	m.setFields(w.Header(), v)
	if !v.Allowed {
		m.deny(w, r, v, next)
		return
	}
	next.ServeHTTP(w, r)
}

// allowAll calls AllowAll, and continues even if the client disconnects. Otherwise a client could
// disconnect in the middle of AllowAll, so that only some checks count the request and use up
// budgets that it shares with others. The deadline of ctx still applies.
func allowAll(ctx context.Context, checks []window.Check) (window.JointDecision, error) {
	stays := context.WithoutCancel(ctx)
	if deadline, has := ctx.Deadline(); has {
		var cancel context.CancelFunc
		stays, cancel = context.WithDeadline(stays, deadline)
		defer cancel()
	}
	return window.AllowAll(stays, checks...)
}

// joint merges the decisions of all checks into one verdict, which has the limits of all checks and
// the longest wait. Granted and Counted stay 0, because checks can cost different numbers of units.
func joint(checks []window.Check, j window.JointDecision) verdict {
	v := verdict{Decision: window.Decision{Allowed: j.Allowed, RetryAfter: j.RetryAfter}}
	for i, d := range j.Decisions {
		v.Degraded = v.Degraded || d.Degraded
		if v.Cause == nil {
			v.Cause = d.Cause
		}
		if !d.At.IsZero() && (v.At.IsZero() || d.At.Before(v.At)) {
			v.At = d.At
		}
		for _, u := range d.Usage {
			if len(v.Usage) == 0 || u.Remaining < v.Remaining {
				v.Remaining = u.Remaining
			}
			v.Usage, v.limiters = append(v.Usage, u), append(v.limiters, checks[i].Limiter.Name())
		}
	}
	return v
}

// names returns the name by which header fields and problem details refer to each limit: its label.
// With Checks, the limiter's name precedes the label, and a number follows if that name is already
// taken.
func (v *verdict) names() []string {
	names := make([]string, len(v.Usage))
	for i, u := range v.Usage {
		name := u.Limit.Label()
		if v.limiters != nil {
			name = v.limiters[i] + ":" + name
		}
		names[i] = name
		for n := 2; v.limiters != nil && slices.Contains(names[:i], names[i]); n++ {
			names[i] = name + ":" + strconv.Itoa(n)
		}
	}
	return names
}
