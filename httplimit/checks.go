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
	limiters []string // of Checks: the name of the limiter for each Usage
}

// limitJointly asks the limiters of all checks about a request.
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
		m.cfg.Log.Warn("slidegate: a denied request stays counted in part, because units could not be given back", "err", err)
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

// allowAll decides about checks, even if the client leaves. Otherwise a client could leave while
// AllowAll asks, to get some units back and use up those of others. The deadline of ctx holds.
func allowAll(ctx context.Context, checks []window.Check) (window.JointDecision, error) {
	stays := context.WithoutCancel(ctx)
	if deadline, has := ctx.Deadline(); has {
		var cancel context.CancelFunc
		stays, cancel = context.WithDeadline(stays, deadline)
		defer cancel()
	}
	return window.AllowAll(stays, checks...)
}

// joint returns the decisions about all checks as one. It has the limits of all, and the longest
// wait. Granted and Counted stay 0, because the units of checks differ.
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

// names returns a name for each limit, by which fields and problems call it: its label. Of Checks,
// the name of the limiter stands before it, and if it occurs again, a number after it.
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
