package adapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/health"
)

// Inbound gives places to the requests that a server receives. It is safe for concurrent use.
type Inbound struct {
	places  *inflight.Limiter
	wait    time.Duration
	outages Outages

	mu   sync.Mutex
	mean time.Duration // how long requests have recently held their places
}

// NewInbound returns an Inbound in which requests wait for a place for at most wait. Its errors
// name the configured type, which is name.
func NewInbound(name string, places *inflight.Limiter, wait time.Duration, outage string, log *slog.Logger) (*Inbound, error) {
	switch {
	case isNilOrZero(places):
		return nil, fmt.Errorf("slidegate: %s has no Places, or an uninitialized Limiter there; create it with inflight.New", name)
	case wait < 0:
		return nil, fmt.Errorf("slidegate: %s has a Wait of %v; choose 0 or more", name, wait)
	}
	in := &Inbound{places: places, wait: wait, outages: Outages{Outage: outage, Request: "call", Log: cmp.Or(log, slog.Default())}}
	return in, checkOutage(name, outage)
}

// Enter takes a place for a request. It returns nil and no error if no place is free in time. In an
// outage, it returns an error or, if the request may proceed nevertheless, a Place without a lease.
// It also returns an error if ctx is done.
func (in *Inbound) Enter(ctx context.Context, event string) (*Place, error) {
	lease, full, err := in.acquire(ctx, event)
	if err = in.outages.Tolerate(ctx, err); err != nil || full {
		return nil, err
	}
	began := time.Now()
	return hold(ctx, lease, in.outages.Outage, func() { in.note(time.Since(began)) }), nil
}

// acquire takes a place, or reports that none became free in time. If the wait times out without an
// answer, acquire tries once more without waiting, because only a denial proves that no place is
// free.
func (in *Inbound) acquire(ctx context.Context, event string) (lease *inflight.Lease, full bool, err error) {
	if in.wait > 0 {
		within, cancel := context.WithTimeout(ctx, in.wait)
		defer cancel()
		lease, err = in.places.Acquire(within, event)
		switch {
		case err == nil:
			in.outages.Record(lease.Degraded(), lease.Cause())
			return lease, false, nil
		case ctx.Err() == nil && errors.Is(err, inflight.ErrFull):
			return nil, true, nil
		case ctx.Err() != nil || within.Err() == nil || health.IsOutage(err):
			return nil, false, err
		}
	}
	lease, d, err := in.places.TryAcquire(ctx, event)
	if err == nil {
		in.outages.Record(d.Degraded, d.Cause)
	}
	return lease, lease == nil && err == nil, err
}

// note adds how long a request held its place to a moving average over about eight requests.
func (in *Inbound) note(held time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mean == 0 {
		in.mean = held
	}
	in.mean += (held - in.mean) / 8
}

// RetryAfter returns after how long a request that got no place should be retried: as long as this
// process's requests have recently held their places, but at least a second and at most a minute.
func (in *Inbound) RetryAfter() time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	return min(max(in.mean, time.Second), time.Minute)
}
