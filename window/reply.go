package window

import (
	"context"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/internal/outage"
)

// decide answers a request for n units of one event.
func (l *Limiter) decide(ctx context.Context, v engine.Verb, event string, n int64) (d Decision, err error) {
	var began time.Time
	var reply engine.Reply
	if l.made(); l.observe != nil {
		began = time.Now()
	}
	by := l.under(event, n)
	if by.isFixed(v) {
		return by.fix(ctx, v, event, n, began)
	}
	err = by.engine.Decide(ctx, &reply, v, event, n)
	err = by.finish(ctx, &d, v, event, n, &reply, err, began)
	return d, err
}

// finish writes the reply or, after an outage, the reply of the Fallback to d. It then calls
// Observe and OnDenied.
func (l *Limiter) finish(ctx context.Context, d *Decision, v engine.Verb, event string, n int64, reply *engine.Reply, err error, began time.Time) error {
	by := l
	if err != nil {
		by = l.degraded()
		err = outage.Decide(ctx, err, reply, by, func(ctx context.Context, f *Limiter) error { return f.engine.Decide(ctx, reply, v, event, n) })
	}
	if err = l.conclude(ctx, d, v, n, by, reply, err, began); err == nil {
		l.denied(ctx, v, event, reply.Key, d)
	}
	return err
}

// conclude writes the reply of by, which is l or its Fallback, to d, and calls Observe.
func (l *Limiter) conclude(ctx context.Context, d *Decision, v engine.Verb, n int64, by *Limiter, reply *engine.Reply, err error, began time.Time) error {
	if err == nil {
		by.fill(d, n, reply)
		d.Degraded, d.Cause = by != l, reply.Trace.Failure.Err()
		l.mark(d)
	}
	l.report(ctx, d, v, n, reply, err, began)
	return err
}

// mark records in d whether an override replaced the limits. RetryAfter is then at most the time
// until the override ends.
func (l *Limiter) mark(d *Decision) {
	if l.override != nil && l.override.mode == OverrideLimits {
		d.Override, d.RetryAfter = OverrideLimits, min(d.RetryAfter, l.wait)
	}
}

// report calls Observe.
func (l *Limiter) report(ctx context.Context, d *Decision, v engine.Verb, n int64, reply *engine.Reply, err error, began time.Time) {
	if l.observe == nil {
		return
	}
	o := Observation{
		Limiter: l.engine.Name, Plan: l.plan, Kind: Kind(engine.KindOf(v, d.Allowed, err)), Units: n, Decision: *d, Took: time.Since(began),
		Err: reply.Trace.Failure.Err(),
	}
	o.Trace.InRedis, o.Trace.Merged, o.Trace.Batch, o.Trace.Master = reply.Trace.InRedis, reply.Trace.Merged, reply.Trace.Batch, reply.Trace.Master
	o.Trace.Remembered, o.Trace.Full = reply.Remembered, reply.Full
	l.observe(ctx, o)
}

// degraded returns the Fallback with the limits that it uses when it decides for l, or nil if there
// is no Fallback.
func (l *Limiter) degraded() *Limiter {
	if l.fallback == nil || !l.derived {
		return l.fallback
	}
	return &Limiter{engine: l.fallback.engine.Under(l.engine.Limits()), limits: l.limits, observe: l.fallback.observe}
}

// fill writes the reply to a request for n units to d.
func (l *Limiter) fill(d *Decision, n int64, reply *engine.Reply) {
	d.Allowed, d.Granted, d.Counted = reply.Allowed, reply.Granted, reply.Counted
	d.At, d.Usage = l.engine.Clock.Time(reply.At), make([]Usage, len(l.limits))
	for i := range l.limits {
		u := &d.Usage[i]
		u.set(&l.limits[i], reply.Row(i))
		if i == 0 || u.Remaining < d.Remaining {
			d.Remaining = u.Remaining
		}
		if reply.Granted < n {
			d.RetryAfter = max(d.RetryAfter, u.RetryAfter)
		}
	}
}

// set sets u from the limit and its row in a reply: the units used, RetryAfter and ResetAfter in
// ms.
func (u *Usage) set(limit *Limit, row []int64) {
	u.Limit, u.Used, u.Remaining = *limit, row[0], max(0, limit.Max-row[0])
	u.RetryAfter, u.ResetAfter = clock.Milliseconds(row[1]), clock.Milliseconds(row[2])
}

// counted returns the units, time and limits of d, for a refund. If d has no Usage, it may have
// counted in any limit.
func (l *Limiter) counted(d Decision) engine.Counted {
	all := l.engine.Limits()
	if d.Override == OverrideLimits {
		var limits []Limit
		for _, u := range d.Usage {
			limits = append(limits, u.Limit)
		}
		all = appendEngine(nil, limits, l.engine.CountDenied)
	}
	c := engine.Counted{Units: d.Counted, At: l.engine.Clock.Unit(d.At), Limits: all}
	if len(d.Usage) > 0 && !slices.EqualFunc(d.Usage, all, isOf) {
		c.Limits = slices.DeleteFunc(slices.Clone(all), func(limit engine.Limit) bool {
			return !slices.ContainsFunc(d.Usage, func(u Usage) bool { return isOf(u, limit) })
		})
	}
	return c
}

// isOf reports whether u is the usage of a limit that has the same Per as the given limit.
func isOf(u Usage, limit engine.Limit) bool { return u.Limit.Per.Milliseconds() == limit.Per }
