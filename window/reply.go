package window

import (
	"context"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/limiter"
)

// A request asks for n units of one event.
type request struct {
	verb  limiter.Verb
	event string
	n     int64
	began time.Time // for Observe; zero if there is none
}

// decide answers a request for n units of the event, and calls Observe and OnDenied.
func (l *Limiter) decide(ctx context.Context, v limiter.Verb, event string, n int64) (d Decision, err error) {
	l.made()
	r := request{verb: v, event: event, n: n}
	if l.observe != nil {
		r.began = time.Now()
	}
	by := l.under(event, n)
	var reply limiter.Reply
	if by.isFixed(v) {
		d, err = by.fixed(ctx, &r)
	} else {
		err = by.base.Decide(ctx, &reply, v, event, n)
		err = by.conclude(ctx, &r, &reply, err, &d)
	}
	by.report(ctx, &r, &reply, err, &d)
	return d, err
}

// conclude writes the reply to d. If there is none because of an outage, the Fallback decides, and
// conclude writes its reply instead.
func (l *Limiter) conclude(ctx context.Context, r *request, reply *limiter.Reply, err error, d *Decision) error {
	by := l
	if err != nil && l.fallback != nil {
		by = l.degraded()
		err = by.base.DecideInstead(ctx, err, reply, r.verb, r.event, r.n)
	}
	if err == nil {
		l.fill(d, by, reply, r.n)
	}
	return err
}

// degraded returns the Fallback with the limits that it uses when it decides for l.
func (l *Limiter) degraded() *Limiter {
	if !l.derived {
		return l.fallback
	}
	return &Limiter{base: l.fallback.base.Under(l.base.Limits()), limits: l.limits}
}

// fill writes the reply to a request for n units to d. The reply comes from by: that is l or its
// Fallback.
func (l *Limiter) fill(d *Decision, by *Limiter, reply *limiter.Reply, n int64) {
	d.Allowed, d.Granted, d.Counted = reply.Allowed, reply.Granted, reply.Counted
	d.At, d.Usage = by.base.Clock.Time(reply.At), make([]Usage, len(by.limits))
	d.Degraded, d.Cause = by != l, reply.Trace.Failure.Err()
	for i := range by.limits {
		u := &d.Usage[i]
		u.set(&by.limits[i], reply.Row(i))
		if i == 0 || u.Remaining < d.Remaining {
			d.Remaining = u.Remaining
		}
		if reply.Granted < n {
			d.RetryAfter = max(d.RetryAfter, u.RetryAfter)
		}
	}
	if l.override != nil && l.override.Mode == OverrideLimits {
		d.Override, d.RetryAfter = OverrideLimits, min(d.RetryAfter, l.wait)
	}
}

// set sets u from the limit and its row in a reply: the units used, RetryAfter and ResetAfter in
// ms.
func (u *Usage) set(limit *Limit, row []int64) {
	u.Limit, u.Used, u.Remaining = *limit, row[0], max(0, limit.Max-row[0])
	u.RetryAfter, u.ResetAfter = clock.Milliseconds(row[1]), clock.Milliseconds(row[2])
}

// report calls Observe and, if the request was denied, OnDenied.
func (l *Limiter) report(ctx context.Context, r *request, reply *limiter.Reply, err error, d *Decision) {
	if l.observe != nil {
		o := Observation{
			Limiter: l.base.Name, Plan: l.plan, Kind: Kind(limiter.KindOf(r.verb, d.Allowed, err)), Units: r.n, Decision: *d, Took: time.Since(r.began),
			Err: reply.Trace.Failure.Err(),
		}
		o.Trace.InRedis, o.Trace.Merged, o.Trace.Batch, o.Trace.Master = reply.Trace.InRedis, reply.Trace.Merged, reply.Trace.Batch, reply.Trace.Master
		o.Trace.Remembered, o.Trace.Full = reply.Remembered, reply.Full
		l.observe(ctx, o)
	}
	if err == nil && !d.Allowed && r.verb.Denies() {
		l.denied(ctx, r.event, reply.Key, d)
	}
}

// counted returns the units, time and limits of d, for a refund. If d has no Usage, it may have
// counted in any limit.
func (l *Limiter) counted(d Decision) limiter.Counted {
	c := limiter.Counted{Units: d.Counted, At: l.base.Clock.Unit(d.At), Limits: l.base.Limits()}
	switch {
	case d.Override == OverrideLimits:
		c.Limits = nil
		for _, u := range d.Usage {
			c.Limits = appendLimits(c.Limits, []Limit{u.Limit}, l.base.CountDenied)
		}
	case len(d.Usage) > 0 && !slices.EqualFunc(d.Usage, c.Limits, isOf):
		c.Limits = slices.DeleteFunc(slices.Clone(c.Limits), func(limit limiter.Limit) bool {
			return !slices.ContainsFunc(d.Usage, func(u Usage) bool { return isOf(u, limit) })
		})
	}
	return c
}

// isOf reports whether u is the usage of a limit that has the same Per as the given limit.
func isOf(u Usage, limit limiter.Limit) bool { return u.Limit.Per.Milliseconds() == limit.Per }
