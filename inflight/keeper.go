package inflight

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slidegate/slidegate/internal/health"
)

// A keeper renews the leases of a limiter in time. It uses one timer, which runs while there are
// leases.
type keeper struct {
	ttl time.Duration

	mu     sync.Mutex
	held   map[*Lease]struct{}
	timer  *time.Timer // calls renew; nil before the first lease
	closed bool
}

// mostCalls is the maximum number of calls that a keeper makes at the same time.
const mostCalls = 64

// add makes the keeper renew l. It returns false if the limiter is closed.
func (k *keeper) add(l *Lease) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	if k.held[l] = struct{}{}; len(k.held) == 1 {
		k.timer = time.AfterFunc(k.ttl/3, k.renew)
	}
	return true
}

// remove makes the keeper forget l. If no lease is left, it stops the timer.
func (k *keeper) remove(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if delete(k.held, l); len(k.held) == 0 && k.timer != nil {
		k.timer.Stop()
	}
}

// close returns all leases, and makes all later calls of add return false.
func (k *keeper) close() []*Lease {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	return k.all()
}

func (k *keeper) isClosed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closed
}

// renew renews the leases that are due, ends leases that are over, and sets the timer.
func (k *keeper) renew() {
	now := time.Now()
	next := now.Add(k.ttl / 3)
	var due []*Lease
	for _, l := range k.all() {
		do, again := l.step(now)
		next = earlier(next, again)
		switch do {
		case stepRenew:
			due = append(due, l)
		case stepCarry:
			l.carry(now)
		case stepLose:
			l.lose(KindLost)
		case stepOverdue:
			l.lose(KindOverdue)
		}
	}
	go inParts(due, group.renew)
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.held) > 0 {
		k.timer.Reset(time.Until(next))
	}
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

// A group identifies leases of one event.
type group struct {
	*core
	event string
}

// inParts calls do in the background for the leases of each group, with as many leases as fit into
// one call. At most mostCalls calls run at the same time. inParts returns a function that waits
// until all calls are done.
func inParts(leases []*Lease, do func(g group, all []*Lease)) (wait func()) {
	groups := map[group][]*Lease{}
	for _, l := range leases {
		g := group{l.limiter.core, l.event}
		groups[g] = append(groups[g], l)
	}
	var workers errgroup.Group
	workers.SetLimit(mostCalls)
	for g, all := range groups {
		for len(all) > 0 {
			some := all[:g.fits(all)]
			all = all[len(some):]
			workers.Go(func() error { do(g, some); return nil })
		}
	}
	return func() { _ = workers.Wait() }
}

// fits returns how many of the leases in all one call can renew.
func (g group) fits(all []*Lease) int {
	units := int64(0)
	for i, l := range all {
		if units += l.n; units > mostUnits {
			return i
		}
	}
	return len(all)
}

// renew renews leases in Redis or, in an outage, in the Fallback.
func (g group) renew(all []*Lease) {
	ctx := context.Background() // each call has the limiter's Timeout
	var known, unknown []*Lease
	var refs []ref
	for _, l := range all {
		defer l.renewed()
		switch r, _ := l.state(); {
		case l.Left() == 0: // the lease has been released since, or is about to be lost
		case r.token > 0:
			known, refs = append(known, l), append(refs, r)
		default:
			unknown = append(unknown, l)
		}
	}
	unknown = append(unknown, g.renewKnown(ctx, known, refs)...)
	var workers errgroup.Group
	workers.SetLimit(mostCalls)
	for _, l := range unknown {
		workers.Go(func() error { l.again(ctx); return nil })
	}
	_ = workers.Wait()
}

// renewKnown renews leases that Redis has granted. It returns those that have ended in Redis but
// that the Fallback keeps alive.
func (g group) renewKnown(ctx context.Context, known []*Lease, refs []ref) (ended []*Lease) {
	if len(known) == 0 {
		return nil
	}
	began := time.Now()
	held, err := g.store.renew(ctx, g.event, refs, g.ttl, g.holder)
	for i, l := range known {
		_, carried := l.state()
		switch {
		case err == nil && held[i]:
			if !l.keep(began, refs[i]) { // the lease was released during the call
				l.giveUp(refs[i])
			}
		case err == nil && carried:
			ended = append(ended, l)
		case err == nil:
			l.lose(KindLost)
		case health.IsOutage(err) && g.fallback != nil:
			l.fail(err)
			l.carry(began)
		default:
			l.fail(err)
		}
	}
	return ended
}

// renewed records that no renewal is in flight.
func (l *Lease) renewed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewing = false
}

// release releases leases. If Redis does not answer, it tries once more.
func (g group) release(ctx context.Context, all []*Lease) error {
	var refs, carried []ref
	for _, l := range all {
		if !l.finish(context.Canceled) {
			continue
		}
		r, degraded := l.state()
		if degraded {
			carried = append(carried, r)
		}
		if r.token > 0 {
			refs = append(refs, r)
		} else { // Redis never confirmed the lease
			l.giveUp(r)
		}
	}
	if len(refs)+len(carried) == 0 {
		return nil
	}
	var err error
	if len(refs) > 0 {
		err = g.store.release(ctx, g.event, refs)
	}
	if health.IsOutage(err) {
		err = g.store.release(ctx, g.event, refs)
	}
	if len(carried) > 0 {
		err = errors.Join(err, g.fallback.store.release(ctx, g.event, carried))
	}
	g.lines.released(g.event)
	return err
}
