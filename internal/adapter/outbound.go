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

// OutboundConfig holds the settings that httplimit.TransportConfig and grpclimit.OutboundConfig have in
// common.
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

// Outbound takes places and turns for the calls that a fleet makes to external services, and pauses
// the turns if a service asks for it. It is safe for concurrent use.
type Outbound struct {
	cfg           OutboundConfig
	turns, places *Judge
}

// NewOutbound returns a Outbound. Its errors name the configured type, which is name.
func NewOutbound(name string, cfg OutboundConfig) (*Outbound, error) {
	switch {
	case cfg.Turns == nil && cfg.Places == nil:
		return nil, fmt.Errorf("slidegate: %s has neither Turns nor Places; create them with pace.NewOutbound and inflight.NewOutbound", name)
	case cfg.Turns != nil && IsNilOrZero(cfg.Turns), cfg.Places != nil && IsNilOrZero(cfg.Places):
		return nil, fmt.Errorf("slidegate: %s has an uninitialized Limiter as Turns or Places; create it with pace.NewOutbound or inflight.NewOutbound", name)
	case cfg.MaxPause < 0 || cfg.MaxPause > mostPause:
		return nil, fmt.Errorf("slidegate: %s has a MaxPause of %v; choose one of up to a day, or 0 for a minute", name, cfg.MaxPause)
	}
	cfg.MaxPause = cmp.Or(cfg.MaxPause, defaultPause)
	o := &Outbound{cfg: cfg}
	var err error
	if cfg.Turns != nil {
		o.turns, err = NewJudge(name, cfg.Outage, cfg.Log)
	}
	if cfg.Places != nil {
		o.places, err = NewJudge(name, cfg.Outage, cfg.Log)
	}
	return o, err
}

// Begin waits for a place, and then for a turn, in this order because a turn must be used when it
// comes. Call Release on the result when the call is over. If Begin returns an error, the call must
// not be sent.
func (o *Outbound) Begin(ctx context.Context, event string) (*Held, error) {
	held, err := o.hold(ctx, event)
	if err != nil {
		return nil, err
	}
	if err = o.await(held.Context, event); err != nil {
		held.Release()
		return nil, held.Explain(err)
	}
	return held, nil
}

// hold waits for a place, if Places is set.
func (o *Outbound) hold(ctx context.Context, event string) (*Held, error) {
	if o.cfg.Places == nil {
		return o.turns.Hold(ctx, nil), nil
	}
	lease, err := o.cfg.Places.Acquire(ctx, event)
	if err == nil {
		o.places.Answered(lease.Degraded(), lease.Cause())
	}
	return o.places.Hold(ctx, lease), o.places.Judge(ctx, err)
}

// await waits for a turn, if Turns is set.
func (o *Outbound) await(ctx context.Context, event string) error {
	if o.cfg.Turns == nil {
		return nil
	}
	err := o.cfg.Turns.Wait(ctx, event)
	if err == nil {
		o.turns.Answered(false, nil) // Wait does not report whether a Fallback decided
	}
	return o.turns.Judge(ctx, err)
}

// Pause pauses the turns of event for d, as the service asked, but for at most MaxPause. It works
// even if ctx is done.
func (o *Outbound) Pause(ctx context.Context, event string, d time.Duration) {
	if o.cfg.Turns == nil || d <= 0 {
		return
	}
	if err := o.cfg.Turns.Pause(context.WithoutCancel(ctx), event, min(d, o.cfg.MaxPause)); err != nil {
		o.turns.Log(err)
	}
}
