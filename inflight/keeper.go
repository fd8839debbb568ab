package inflight

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/pipeline"
)

// A keeper renews the leases of a limiter in time, by one goroutine, which runs while there are any.
type keeper struct {
	ttl time.Duration

	mu     sync.Mutex
	held   map[*Lease]struct{}
	wake   chan struct{} // for the goroutine: a lease is due earlier; nil if there is none
	closed bool
}

// mostRenewals is how many calls renew leases at the same time.
const mostRenewals = 64

// add keeps a lease. It reports false if the limiter is closed.
func (k *keeper) add(l *Lease) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	if k.held[l] = struct{}{}; k.wake == nil {
		k.wake = make(chan struct{}, 1)
		go k.run(k.wake)
	}
	return true
}

// remove forgets a lease. The last one ends the goroutine.
func (k *keeper) remove(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if delete(k.held, l); len(k.held) == 0 && k.wake != nil {
		close(k.wake)
		k.wake = nil
	}
}

// close returns all leases, and keeps no more.
func (k *keeper) close() (all []*Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	for l := range k.held {
		all = append(all, l)
	}
	return all
}

// run renews leases until there are none.
func (k *keeper) run(over <-chan struct{}) {
	timer := time.NewTimer(k.ttl / 3)
	defer timer.Stop()
	for {
		select {
		case <-over:
			return
		case <-timer.C:
		}
		timer.Reset(time.Until(k.renew()))
	}
}

// renew renews the leases that are due, and ends those that are over. It returns when to do so again. Leases
// that are due soon are renewed as well, so that many need few calls.
func (k *keeper) renew() (next time.Time) {
	now := time.Now()
	next = now.Add(k.ttl / 3)
	due := map[group][]*Lease{}
	for _, l := range k.all() {
		l.mu.Lock()
		end, overdue := l.end, !l.since.Add(l.limiter.maxHold).After(now)
		isDue := !l.renewAt.After(now.Add(k.ttl / 20))
		if isDue {
			l.renewAt = now.Add(k.ttl / 10) // again, if this fails
		}
		next = earlier(next, earlier(end, l.renewAt))
		l.mu.Unlock()
		switch g := (group{l.limiter, l.event}); {
		case overdue:
			l.lose(KindOverdue)
		case !end.After(now):
			l.lose(KindLost)
		case isDue:
			due[g] = append(due[g], l)
		}
	}
	renewAll(due)
	return next
}

func (k *keeper) all() []*Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.held))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// A group is leases of one event, which one call renews.
type group struct {
	limiter *Limiter
	event   string
}

// renewAll renews groups of leases in the background, some at a time.
func renewAll(due map[group][]*Lease) {
	var work []func()
	for g, all := range due {
		for len(all) > 0 {
			some := all[:g.fits(all)]
			work = append(work, func() { g.renew(some) })
			all = all[len(some):]
		}
	}
	var next atomic.Int64
	for range min(len(work), mostRenewals) {
		go func() {
			for i := next.Add(1); i <= int64(len(work)); i = next.Add(1) {
				work[i-1]()
			}
		}()
	}
}

// fits returns how many of the leases one call can renew.
func (g group) fits(all []*Lease) int {
	units := int64(0)
	for i, l := range all {
		if units += l.n; units > mostUnits {
			return i
		}
	}
	return len(all)
}

// renew renews leases, in an outage by the Fallback.
func (g group) renew(all []*Lease) {
	ctx, cancel := g.limiter.engine.Finishing(context.Background())
	defer cancel()
	refs := make([]ref, len(all))
	for i, l := range all {
		l.mu.Lock()
		refs[i] = l.ref
		l.mu.Unlock()
	}
	began := time.Now()
	held, err := g.limiter.store.renew(ctx, g.event, refs, g.limiter.ttl, g.limiter.holder)
	for i, l := range all {
		switch {
		case err == nil && held[i]:
			l.keep(began, false)
		case err == nil && !l.again(ctx):
			l.lose(KindLost)
		case pipeline.IsOutage(err) && g.limiter.fallback != nil:
			g.limiter.fallback.store.(*local).carry(g.event, refs[i], g.limiter.ttl)
			l.keep(began, true)
		}
	}
}

// keep notes that the lease was renewed, by Redis or the Fallback.
func (l *Lease) keep(began time.Time, degraded bool) {
	l.mu.Lock()
	was, r := l.degraded, l.ref
	if !l.over {
		l.renewed(began)
		l.degraded = degraded
	}
	l.mu.Unlock()
	if was && !degraded {
		_ = l.limiter.fallback.store.release(context.Background(), l.event, []ref{r})
	}
}

// again takes units in Redis for a lease that the Fallback carried on, and that has ended in Redis. If they are
// not free, the Fallback carries it on. It reports false for other leases.
func (l *Lease) again(ctx context.Context) bool {
	l.mu.Lock()
	degraded, r := l.degraded, l.ref
	l.mu.Unlock()
	if !degraded {
		return false
	}
	began := time.Now()
	r.id = newID()
	a, err := l.limiter.store.acquire(ctx, l.event, r, l.limiter.ttl, l.limiter.holder)
	if err != nil || !a.held {
		l.limiter.fallback.store.(*local).carry(l.event, l.ref, l.limiter.ttl)
		l.keep(began, true)
		return true
	}
	l.keep(began, false)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id, l.token = r.id, a.token
	return true
}
