// Package report calls Observe and OnDenied for the limiters of ar1, pace and inflight. Package
// window, which owns the types that they receive, does so itself.
package report

import (
	"cmp"
	"context"
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/internal/send"
	"github.com/slidegate/slidegate/window"
)

// To holds the functions of a limiter's Config that receive reports. Each of them may be nil.
type To struct {
	Observe  func(context.Context, window.Observation)
	OnDenied func(context.Context, window.Denial)
}

// Outages returns the limiter.Config.Notify of the limiter with the given name: it calls Observe when
// an outage starts or ends. It returns nil if there is no Observe.
func (to To) Outages(name string) health.Report {
	if to.Observe == nil {
		return nil
	}
	return func(ctx context.Context, kind string, failure *health.Failure) {
		to.Observe(ctx, window.Observation{Limiter: name, Kind: window.Kind(kind), Err: failure.Err()})
	}
}

// Attempt calls Observe, if there is one, after an attempt or a peek that began at the given time.
// The caller sets the Plan, Units, Decision and Trace.Full of o.
func (to To) Attempt(ctx context.Context, l *limiter.Limiter, v limiter.Verb, o window.Observation, trace send.Trace, err error, began time.Time) {
	if to.Observe == nil {
		return
	}
	o.Limiter, o.Kind, o.Took = l.Name, window.Kind(limiter.KindOf(v, o.Decision.Allowed, err)), time.Since(began)
	o.Err = health.FailureIn(cmp.Or(err, o.Decision.Cause)).Err()
	o.Trace.InRedis, o.Trace.Merged, o.Trace.Batch, o.Trace.Master = trace.InRedis, trace.Merged, trace.Batch, trace.Master
	to.Observe(ctx, o)
}

// Denied calls OnDenied, if there is one, after an attempt on the event was denied. The key is that
// of the event, or "" if it has not been computed yet. The caller sets the Limit, RetryAfter and At
// of d.
func (to To) Denied(ctx context.Context, l *limiter.Limiter, event, key string, d window.Denial) {
	if to.OnDenied == nil {
		return
	}
	d.Limiter = l.Name
	d.Event, d.Hashed = l.Shown(event, key)
	to.OnDenied(ctx, d)
}
