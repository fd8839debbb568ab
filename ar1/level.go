package ar1

import (
	"math"

	"github.com/slidegate/slidegate/internal/engine"
)

// minLevel is the smallest level that does not count as 0. It is less than 1/e, to which a level of
// 1 decays in Per. So nothing is forgotten within a Per of its last unit. Otherwise an interval of
// Per could hold more than 2 x Max.
const minLevel = 0.25

// bounds holds a limit in the numbers used to decide.
type bounds struct {
	per       float64 // in ms
	max       float64
	excess    float64 // C - Max, where C = 1 / (1 - e^(-1/Max))
	tolerance float64 // relative; see highest
}

// newBounds returns the numbers of a limit. It computes C - Max directly, so that a large Max loses
// no digits. From 20 on it uses a series in 1/Max (with the Bernoulli numbers), which is accurate
// to 10^-15. ar1.lua computes it the same way.
func newBounds(l engine.Limit) bounds {
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

// highest returns the highest level at which n units are allowed: C - n, and a little more. The
// tolerance covers what decays in a µs, the step of the clock, and the rounding errors of doubles.
// Without it, a steady flow of Max per Per, which reaches C - n, would be denied now and then. In
// total it is at most 1/5 of a unit: with 1/4, an interval of Per could hold more than 2 x Max.
func (b bounds) highest(n float64) float64 { return (b.max - n + b.excess) * (1 + b.tolerance) }

// after returns a level after some time. If the time is negative, because the clock has stepped
// back, it returns the level unchanged.
func (b bounds) after(x float64, us int64) float64 {
	x *= math.Exp(-float64(max(0, us)) / 1000 / b.per)
	if x < minLevel {
		return 0
	}
	return x
}

// add adds n units to a level. If they do not fit, the level stops where an allowed request may
// bring it, or stays where it was if that is higher.
func (b bounds) add(x, n float64) float64 { return max(x, min(x, b.highest(n))+n) }

// usage returns the units of Max that cannot be allowed at once, the wait until n can, and the wait
// until the level counts as 0, in whole ms.
func (b bounds) usage(x, n float64) (used, retry, reset int64) {
	used = int64(b.max - math.Floor(min(b.max, max(0, (b.highest(n)-x)/(1+b.tolerance)+n))))
	if x > 0 {
		reset = 1 + int64(b.per*math.Log(x/minLevel))
	}
	return used, b.wait(x, b.highest(n)), reset
}

// wait returns how many whole ms a level takes to decay to another one.
func (b bounds) wait(x, to float64) int64 {
	if x <= to {
		return 0
	}
	ms := math.Floor(b.per * math.Log(x/to))
	if ms < 1 || x*math.Exp(-ms/b.per) > to {
		ms++
	}
	return int64(ms)
}
