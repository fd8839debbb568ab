package proxy

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/adapter"
	"github.com/slidegate/slidegate/window"
)

// budget is the limiter that a route's middleware uses. It decides on requests, and records the
// outcome.
type budget struct {
	Route
	p       *Proxy
	limiter *window.Limiter // in Redis or in memory
	local   *window.Limiter // in this instance's memory

	out               atomic.Bool // there is an outage
	usedBeforeConnect atomic.Bool // requests have arrived before there was a connection
}

// denialCacheSize is how many denied events an instance caches per route.
const denialCacheSize = 10_000

func (p *Proxy) newBudget(rt Route) (b *budget, err error) {
	b = &budget{Route: rt, p: p}
	cfg := window.Config{Name: p.cfg.Name, Limits: rt.Limits, Secret: p.cfg.Secret, OnDenied: p.denied.Count}
	b.local, err = window.NewLocal(cfg)
	if b.limiter = b.local; err != nil || p.cfg.Redis == nil {
		return b, err
	}
	cfg.Timeout, cfg.DenialCache, cfg.Observe = p.cfg.Timeout, denialCacheSize, b.observe
	if p.cfg.Outage == Local {
		cfg.Fallback = b.local
	}
	p.metrics.registerOutages(rt.Pattern, b.outageCount)
	b.limiter, err = window.New(p.cfg.Redis, cfg)
	return b, err
}

// outageCount returns 1 in an outage and before the first connection, and 0 otherwise.
func (b *budget) outageCount() float64 {
	if b.out.Load() || !b.p.connected() {
		return 1
	}
	return 0
}

// observe records what an observation reveals about Redis.
func (b *budget) observe(_ context.Context, o window.Observation) {
	b.p.metrics.countFailure(b.Pattern, o)
	if b.beforeConnect(o.Kind) {
		return
	}
	b.p.metrics.observe(b.Pattern, o)
	switch o.Kind { //nolint:exhaustive // the other kinds are for metrics
	case window.KindOutageBegan:
		b.out.Store(true)
		b.p.history.began(b.Pattern, time.Now())
		b.p.logThrottled("Redis does not answer", "route", b.Pattern, "err", o.Err)
	case window.KindOutageEnded:
		b.out.Store(false)
		b.p.history.ended(b.Pattern, time.Now())
	}
}

// beforeConnect reports whether an observation of kind k falls in the time before the first
// connection. The metrics do not count that time as an outage, and the log needs no cause for it.
// The first request afterwards observes its end.
func (b *budget) beforeConnect(k window.Kind) bool {
	if k == window.KindOutageEnded {
		return b.usedBeforeConnect.CompareAndSwap(true, false)
	}
	if b.p.connected() {
		return false
	}
	if k == window.KindOutageBegan {
		b.usedBeforeConnect.Store(true)
	}
	return true
}

// key returns the event for a request: the route's pattern, and who is limited. Two budgets never
// share an event, because in a pattern only the host and the path contain a slash. key also counts
// a request without a key, which the middleware rejects. It counts the request only once, although
// the middleware calls key again for the log.
func (b *budget) key(r *http.Request) string {
	who := b.Key(r)
	if who == "" {
		if !adapter.CollectsKeyless(r.Context()) {
			b.p.metrics.count(b.Pattern, noKey, byNobody)
		}
		return ""
	}
	return b.Pattern + " " + who
}

// AllowN decides on an event, and records the decision.
func (b *budget) AllowN(ctx context.Context, event string, n int64) (window.Decision, error) {
	d, err := b.decide(ctx, event, n)
	decision, by := b.outcome(ctx, d, err)
	b.p.metrics.count(b.Pattern, decision, by)
	if decision == denied {
		b.p.metrics.deny(b.Pattern, d)
	}
	return d, err
}

func (b *budget) decide(ctx context.Context, event string, n int64) (window.Decision, error) {
	d, err := b.limiter.AllowN(ctx, event, n)
	if err == nil || b.p.cfg.Redis == nil || b.p.cfg.Outage != Local || ctx.Err() != nil {
		return d, err
	}
	// The fallback does not cover this error: the event's Redis key holds a foreign value.
	b.p.logThrottled("memory decides on an event, because Redis cannot", "route", b.Pattern, "err", err)
	d, err = b.local.AllowN(ctx, event, n)
	d.Degraded = true
	return d, err
}

// outcome returns the labels of a decision: what the middleware does with the request, and who
// decided.
func (b *budget) outcome(ctx context.Context, d window.Decision, err error) (decision, by string) {
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return gone, byNobody
	case err != nil && b.p.cfg.Outage == httplimit.FailOpen:
		return allowed, byNobody
	case err != nil:
		return refused, byNobody
	}
	decision, by = denied, byRedis
	if d.Allowed {
		decision = allowed
	}
	if d.Degraded || b.p.cfg.Redis == nil {
		by = byMemory
	}
	return decision, by
}

// Refund gives back the units that AllowN counted for d.
func (b *budget) Refund(ctx context.Context, event string, d window.Decision) error {
	return b.limiter.Refund(ctx, event, d)
}
