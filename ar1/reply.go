package ar1

import (
	"context"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/internal/outage"
	"github.com/slidegate/slidegate/internal/pipeline"
	"github.com/slidegate/slidegate/window"
)

// decide answers a request for n units of one event.
func (l *Limiter) decide(ctx context.Context, v engine.Verb, event string, n int64) (window.Decision, error) {
	e, began := l.made(), time.Time{}
	if l.observe != nil {
		began = time.Now()
	}
	var reply engine.Reply
	err := e.Decide(ctx, &reply, v, event, n)
	return l.finish(ctx, v, event, n, &reply, err, began)
}

// finish converts the reply or, after an outage, the reply of the Fallback to a Decision. It then
// calls Observe and OnDenied.
func (l *Limiter) finish(ctx context.Context, v engine.Verb, event string, n int64, reply *engine.Reply, err error, began time.Time) (d window.Decision, _ error) {
	by, key, trace := l, reply.Key, reply.Trace
	if err != nil {
		by, trace.Failure = l.fallback, pipeline.FailureIn(err)
		err = outage.Ask(ctx, err, by, func(ctx context.Context, f *Limiter) error { return f.engine.Decide(ctx, reply, v, event, n) })
	}
	if err == nil {
		d = by.decision(reply)
		d.Degraded, d.Cause = by != l, trace.Failure.Err()
	}
	if l.observe != nil {
		l.observe(ctx, window.Observation{
			Limiter: l.engine.Name, Plan: l.plan, Kind: window.Kind(engine.KindOf(v, d.Allowed, err)), Units: n, Decision: d, Took: time.Since(began), Full: reply.Full,
			InRedis: trace.InRedis,
			Trace:   window.Trace{Merged: trace.Merged, Batch: trace.Batch, Remembered: reply.Remembered, SlotRange: trace.SlotRange},
			Reason:  window.Reason(trace.Failure.Reason()), Err: trace.Failure.Err(),
		})
	}
	if err == nil {
		l.denied(ctx, v, event, key, d)
	}
	return d, err
}

// denied calls OnDenied if d is a denial, as in window.
func (l *Limiter) denied(ctx context.Context, v engine.Verb, event, key string, d window.Decision) {
	if d.Allowed || l.onDenied == nil || !v.Denies() {
		return
	}
	denial := window.Denial{Limiter: l.engine.Name, RetryAfter: d.RetryAfter, At: d.At}
	denial.Event, denial.Hashed = l.engine.Shown(event, key)
	if u := d.Tightest(); u.Used > 0 { // otherwise there was no room
		denial.Limit = u.Limit
	}
	l.onDenied(ctx, denial)
}

// decision converts a reply to a Decision.
func (l *Limiter) decision(reply *engine.Reply) window.Decision {
	d := window.Decision{
		Allowed: reply.Allowed, Granted: reply.Granted, Counted: reply.Counted,
		At: l.engine.Clock.Time(reply.At), Usage: make([]window.Usage, len(l.limits)),
	}
	for i, limit := range l.limits {
		u := newUsage(limit, reply.Row(i))
		if d.Usage[i] = u; i == 0 || u.Remaining < d.Remaining {
			d.Remaining = u.Remaining
		}
		if !d.Allowed {
			d.RetryAfter = max(d.RetryAfter, u.RetryAfter)
		}
	}
	return d
}

// newUsage returns the Usage of the limit from its row in a reply: the units used, RetryAfter and
// ResetAfter in ms.
func newUsage(limit window.Limit, row []int64) window.Usage {
	return window.Usage{
		Limit: limit, Used: row[0], Remaining: max(0, limit.Max-row[0]),
		RetryAfter: clock.Milliseconds(row[1]), ResetAfter: clock.Milliseconds(row[2]),
	}
}

// counted returns the units, time and limits of d, for a refund. If d has no Usage, it may have
// counted in any limit.
func (l *Limiter) counted(d window.Decision) engine.Counted {
	c := engine.Counted{Units: d.Counted, At: l.engine.Clock.Unit(d.At)}
	for _, limit := range l.engine.Limits() {
		if len(d.Usage) == 0 || slices.ContainsFunc(d.Usage, func(u window.Usage) bool { return u.Limit.Per.Milliseconds() == limit.Per }) {
			c.Limits = append(c.Limits, limit)
		}
	}
	return c
}
