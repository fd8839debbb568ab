package adapter

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/pace"
)

// OutboundConfig holds the settings that httplimit.TransportConfig and grpclimit.OutboundConfig
// have in common.
type OutboundConfig struct {
	Turns    *pace.Limiter
	Places   *inflight.Limiter
	MaxPause time.Duration
	Outage   string
	Log      *slog.Logger
}

const (
	defaultPause = time.Minute
	mostPause    = 24 * time.Hour // the longest pause of package pace
)

// Outbound takes places and turns for the requests that a fleet sends to external services, and
// pauses the turns if a service asks for it. It is safe for concurrent use.
type Outbound struct {
	cfg           OutboundConfig
	turns, places Outages
}

// NewOutbound returns an Outbound. Its errors name the configured type, which is name.
func NewOutbound(name string, cfg OutboundConfig) (*Outbound, error) {
	switch {
	case cfg.Turns == nil && cfg.Places == nil:
		return nil, fmt.Errorf("slidegate: %s has neither Turns nor Places; create them with pace.New and inflight.New", name)
	case cfg.Turns != nil && isNilOrZero(cfg.Turns), cfg.Places != nil && isNilOrZero(cfg.Places):
		return nil, fmt.Errorf("slidegate: %s has an uninitialized Limiter as Turns or Places; create it with pace.New or inflight.New", name)
	case cfg.MaxPause < 0 || cfg.MaxPause > mostPause:
		return nil, fmt.Errorf("slidegate: %s has a MaxPause of %v; choose one of up to a day, or 0 for a minute", name, cfg.MaxPause)
	}
	cfg.MaxPause, cfg.Log = cmp.Or(cfg.MaxPause, defaultPause), cmp.Or(cfg.Log, slog.Default())
	return &Outbound{
		cfg:    cfg,
		turns:  Outages{Outage: cfg.Outage, Request: "call", Log: cfg.Log},
		places: Outages{Outage: cfg.Outage, Request: "call", Log: cfg.Log},
	}, checkOutage(name, cfg.Outage)
}

// Begin waits for a place, and then for a turn, in this order because a turn must be used when it
// comes. Call Release on the result when the request is over. If Begin returns an error, the
// request must not be sent.
func (o *Outbound) Begin(ctx context.Context, event string) (*Place, error) {
	var lease *inflight.Lease
	var err error
	if o.cfg.Places != nil {
		lease, err = o.cfg.Places.Acquire(ctx, event)
		if err == nil {
			o.places.Record(lease.Degraded(), lease.Cause())
		}
		if err = o.places.Tolerate(ctx, err); err != nil {
			return nil, err
		}
	}
	place := hold(ctx, lease, o.cfg.Outage, func() {})
	if o.cfg.Turns == nil {
		return place, nil
	}
	if err = o.cfg.Turns.Wait(place.Context, event); err == nil {
		o.turns.Record(false, nil) // Wait does not report whether a Fallback decided
	}
	if err = o.turns.Tolerate(place.Context, err); err != nil {
		place.Release()
		return nil, place.Explain(err)
	}
	return place, nil
}

// Pause pauses the turns of event for d, as the service asked, but for at most MaxPause. It works
// even if ctx is done.
func (o *Outbound) Pause(ctx context.Context, event string, d time.Duration) {
	if o.cfg.Turns == nil || d <= 0 {
		return
	}
	if err := o.cfg.Turns.Pause(context.WithoutCancel(ctx), event, min(d, o.cfg.MaxPause)); err != nil {
		o.turns.Fail(err)
	}
}
