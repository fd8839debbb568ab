package inflight

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/window"
)

// mostCalls is the maximum number of calls that a limiter makes at the same time for leases that it
// renews or closes.
const mostCalls = 64

// keep makes round renew a new lease. It returns false if the limiter is closed.
func (c *core) keep(l *Lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return false
	}
	c.held[l] = struct{}{}
	switch {
	case c.timer == nil:
		c.timer = time.AfterFunc(c.ttl/3, c.round)
	case len(c.held) == 1:
		c.timer.Reset(c.ttl / 3)
	}
	return true
}

// round takes a step of each lease, and sets the timer for the next round. It starts the calls for
// leases that are due, and does not wait for them.
func (c *core) round() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	next := now.Add(c.ttl / 3)
	var due []*Lease
	for l := range c.held {
		do, again := l.state.step(now)
		next = earlier(next, again)
		if c.perform(do, l); do == renew {
			due = append(due, l)
		}
	}
	if len(due) > 0 {
		go func() { concurrently(inParts(due), c.ask) }() // only ask changes the tokens of leases that are due
	}
	if len(c.held) > 0 {
		c.timer.Reset(time.Until(next))
	}
}

// perform does with l what its state requires, except to renew it. It calls Redis only in the
// background. c.mu is locked.
func (c *core) perform(do action, l *Lease) {
	switch do {
	case carry:
		c.fallback.store.(*local).carry(l.event, l.state.ref, c.ttl)
	case land:
		_ = c.fallback.store.release(context.Background(), l.event, []ref{l.state.ref})
	case giveUp:
		c.giveUp(l.event, l.state.ref)
	case lose:
		cause := fmt.Errorf("%w: it was not renewed within its TTL of %v", ErrLost, c.ttl)
		if f := l.state.failure; f != nil {
			cause = fmt.Errorf("%w: %w: %v", cause, f.Counted, f.Cause) //nolint:errorlint // a timeout of Redis must not match a timeout of the caller
		}
		c.lost(l, KindLost, cause)
	case overdue:
		c.lost(l, KindOverdue, fmt.Errorf("%w: it was held for MaxHold, which is %v", ErrLost, c.maxHold))
	}
}

// lost reports that a lease is lost, and gives its units back. c.mu is locked.
func (c *core) lost(l *Lease, kind window.Kind, cause error) {
	cause = l.limiter.base.Wrap(cause)
	c.end(l, cause)
	c.giveUp(l.event, l.state.ref)
	c.released(l.event)
	go func() {
		l.cancel()
		if c.report.Observe != nil {
			c.report.Observe(context.Background(), window.Observation{Limiter: l.limiter.base.Name, Kind: kind, Units: l.state.n, Err: cause})
		}
	}()
}

// end forgets a lease that is over. Its contexts must then be canceled. c.mu is locked.
func (c *core) end(l *Lease, cause error) {
	l.cause = cause
	if l.state.degraded {
		_ = c.fallback.store.release(context.Background(), l.event, []ref{l.state.ref})
	}
	if delete(c.held, l); len(c.held) == 0 && c.timer != nil {
		c.timer.Stop()
	}
}

// giveUp releases in the background what Redis may hold under r.
func (c *core) giveUp(event string, r ref) {
	go func() { _ = c.store.release(context.Background(), event, []ref{r}) }()
}

// concurrently calls do for each part, at most mostCalls at the same time.
func concurrently(parts [][]*Lease, do func(part []*Lease)) {
	var calls errgroup.Group
	calls.SetLimit(mostCalls)
	for _, part := range parts {
		calls.Go(func() error { do(part); return nil })
	}
	_ = calls.Wait() // each call returns nil
}

// inParts divides leases into parts. A part has leases of one event, as many as fit into one call. A
// lease that only the Fallback holds is a part of its own.
func inParts(leases []*Lease) (parts [][]*Lease) {
	type room struct {
		part  int
		units int64
	}
	last := map[string]room{} // the last part of each event, and the room in it
	for _, l := range leases {
		in := last[l.event]
		if l.state.token == 0 || in.units < l.state.n {
			in = room{len(parts), mostUnits}
			parts = append(parts, nil)
		}
		parts[in.part] = append(parts[in.part], l)
		if in.units -= l.state.n; l.state.token > 0 {
			last[l.event] = in
		}
	}
	return parts
}

// ask renews the leases of a part in Redis, and lets their states hear the reply.
func (c *core) ask(part []*Lease) {
	var refs []ref
	c.mu.Lock()
	part = slices.DeleteFunc(part, func(l *Lease) bool { return l.state.phase == over }) // released since the round
	for _, l := range part {
		refs = append(refs, l.state.ref)
	}
	c.mu.Unlock()
	if len(part) == 0 {
		return
	}
	began := time.Now()
	tokens, err := c.store.renew(context.Background(), part[0].event, refs, c.ttl, c.holder) // within the limiter's Timeout
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, l := range part {
		c.perform(l.state.heard(began, tokens[i], err), l)
	}
}

// release releases the leases of a part. If Redis does not answer, it tries once more. It does not
// wait for Redis if only the Fallback holds them.
func (c *core) release(ctx context.Context, part []*Lease) (err error) {
	event, ended := part[0].event, false
	var refs []ref
	c.mu.Lock()
	for _, l := range part {
		if !l.state.finish() {
			continue
		}
		ended = true
		if c.end(l, context.Canceled); l.state.token > 0 {
			refs = append(refs, l.state.ref)
		} else {
			c.giveUp(event, l.state.ref)
		}
	}
	c.mu.Unlock()
	for _, l := range part {
		l.cancel()
	}
	if !ended {
		return nil
	}
	if len(refs) > 0 {
		err = c.store.release(ctx, event, refs)
	}
	if health.IsOutage(err) {
		err = c.store.release(ctx, event, refs)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released(event)
	return err
}
