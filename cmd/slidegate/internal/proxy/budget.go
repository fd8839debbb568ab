package proxy

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/window"
)

// budget decides about the requests of a route, for its middleware, and records the outcome.
type budget struct {
	Route
	p       *Proxy
	limiter *window.Limiter // on Redis, or local
	local   *window.Limiter // in memory, for this instance alone

	outages     atomic.Int64 // how many parts of Redis are out
	waiting     atomic.Bool  // requests came before there was a connection
	unexplained atomic.Bool  // an outage began, and the log does not say why
}

// remembered is how many denied events an instance denies by itself, once for each route.
const remembered = 10_000

func (p *Proxy) newBudget(rt Route) (b *budget, err error) {
	b = &budget{Route: rt, p: p}
	cfg := window.Config{Name: p.cfg.Name, Limits: rt.Limits, Secret: p.cfg.Secret}
	b.local, err = window.NewLocal(cfg)
	if b.limiter = b.local; err != nil || p.cfg.Redis == nil {
		return b, err
	}
	cfg.Timeout, cfg.DenialCache, cfg.Observe = p.cfg.Timeout, remembered, b.observe
	if p.cfg.Outage == Local {
		cfg.Fallback = b.local
	}
	p.metrics.showOutages(rt.Pattern, b.showOutages)
	b.limiter, err = window.NewOn(p.cfg.Redis, cfg)
	return b, err
}

// showOutages returns how many parts of Redis are out. Until there was a connection, it is one.
func (b *budget) showOutages() float64 {
	if !b.p.connected() {
		return 1
	}
	return float64(b.outages.Load())
}

// observe records how Redis does.
func (b *budget) observe(_ context.Context, o window.Observation) {
	if b.unconnected(o.Kind) {
		return
	}
	b.p.metrics.observe(b.Pattern, o)
	switch o.Kind { //nolint:exhaustive // the rest is for metrics
	case window.OutageBegan:
		if b.outages.Add(1) == 1 {
			b.p.history.began(b.Pattern, time.Now())
		}
		b.unexplained.Store(true)
	case window.OutageEnded:
		if b.outages.Add(-1) == 0 {
			b.p.history.ended(b.Pattern, time.Now())
		}
	case window.CacheOff:
		b.p.cfg.Log.Warn("Redis is asked about every denial, as it does not tell of changes", "route", b.Pattern)
	}
}

// unconnected reports whether an observation is about the time before there was a connection, which is
// no outage of the metrics and needs no explanation. The first request after it reports its end.
func (b *budget) unconnected(k window.Kind) bool {
	if k == window.OutageEnded {
		return b.waiting.CompareAndSwap(true, false)
	}
	if b.p.connected() {
		return false
	}
	if k == window.OutageBegan {
		b.waiting.Store(true)
	}
	return true
}

// explain logs why memory decides about an event. While a limiter leaves Redis alone, Inspect returns
// the last error.
func (b *budget) explain(ctx context.Context, event string) {
	if _, err := b.limiter.Inspect(ctx, event); err != nil {
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

func (b *budget) decide(ctx context.Context, event string, n int64) (window.Decision, error) {
	d, err := b.limiter.AllowN(ctx, event, n)
	if err == nil || b.p.cfg.Redis == nil || b.p.cfg.Outage != Local || ctx.Err() != nil {
		return d, err
	}
	// The Fallback is not for this error: the key of the event holds something else.
	b.p.seldom("memory decides about an event, as Redis cannot", "route", b.Pattern, "err", err)
	d, err = b.local.AllowN(ctx, event, n)
	d.Degraded = true
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
	if d.Degraded || b.p.cfg.Redis == nil {
		by = byMemory
	}
	return decision, by
}

// Refund gives back what a decision of AllowN counted.
func (b *budget) Refund(ctx context.Context, event string, d window.Decision) error {
	return b.limiter.Refund(ctx, event, d)
}

// shown is an event as it may be told: not where a secret hides it, and never a long one.
func (b *budget) shown(event string) string {
	if b.p.cfg.Secret != nil || len(event) > keys.Longest {
		return keys.Tag(b.p.cfg.Secret, event)
	}
	return event
}
