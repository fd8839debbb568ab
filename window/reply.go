package window

import (
	"context"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/engine"
)

// decide answers a request. Every decision about one event comes through here.
func (l *Limiter) decide(ctx context.Context, v engine.Verb, event string, n int64) (d Decision, err error) {
	var began time.Time
	var reply engine.Reply
	if l.made(); l.observe != nil {
		began = time.Now()
	}
	err = l.ask(ctx, &reply, v, event, n)
	l.finish(ctx, &d, v, n, &reply, err, began)
	return d, err
}

// ask writes the answer of the engine to r. It asks memory directly, which allocates no Reply.
func (l *Limiter) ask(ctx context.Context, r *engine.Reply, v engine.Verb, event string, n int64) (err error) {
	if l.local == nil || v == engine.Wait {
		*r, err = l.engine.Decide(ctx, v, event, n)
		return err
	}
	if err := l.engine.Check(ctx, v, event, n); err != nil {
		return err
	}
	return l.engine.Wrap(l.local.decide(r, l.engine.Limits(), v, event, min(n, maxUnits)))
}

// finish makes a Decision of the engine's answer, and calls Observe.
func (l *Limiter) finish(ctx context.Context, d *Decision, v engine.Verb, n int64, reply *engine.Reply, err error, began time.Time) {
	if err == nil {
		l.fill(d, n, reply)
	}
	if l.observe != nil {
		l.observe(ctx, Observation{
			Limiter: l.engine.Name, Kind: Kind(engine.KindOf(v, d.Allowed, err)), Units: n, Decision: *d, Took: time.Since(began), Full: reply.Full,
			InRedis: reply.Trace.InRedis, Merged: reply.Trace.Merged, Batch: reply.Trace.Batch, Remembered: reply.Trace.Remembered, SlotRange: reply.Trace.SlotRange,
		})
	}
}

// fill writes the reply to a request for n units to a Decision.
func (l *Limiter) fill(d *Decision, n int64, reply *engine.Reply) {
	limits := l.limits
	if reply.Degraded && !l.engine.Derived() {
		limits = l.fallback.limits
	}
	d.Allowed, d.Granted, d.Counted, d.Degraded = reply.Allowed, reply.Granted, reply.Counted, reply.Degraded
	d.At, d.Usage = utc(reply.At), make([]Usage, len(limits))
	for i := range limits {
		u := &d.Usage[i]
		u.set(&limits[i], reply.Row(i))
		if i == 0 || u.Remaining < d.Remaining {
			d.Remaining = u.Remaining
		}
		if reply.Granted < n {
			d.RetryAfter = max(d.RetryAfter, u.RetryAfter)
		}
	}
}

// set sets a Usage to a row of a reply about a limit: units used, and two waits in ms.
func (u *Usage) set(limit *Limit, row []int64) {
	u.Limit, u.Used, u.Remaining = *limit, row[0], max(0, limit.Max-row[0])
	u.RetryAfter, u.ResetAfter = clock.Milliseconds(row[1]), clock.Milliseconds(row[2])
}

// counted returns the units, time and limits of a decision, for a refund. A decision without Usage
// may have counted in any limit.
func (l *Limiter) counted(d Decision) engine.Counted {
	all := l.engine.Limits()
	c := engine.Counted{Units: d.Counted, At: l.engine.Clock.Unit(d.At), Limits: all}
	if len(d.Usage) > 0 && !slices.EqualFunc(d.Usage, all, isOf) {
		c.Limits = slices.DeleteFunc(slices.Clone(all), func(limit engine.Limit) bool {
			return !slices.ContainsFunc(d.Usage, func(u Usage) bool { return isOf(u, limit) })
		})
	}
	return c
}

// isOf reports whether a Usage is of a limit with the same Per.
func isOf(u Usage, limit engine.Limit) bool { return u.Limit.Per.Milliseconds() == limit.Per }
