package window

import (
	"cmp"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/gate"
)

// common is the configuration as every kind of limiter has it.
func (cfg Config) common() gate.Config[Usage] {
	limits := slices.Clone(cfg.Limits)
	c := gate.Config[Usage]{
		Name: cfg.Name, CountDenied: cfg.CountDenied, Secret: slices.Clone(cfg.Secret), Timeout: cfg.Timeout, DenialCache: cfg.DenialCache, Most: maxUnits,
		Clock: gate.Clock{Now: cfg.Now, Unit: time.Time.UnixMilli, Time: time.UnixMilli, End: maxTime, Year: 6429},
		Usage: func(i int, used, remaining int64, retryAfter, resetAfter time.Duration) Usage {
			return Usage{limits[i], used, remaining, retryAfter, resetAfter}
		},
		PerOf: func(u Usage) time.Duration { return u.Limit.Per },
	}
	for _, l := range limits {
		c.Limits = append(c.Limits, l.common(cfg.CountDenied))
	}
	if cfg.Fallback != nil {
		c.Fallback = cmp.Or(cfg.Fallback.gate, &gate.Limiter[Usage]{})
	}
	if cfg.Observe != nil {
		c.Observe = func(o gate.Observation[Usage]) {
			cfg.Observe(Observation{cfg.Name, Kind(o.Kind), o.Units, Decision(o.Decision), o.Took, o.Part})
		}
	}
	return c
}

// common is the limit as every kind of limiter has it.
func (l Limit) common(countDenied bool) gate.Limit {
	return gate.Limit{Text: l.String(), Max: l.Max, Per: l.Per, Resolution: l.resolution(countDenied), Fault: l.check(countDenied)}
}

const maxTime = 1 << 47 // the first ms that the script refuses, in the year 6429
