package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/health"
)

// A Gate lets requests into a server while places are free.
type Gate struct {
	places *inflight.Limiter
	wait   time.Duration
	judge  *Judge

	mu   sync.Mutex
	mean time.Duration // how long requests have recently held their places
}

// NewGate returns a Gate at which requests wait for a place for at most wait. Its errors name the
// configured type, which is name.
func NewGate(name string, places *inflight.Limiter, wait time.Duration, outage string, log *slog.Logger) (*Gate, error) {
	switch {
	case IsNilOrZero(places):
		return nil, fmt.Errorf("slidegate: %s has no Places, or an uninitialized Limiter there; create it with inflight.New", name)
	case wait < 0:
		return nil, fmt.Errorf("slidegate: %s has a Wait of %v; choose 0 or more", name, wait)
	}
	judge, err := NewJudge(name, outage, log)
	return &Gate{places: places, wait: wait, judge: judge}, err
}

// Enter takes a place for a request. It returns nil and no error if no place is free in time. In an
// outage, it returns an error or, if the request may proceed nevertheless, a Held without a place.
// It also returns an error if ctx is done.
func (g *Gate) Enter(ctx context.Context, event string) (*Held, error) {
	lease, full, err := g.acquire(ctx, event)
	if err = g.judge.Judge(ctx, err); err != nil || full {
		return nil, err
	}
	held, began := g.judge.Hold(ctx, lease), time.Now()
	if giveBack := held.giveBack; lease != nil {
		held.giveBack = sync.OnceFunc(func() {
			giveBack()
			g.note(time.Since(began))
		})
	}
	return held, nil
}

// acquire takes a place, or reports that none became free in time. If the wait times out without an
// answer, acquire tries once more without waiting, because only a denial proves that no place is
// free.
func (g *Gate) acquire(ctx context.Context, event string) (lease *inflight.Lease, full bool, err error) {
	if g.wait > 0 {
		within, cancel := context.WithTimeout(ctx, g.wait)
		defer cancel()
		lease, err = g.places.Acquire(within, event)
		switch {
		case err == nil:
			g.judge.Answered(lease.Degraded(), lease.Cause())
			return lease, false, nil
		case ctx.Err() == nil && errors.Is(err, inflight.ErrFull):
			return nil, true, nil
		case ctx.Err() != nil || within.Err() == nil || health.IsOutage(err):
			return nil, false, err
		}
	}
	lease, d, err := g.places.TryAcquire(ctx, event)
	if err == nil {
		g.judge.Answered(d.Degraded, d.Cause)
	}
	return lease, lease == nil && err == nil, err
}

// note adds how long a request held its place to a moving average over about eight requests.
func (g *Gate) note(held time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mean == 0 {
		g.mean = held
	}
	g.mean += (held - g.mean) / 8
}

// RetryAfter returns after how long a request that got no place should be retried: as long as this
// process's requests have recently held their places, but at least a second and at most a minute.
func (g *Gate) RetryAfter() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return min(max(g.mean, time.Second), time.Minute)
}
