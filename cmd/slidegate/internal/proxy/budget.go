package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/window"
)

// budget decides about the requests of a route, for its middleware, and takes note of what came of it.
type budget struct {
	Route
	p     *Proxy
	local *window.Limiter                // in memory: for this instance alone, or in an outage
	redis atomic.Pointer[window.Limiter] // nil until there is one

	unexplained atomic.Bool // an outage began, and the log does not say why
}

func (p *Proxy) newBudget(rt Route) (*budget, error) {
	local, err := window.NewLocal(window.Config{Name: p.cfg.Name, Limits: rt.Limits, Secret: p.cfg.Secret})
	return &budget{Route: rt, p: p, local: local}, err
}

// alone reports whether memory is to decide where Redis does not.
func (b *budget) alone() bool { return !b.p.cfg.Shared || b.p.cfg.Outage == Local }

// remembered is how many denied events an instance denies by itself, once for each route.
const remembered = 10_000

// share has it decide on Redis from now on.
func (b *budget) share(client rueidis.Client) error {
	cfg := window.Config{Name: b.p.cfg.Name, Limits: b.Limits, Secret: b.p.cfg.Secret, Timeout: b.p.cfg.Timeout, DenialCache: remembered}
	cfg.Observe = b.observe
	if b.alone() {
		cfg.Fallback = b.local
	}
	l, err := window.New(client, cfg)
	if err == nil {
		b.p.metrics.parts.WithLabelValues(b.Pattern).Set(0)
		b.redis.Store(l)
	}
	return err
}

// observe takes note of how Redis does.
func (b *budget) observe(_ context.Context, o window.Observation) {
	b.p.metrics.observe(b.Pattern, o)
	switch o.Kind { //nolint:exhaustive // the rest is for metrics
	case window.OutageBegan:
		b.unexplained.Store(true)
	case window.CacheOff:
		b.p.cfg.Log.Warn("Redis is asked about every denial, as it does not tell of changes", "route", b.Pattern)
	}
}

// explain tells why memory decides about an event: a limiter that leaves Redis alone says to those who only look what the last error was.
func (b *budget) explain(ctx context.Context, event string) {
	if _, err := b.redis.Load().Inspect(ctx, event); err != nil {
		b.p.seldom("Redis does not answer", "route", b.Pattern, "err", err)
	}
}

// key is the event: the pattern, and who is limited. As only the pattern's host and path have a slash, no two budgets have one event.
func (b *budget) key(r *http.Request) string {
	who := b.Key(r)
	if who == "" {
		b.p.metrics.count(b.Pattern, keyless, byNobody)
		return ""
	}
	return b.Pattern + " " + who
}

// AllowN decides, and takes note.
func (b *budget) AllowN(ctx context.Context, event string, n int64) (window.Decision, error) {
	d, err := b.decide(ctx, event, n)
	decision, by := b.outcome(ctx, d, err)
	b.p.metrics.count(b.Pattern, decision, by)
	if decision == denied {
		b.p.metrics.deny(b.Pattern, d)
		b.p.over.add(b.shown(event), d.Tightest(), time.Now())
	}
	if d.Degraded && b.unexplained.CompareAndSwap(true, false) {
		b.explain(ctx, event)
	}
	return d, err
}

// errNotConnected is for as long as no Redis has ever answered.
var errNotConnected = fmt.Errorf("slidegate: there is no connection to Redis yet: %w", window.ErrOutage)

func (b *budget) decide(ctx context.Context, event string, n int64) (window.Decision, error) {
	d, err, l := window.Decision{}, errNotConnected, b.redis.Load()
	if l != nil {
		d, err = l.AllowN(ctx, event, n)
	}
	if err == nil || !b.alone() || ctx.Err() != nil {
		return d, err
	}
	if l != nil { // what the Fallback is not for: the key of this event holds something else
		b.p.seldom("memory decides about an event, as Redis cannot", "route", b.Pattern, "err", err)
	}
	d, err = b.local.AllowN(ctx, event, n)
	d.Degraded = b.p.cfg.Shared
	return d, err
}

// outcome is what the middleware makes of a decision.
func (b *budget) outcome(ctx context.Context, d window.Decision, err error) (decision, by string) {
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return gone, byNobody
	case err != nil && b.p.cfg.Outage == Open:
		return admitted, byNobody
	case err != nil:
		return refused, byNobody
	}
	decision, by = denied, byRedis
	if d.Allowed {
		decision = admitted
	}
	if d.Degraded || !b.p.cfg.Shared {
		by = byMemory
	}
	return decision, by
}

// Refund gives back what a decision of AllowN counted.
func (b *budget) Refund(ctx context.Context, event string, d window.Decision) error {
	if l := b.redis.Load(); l != nil {
		return l.Refund(ctx, event, d)
	}
	return b.local.Refund(ctx, event, d)
}

// shown is an event as it may be told: not where a secret hides it, and never a long one.
func (b *budget) shown(event string) string {
	if b.p.cfg.Secret != nil || len(event) > keys.Longest {
		return keys.Tag(b.p.cfg.Secret, event)
	}
	return event
}
