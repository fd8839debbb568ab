package ar1

import (
	"fmt"
	"slices"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/internal/report"
	"github.com/slidegate/slidegate/lua"
	"github.com/slidegate/slidegate/window"
)

const maxUnits = 1e7 // rounding errors of doubles grow with Max²: at this Max, they reach 1/10 of a unit

// base converts the configuration into the form that all kinds of limiters share.
func (cfg Config) base() limiter.Config {
	return limiter.Config{
		Kind: "a", Script: func(string) *lua.Script { return lua.AR1 }, File: "ar1.lua", MaxUnits: maxUnits,
		Name: cfg.Name, CountDenied: cfg.CountDenied, Secret: slices.Clone(cfg.Secret), Timeout: cfg.Timeout, MaxEvents: cfg.MaxEvents,
		Clock: clock.Micros(cfg.Now), Notify: cfg.report().Outages(cfg.Name),
	}
}

func (cfg Config) report() report.To { return report.To{Observe: cfg.Observe, OnDenied: cfg.OnDenied} }

// baseLimits converts limits into the form that all kinds of limiters share.
func baseLimits(limits []window.Limit) (all []limiter.Limit) {
	for _, l := range limits {
		fault := limiter.CheckRange(l.Max, maxUnits, "10^7", l.Per)
		if fault == nil && l.Resolution != 0 {
			fault = fmt.Errorf("a Resolution of %v; leave it at 0, because a level has no buckets", l.Resolution)
		}
		all = append(all, limiter.Limit{Max: l.Max, Per: l.Per.Milliseconds(), Fault: fault})
	}
	return all
}
