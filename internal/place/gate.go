package place

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slidegate/slidegate/inflight"
)

// A Gate lets requests into a server while there are places.
type Gate struct {
	places *inflight.Limiter
	wait   time.Duration

	mu   sync.Mutex
	mean time.Duration // how long requests held a place, of late
}

// NewGate returns a gate where a request waits at most so long for a place. The errors name the package
// that configures it.
func NewGate(pkg string, places *inflight.Limiter, wait time.Duration) (*Gate, error) {
	switch {
	case places == nil:
		return nil, errors.New("slidegate: " + pkg + ".InFlight has no Places; make them by inflight.New")
	case wait < 0:
		return nil, fmt.Errorf("slidegate: %s.InFlight has a Wait of %v; choose 0 or more", pkg, wait)
	}
	return &Gate{places: places, wait: wait}, nil
}

// Enter takes a place for a request. It returns nil without an error if none is free in time.
func (g *Gate) Enter(ctx context.Context, event string) (*Held, error) {
	lease, err := g.acquire(ctx, event)
	if err != nil || lease == nil {
		return nil, err
	}
	held, began := Hold(ctx, lease), time.Now()
	release := held.release
	held.release = sync.OnceFunc(func() {
		release()
		g.note(time.Since(began))
	})
	return held, nil
}

func (g *Gate) acquire(ctx context.Context, event string) (*inflight.Lease, error) {
	if g.wait == 0 {
		lease, _, err := g.places.TryAcquire(ctx, event)
		return lease, err
	}
	within, cancel := context.WithTimeout(ctx, g.wait)
	defer cancel()
	lease, err := g.places.Acquire(within, event)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return nil, nil // no place, and no error
	}
	return lease, err
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
