package window

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/lua"
)

const maxTime = 1 << 47 // the first ms that the script refuses, in the year 6429

// engine returns the configuration as limiters of every kind have it.
func (cfg Config) engine() engine.Config {
	c := engine.Config{
		Kind: "w", Script: lua.Window, SomeSuffices: true, MaxUnits: maxUnits,
		Name: cfg.Name, CountDenied: cfg.CountDenied, Secret: slices.Clone(cfg.Secret), Timeout: cfg.Timeout, DenialCache: cfg.DenialCache,
		Clock: clock.Clock{Now: cfg.Now, Unit: time.Time.UnixMilli, Time: time.UnixMilli, End: maxTime, Year: 6429},
	}
	for _, l := range cfg.Limits {
		c.Limits = append(c.Limits, l.engine(cfg.CountDenied))
	}
	if cfg.Fallback != nil {
		c.Fallback = cmp.Or(cfg.Fallback.engine, &engine.Limiter{})
	}
	if cfg.Observe != nil {
		c.Notify = func(ctx context.Context, e engine.Event) {
			cfg.Observe(ctx, Observation{Limiter: cfg.Name, Kind: Kind(e.Kind), SlotRange: e.Range})
		}
	}
	return c
}

// engine returns the limit as limiters of every kind have it.
func (l Limit) engine(countDenied bool) engine.Limit {
	return engine.Limit{Text: l.String(), Max: l.Max, Per: l.Per, Resolution: l.resolution(countDenied), Fault: l.check(countDenied)}
}
