package ar1

import (
	"context"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/internal/outage"
	"github.com/slidegate/slidegate/window"
)

// decide answers a request for n units of one event. After an outage, the Fallback answers it. It
// then calls Observe and OnDenied.
func (l *Limiter) decide(ctx context.Context, v engine.Verb, event string, n int64) (d window.Decision, err error) {
	e, by, began := l.made(), l, time.Time{}
	if l.report.Observe != nil {
		began = time.Now()
	}
	var reply engine.Reply
	if err = e.Decide(ctx, &reply, v, event, n); err != nil {
		by = l.fallback
		err = outage.Decide(ctx, err, &reply, by, func(ctx context.Context, f *Limiter) error {
			return f.engine.Decide(ctx, &reply, v, event, n)
		})
	}
	if err == nil {
		by.fill(&d, &reply)
		d.Degraded, d.Cause = by != l, reply.Trace.Failure.Err()
	}
	if l.report.Observe != nil {
		o := window.Observation{Plan: l.plan, Units: n, Decision: d}
		o.Trace.Full = reply.Full
		l.report.Attempt(ctx, e, v, o, reply.Trace, err, began)
	}
	if err == nil && !d.Allowed && v.Denies() {
		l.denied(ctx, event, reply.Key, &d)
	}
	return d, err
}

// denied calls OnDenied for the denial d.
func (l *Limiter) denied(ctx context.Context, event, key string, d *window.Decision) {
	denial := window.Denial{Decision: *d}
	if u := d.Tightest(); u.Used > 0 { // otherwise there was no room
		denial.Limit = u.Limit
	}
	l.report.Denied(ctx, l.engine, event, key, denial)
}

// fill writes the reply to d.
func (l *Limiter) fill(d *window.Decision, reply *engine.Reply) {
	d.Allowed, d.Granted, d.Counted = reply.Allowed, reply.Granted, reply.Counted
	d.At, d.Usage = l.engine.Clock.Time(reply.At), make([]window.Usage, len(l.limits))
	for i, limit := range l.limits {
		u := newUsage(limit, reply.Row(i))
		if d.Usage[i] = u; i == 0 || u.Remaining < d.Remaining {
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
func (l *Limiter) counted(d window.Decision) engine.Counted {
	c := engine.Counted{Units: d.Counted, At: l.engine.Clock.Unit(d.At)}
	for _, limit := range l.engine.Limits() {
		if len(d.Usage) == 0 || slices.ContainsFunc(d.Usage, func(u window.Usage) bool { return u.Limit.Per.Milliseconds() == limit.Per }) {
			c.Limits = append(c.Limits, limit)
		}
	}
	return c
}
