package window

import (
	"context"
	"slices"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/lua"
)

// base converts the configuration into the form that all kinds of limiters share.
func (cfg Config) base() limiter.Config {
	c := limiter.Config{
		Kind: "w", Script: lua.WindowFor, File: "window.lua", MergeAsSome: true, MaxUnits: maxUnits,
		Name: cfg.Name, CountDenied: cfg.CountDenied, Secret: slices.Clone(cfg.Secret), Timeout: cfg.Timeout, DenialCache: cfg.DenialCache,
		MaxEvents: cfg.MaxEvents, AllowWhenFull: cfg.AllowWhenFull,
		Clock: clock.Millis(cfg.Now), Text: limitText,
	}
	if cfg.Observe != nil {
		c.Notify = func(ctx context.Context, kind string, failure *health.Failure) {
			cfg.Observe(ctx, Observation{Limiter: cfg.Name, Kind: Kind(kind), Err: failure.Err()})
		}
	}
	return c
}

// appendLimits appends limits to to, in the form that all kinds of limiters share.
func appendLimits(to []limiter.Limit, limits []Limit, countDenied bool) []limiter.Limit {
	for _, l := range limits {
		to = append(to, limiter.Limit{
			Max: l.Max, Per: l.Per.Milliseconds(), Fine: l.resolution(false).Milliseconds(), Coarse: l.coarse().Milliseconds(), Fault: l.check(countDenied),
		})
	}
	return to
}

// limitText formats a limit for messages.
func limitText(e limiter.Limit) string {
	l := Limit{Max: e.Max, Per: clock.Milliseconds(e.Per)}
	if width := clock.Milliseconds(e.Fine); width != l.resolution(false) {
		l.Resolution = width
	}
	return l.String()
}
