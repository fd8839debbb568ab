package place

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/journal"
)

// A Gate lets requests into a server while there are places.
type Gate struct {
	places *inflight.Limiter
	wait   time.Duration
	judge  *Judge

	mu   sync.Mutex
	mean time.Duration // how long requests held a place, of late
}

// NewGate returns a gate where a request waits at most so long for a place. The errors name the type that
// is configured.
func NewGate(name string, places *inflight.Limiter, wait time.Duration, outage string, log *slog.Logger) (*Gate, error) {
	switch {
	case places == nil:
		return nil, fmt.Errorf("slidegate: %s has no Places; make them by inflight.New", name)
	case wait < 0:
		return nil, fmt.Errorf("slidegate: %s has a Wait of %v; choose 0 or more", name, wait)
	}
	judge, err := NewJudge(name, outage, journal.Log(log, places))
	return &Gate{places: places, wait: wait, judge: judge}, err
}

// Enter takes a place for a request. It returns nil without an error if none is free in time. A request that
// may go on in an outage holds no place. An error means that it may not, or that its context has ended.
func (g *Gate) Enter(ctx context.Context, event string) (*Held, error) {
	lease, full, err := g.acquire(ctx, event)
	if err = g.judge.Judge(ctx, err); err != nil || full {
		return nil, err
	}
	held, began := Hold(ctx, lease), time.Now()
	if release := held.release; lease != nil {
		held.release = sync.OnceFunc(func() {
			release()
			g.note(time.Since(began))
		})
	}
	return held, nil
}

// acquire takes a place, or reports that none is free in time.
func (g *Gate) acquire(ctx context.Context, event string) (lease *inflight.Lease, full bool, err error) {
	if g.wait == 0 {
		lease, _, err = g.places.TryAcquire(ctx, event)
		return lease, lease == nil && err == nil, err
	}
	within, cancel := context.WithTimeout(ctx, g.wait)
	defer cancel()
	lease, err = g.places.Acquire(within, event)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return nil, true, nil
	}
	return lease, false, err
}

// note counts how long a request held its place: about the last eight count.
func (g *Gate) note(held time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mean == 0 {
		g.mean = held
	}
	g.mean += (held - g.mean) / 8
}

// RetryAfter says when a request that got no place should try again: after as long as requests of this
// process held places of late, at least a second and at most a minute.
func (g *Gate) RetryAfter() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return min(max(g.mean, time.Second), time.Minute)
}
