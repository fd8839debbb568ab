package ar1

import (
	"math"

	"github.com/slidegate/slidegate/internal/limiter"
)

// minLevel is the smallest level that does not count as 0. It is less than 1/e, to which a level of
// 1 decays in Per, so no event is forgotten within Per of its last unit. Otherwise an interval of
// length Per could hold more than 2 x Max units.
const minLevel = 0.25

// bounds holds the numbers that decisions under a limit use.
type bounds struct {
	per       float64 // in ms
	max       float64
	excess    float64 // C - Max, where C = 1 / (1 - e^(-1/Max))
	tolerance float64 // relative; see highest
}

// newBounds returns the bounds of a limit. It computes C - Max directly, so that no digits are lost
// if Max is large. For a Max of 20 or more, it uses a series in 1/Max (with Bernoulli numbers) that
// is accurate to 10^-15. ar1.lua computes the bounds in the same way.
func newBounds(l limiter.Limit) bounds {
	b := bounds{per: float64(l.Per), max: float64(l.Max)}
	if b.max < 20 {
		b.excess = 1/(1-math.Exp(-1/b.max)) - b.max
	} else {
		inverse := 1 / b.max
		square := inverse * inverse
		b.excess = 0.5 + inverse*(1/12.0-square*(1/720.0-square/30240))
	}
	b.tolerance = min(0.001/b.per+b.max*1e-15, 0.18/b.max)
	return b
}

// highest returns the highest level at which n units are allowed: C - n plus a tolerance. The
// tolerance covers the decay within 1 µs, which is the resolution of the clock, and the rounding
// errors of doubles. Without it, a steady flow of Max units per Per, which reaches C - n, would
// occasionally be denied. The tolerance is at most 1/5 of a unit: if it were 1/4, an interval of
// length Per could hold more than 2 x Max units.
func (b bounds) highest(n float64) float64 { return (b.max - n + b.excess) * (1 + b.tolerance) }

// after returns what the level x has decayed to after us microseconds. If us is negative, because
// the clock has stepped back, x does not decay.
func (b bounds) after(x float64, us int64) float64 {
	x *= math.Exp(-float64(max(0, us)) / 1000 / b.per)
	if x < minLevel {
		return 0
	}
	return x
}

// add returns the level x after counting n units. If the units do not fit, the level rises only as
// far as an allowed request could raise it, and never falls.
func (b bounds) add(x, n float64) float64 { return max(x, min(x, b.highest(n))+n) }

// usage returns how many of Max units are not available at the level x, the wait until n units are
// allowed, and the wait until the level counts as 0. The waits are in whole ms.
func (b bounds) usage(x, n float64) (used, retry, reset int64) {
	most := b.highest(n)
	used = int64(b.max - math.Floor(min(b.max, max(0, (most-x)/(1+b.tolerance)+n))))
	if x > most {
		ms := math.Floor(b.per * math.Log(x/most))
		if ms < 1 || x*math.Exp(-ms/b.per) > most {
			ms++
		}
		retry = int64(ms)
	}
	if x > 0 {
		reset = 1 + int64(b.per*math.Log(x/minLevel))
	}
	return used, retry, reset
}
