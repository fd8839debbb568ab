package ar1

import (
	"context"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/window"
)

// decide answers a request for n units of one event. After an outage, the Fallback answers it. It
// then calls Observe and OnDenied.
func (l *Limiter) decide(ctx context.Context, v limiter.Verb, event string, n int64) (d window.Decision, err error) {
	base, by, began := l.made(), l, time.Time{}
	if l.report.Observe != nil {
		began = time.Now()
	}
	var reply limiter.Reply
	err = base.Decide(ctx, &reply, v, event, n)
	if err != nil && l.fallback != nil {
		by = l.fallback
		err = by.base.DecideInstead(ctx, err, &reply, v, event, n)
	}
	if err == nil {
		by.fill(&d, &reply)
		d.Degraded, d.Cause = by != l, reply.Trace.Failure.Err()
	}
	if l.report.Observe != nil {
		o := window.Observation{Plan: l.plan, Units: n, Decision: d}
		o.Trace.Full = reply.Full
		l.report.Attempt(ctx, base, v, o, reply.Trace, err, began)
	}
	if err == nil && !d.Allowed && v.Denies() {
		denial := window.Denial{Decision: d}
		if u := d.Tightest(); u.Used > 0 { // otherwise there was no room
			denial.Limit = u.Limit
		}
		l.report.Denied(ctx, base, event, reply.Key, denial)
	}
	return d, err
}

// fill writes the reply to d.
func (l *Limiter) fill(d *window.Decision, reply *limiter.Reply) {
	d.Allowed, d.Granted, d.Counted = reply.Allowed, reply.Granted, reply.Counted
	d.At, d.Usage = l.base.Clock.Time(reply.At), make([]window.Usage, len(l.limits))
	for i, limit := range l.limits {
		u := newUsage(limit, reply.Row(i))
		d.Usage[i] = u
		if i == 0 || u.Remaining < d.Remaining {
			d.Remaining = u.Remaining
		}
		if !d.Allowed {
			d.RetryAfter = max(d.RetryAfter, u.RetryAfter)
		}
	}
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
func (l *Limiter) counted(d window.Decision) limiter.Counted {
	c := limiter.Counted{Units: d.Counted, At: l.base.Clock.Unit(d.At)}
	for _, limit := range l.base.Limits() {
		if len(d.Usage) == 0 || slices.ContainsFunc(d.Usage, func(u window.Usage) bool { return u.Limit.Per.Milliseconds() == limit.Per }) {
			c.Limits = append(c.Limits, limit)
		}
	}
	return c
}
