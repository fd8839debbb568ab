package httplimit

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/slidegate/slidegate/window"
)

// verdict is the decision about a request.
type verdict struct {
	window.Decision
	limiters []string // with Checks: the name of the limiter for each Usage
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
	m.outages.Note(m.cfg.Log, string(m.cfg.Outage), v.Degraded, v.Cause)
	m.setFields(w.Header(), v)
	if !v.Allowed {
		m.deny(w, r, v, next)
		return
	}
	next.ServeHTTP(w, r)
}

// allowAll decides on checks, even if the client disconnects. Otherwise a client could disconnect
// in the middle of AllowAll, so that only some checks count it and others' budgets are used up. The
// deadline of ctx still applies.
func allowAll(ctx context.Context, checks []window.Check) (window.JointDecision, error) {
	stays := context.WithoutCancel(ctx)
	if deadline, has := ctx.Deadline(); has {
		var cancel context.CancelFunc
		stays, cancel = context.WithDeadline(stays, deadline)
		defer cancel()
	}
	return window.AllowAll(stays, checks...)
}

// joint merges the decisions on all checks into one, with the limits of all of them and the longest
// wait. Granted and Counted stay 0, because checks can cost different numbers of units.
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
		v.add(checks[i].Limiter.Name(), d)
	}
	return v
}

// add adds the limits of one check.
func (v *verdict) add(limiter string, d window.Decision) {
	for _, u := range d.Usage {
		if len(v.Usage) == 0 || u.Remaining < v.Remaining {
			v.Remaining = u.Remaining
		}
		v.Usage, v.limiters = append(v.Usage, u), append(v.limiters, limiter)
	}
}

// names returns the name of each limit in fields and problems, which is its label. With Checks, the
// name of the limiter precedes it, and a number follows it if the name occurs again.
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
