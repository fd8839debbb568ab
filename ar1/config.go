package ar1

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/gate"
	"github.com/slidegate/slidegate/window"
)

const maxUnits = 1e7 // beyond it the errors of doubles add up to more than a part of a unit

// common is the configuration as every kind of limiter has it.
func (cfg Config) common() gate.Config[Usage] {
	limits := slices.Clone(cfg.Limits)
	c := gate.Config[Usage]{
		Name: cfg.Name, CountDenied: cfg.CountDenied, Secret: slices.Clone(cfg.Secret), Timeout: cfg.Timeout, DenialCache: cfg.DenialCache, Most: maxUnits,
		Clock: gate.Clock{Now: cfg.Now, Unit: time.Time.UnixMicro, Time: time.UnixMicro, End: 1 << 53, Year: 2255},
		Usage: func(i int, used, remaining int64, retryAfter, resetAfter time.Duration) Usage {
			return Usage{Limit: limits[i], Used: used, Remaining: remaining, RetryAfter: retryAfter, ResetAfter: resetAfter}
		},
		PerOf: func(u Usage) time.Duration { return u.Limit.Per },
	}
	for _, l := range limits {
		c.Limits = append(c.Limits, commonLimit(l))
	}
	if cfg.Fallback != nil {
		c.Fallback = cmp.Or(cfg.Fallback.gate, &gate.Limiter[Usage]{})
	}
	if cfg.Observe != nil {
		c.Observe = func(o gate.Observation[Usage]) {
			cfg.Observe(Observation{
				Limiter: cfg.Name, Kind: window.Kind(o.Kind), Units: o.Units, Decision: Decision(o.Decision), Took: o.Took, Part: o.Part,
			})
		}
	}
	return c
}

// commonLimit is a limit as every kind of limiter has it.
func commonLimit(l Limit) gate.Limit {
	text, _, _ := strings.Cut(l.String(), "@")
	fault := gate.CheckRange(l.Max, maxUnits, "10^7", l.Per)
	if fault == nil && l.Resolution != 0 {
		fault = fmt.Errorf("a Resolution of %v; leave it 0, since a level has no buckets", l.Resolution)
	}
	return gate.Limit{Text: text, Max: l.Max, Per: l.Per, Fault: fault}
}
