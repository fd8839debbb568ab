package ar1

import (
	"math"

	"github.com/slidegate/slidegate/internal/engine"
)

// rest is the level below which one counts as 0. It is less than 1/e, to which a level of 1 decays in Per, so that nothing is
// forgotten within a Per of its last unit: else an interval of Per could hold more than 2 x Max.
const rest = 0.25

// bounds is a limit in numbers.
type bounds struct {
	per   float64 // in ms
	max   float64
	above float64 // C - Max, where C = 1 / (1 - e^(-1/Max))
	more  float64 // see most
}

// newBounds computes C - Max for itself, so that a large Max takes no digits from it; from 20 on by a series in 1/Max (that of the
// Bernoulli numbers) that is right to 10^-15. ar1.lua computes it alike.
func newBounds(l engine.Limit) bounds {
	b := bounds{per: float64(l.Per), max: float64(l.Max)}
	if b.max < 20 {
		b.above = 1/(1-math.Exp(-1/b.max)) - b.max
	} else {
		inverse := 1 / b.max
		square := inverse * inverse
		b.above = 0.5 + inverse*(1/12.0-square*(1/720.0-square/30240))
	}
	b.more = min(0.001/b.per+b.max*1e-15, 0.18/b.max)
	return b
}

// most is the highest level at which n units are admitted: C - n, and a little more. That is as much as decays in a us, the step of
// the clock, and what the errors of doubles add up to; else a steady flow of Max per Per, which comes up to it, would be
// denied now and then. It is at most 1/5 of a unit in all: with 1/4, an interval of Per could hold more than 2 x Max.
func (b bounds) most(n float64) float64 { return (b.max - n + b.above) * (1 + b.more) }

// after is a level some time later. It stays as it is for a time below 0, when the clock has stepped back.
func (b bounds) after(x float64, us int64) float64 {
	x *= math.Exp(-float64(max(0, us)) / 1000 / b.per)
	if x < rest {
		return 0
	}
	return x
}

// add adds n units to a level. Where they do not fit, it stops where an admission may bring it, or stays where it was above.
func (b bounds) add(x, n float64) float64 { return max(x, min(x, b.most(n))+n) }

// usage tells how many units of Max cannot be admitted at once, how long until n can, and how long until the level counts as
// 0, in whole ms.
func (b bounds) usage(x, n float64) (used, retry, reset int64) {
	used = int64(b.max - math.Floor(min(b.max, max(0, (b.most(n)-x)/(1+b.more)+n))))
	if x > 0 {
		reset = 1 + int64(b.per*math.Log(x/rest))
	}
	return used, b.wait(x, b.most(n)), reset
}

// wait is how many whole ms a level takes to decay to another one.
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
