// Package outbound takes places and turns for the calls that a fleet makes to external services,
// and pauses the turns if a service asks for it.
package outbound

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/isnil"
	"github.com/slidegate/slidegate/internal/place"
	"github.com/slidegate/slidegate/pace"
)

// Config holds the settings that httplimit.TransportConfig and grpclimit.OutboundConfig have in
// common.
type Config struct {
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

// Calls takes places and turns for calls. It is safe for concurrent use.
type Calls struct {
	cfg           Config
	turns, places *place.Judge
}

// New returns a Calls. Its errors name the configured type, which is name.
func New(name string, cfg Config) (*Calls, error) {
	switch {
	case cfg.Turns == nil && cfg.Places == nil:
		return nil, fmt.Errorf("slidegate: %s has neither Turns nor Places; create them with pace.New and inflight.New", name)
	case cfg.Turns != nil && isnil.OrZero(cfg.Turns), cfg.Places != nil && isnil.OrZero(cfg.Places):
		return nil, fmt.Errorf("slidegate: %s has an uninitialized Limiter as Turns or Places; create it with pace.New or inflight.New", name)
	case cfg.MaxPause < 0 || cfg.MaxPause > mostPause:
		return nil, fmt.Errorf("slidegate: %s has a MaxPause of %v; choose one of up to a day, or 0 for a minute", name, cfg.MaxPause)
	}
	cfg.MaxPause = cmp.Or(cfg.MaxPause, defaultPause)
	c := &Calls{cfg: cfg}
	var err error
	if cfg.Turns != nil {
		c.turns, err = place.NewJudge(name, cfg.Outage, cfg.Log)
	}
	if cfg.Places != nil {
		c.places, err = place.NewJudge(name, cfg.Outage, cfg.Log)
	}
	return c, err
}

// Begin waits for a place, and then for a turn, in this order because a turn must be used when it
// comes. Call Release on the result when the call is over. If Begin returns an error, the call must
// not be sent.
func (c *Calls) Begin(ctx context.Context, event string) (*place.Held, error) {
	held, err := c.hold(ctx, event)
	if err != nil {
		return nil, err
	}
	if err = c.await(held.Context, event); err != nil {
		held.Release()
		return nil, held.Explain(err)
	}
	return held, nil
}

// hold waits for a place, if Places is set.
func (c *Calls) hold(ctx context.Context, event string) (*place.Held, error) {
	if c.cfg.Places == nil {
		return c.turns.Hold(ctx, nil), nil
	}
	lease, err := c.cfg.Places.Acquire(ctx, event)
	if err == nil {
		c.places.Answered(lease.Degraded(), lease.Cause())
	}
	return c.places.Hold(ctx, lease), c.places.Judge(ctx, err)
}

// await waits for a turn, if Turns is set.
func (c *Calls) await(ctx context.Context, event string) error {
	if c.cfg.Turns == nil {
		return nil
	}
	err := c.cfg.Turns.Wait(ctx, event)
	if err == nil {
		c.turns.Answered(false, nil) // Wait does not report whether a Fallback decided
	}
	return c.turns.Judge(ctx, err)
}

// Pause pauses the turns of event for d, as the service asked, but for at most MaxPause. It works
// even if ctx is done.
func (c *Calls) Pause(ctx context.Context, event string, d time.Duration) {
	if c.cfg.Turns == nil || d <= 0 {
		return
	}
	if err := c.cfg.Turns.Pause(context.WithoutCancel(ctx), event, min(d, c.cfg.MaxPause)); err != nil {
		c.turns.Log(err)
	}
}
