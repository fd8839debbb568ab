package ar1

import (
	"context"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/window"
)

// decide answers a request. Every decision about one event comes through here.
func (l *Limiter) decide(ctx context.Context, v engine.Verb, event string, n int64) (Decision, error) {
	e, began := l.made(), time.Time{}
	if l.observe != nil {
		began = time.Now()
	}
	reply, err := e.Decide(ctx, v, event, n)
	return l.finish(ctx, v, n, &reply, err, began)
}

// finish makes a Decision of the engine's answer, and calls Observe.
func (l *Limiter) finish(ctx context.Context, v engine.Verb, n int64, reply *engine.Reply, err error, began time.Time) (d Decision, _ error) {
	if err == nil {
		d = l.decision(reply)
	}
	if l.observe != nil {
		l.observe(ctx, Observation{
			Limiter: l.engine.Name, Kind: window.Kind(engine.KindOf(v, d.Allowed, err)), Units: n, Decision: d, Took: time.Since(began), Full: reply.Full,
			InRedis: reply.Trace.InRedis, Merged: reply.Trace.Merged, Batch: reply.Trace.Batch, Remembered: reply.Trace.Remembered, SlotRange: reply.Trace.SlotRange,
		})
	}
	return d, err
}

// decision returns the Decision in a reply.
func (l *Limiter) decision(reply *engine.Reply) Decision {
	limits := l.limits
	if reply.Degraded {
		limits = l.fallback.limits
	}
	d := Decision{
		Allowed: reply.Allowed, Granted: reply.Granted, Counted: reply.Counted, Degraded: reply.Degraded,
		At: l.engine.Clock.Time(reply.At).UTC(), Usage: make([]Usage, len(limits)),
	}
	for i, limit := range limits {
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

// newUsage returns the Usage in a row of a reply: units used, and two waits in ms.
func newUsage(limit Limit, row []int64) Usage {
	return Usage{
		Limit: limit, Used: row[0], Remaining: max(0, limit.Max-row[0]),
		RetryAfter: clock.Milliseconds(row[1]), ResetAfter: clock.Milliseconds(row[2]),
	}
}

// counted returns the units, time and limits of a decision, for a refund. A decision without Usage
// may have counted in any limit.
func (l *Limiter) counted(d Decision) engine.Counted {
	c := engine.Counted{Units: d.Counted, At: l.engine.Clock.Unit(d.At)}
	for _, limit := range l.engine.Limits() {
		if len(d.Usage) == 0 || slices.ContainsFunc(d.Usage, func(u Usage) bool { return u.Limit.Per.Milliseconds() == limit.Per }) {
			c.Limits = append(c.Limits, limit)
		}
	}
	return c
}
