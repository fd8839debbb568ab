package ar1

import (
	"math"
	"time"
)

// rest is the level below which one counts as 0. It is less than 1/e, to which a level of 1 decays in Per, so that nothing is
// forgotten within a Per of its last unit: else an interval of Per could hold more than 2 x Max.
const rest = 0.25

// bounds is a limit in numbers.
type bounds struct {
	per  float64 // in ms
	max  float64
	c    float64 // 1 / (1 - e^(-1/Max))
	more float64 // see most
}

// newBounds computes C, by a formula that does not lose digits for a large Max.
func newBounds(l Limit) bounds {
	b := bounds{per: float64(l.Per) / float64(time.Millisecond), max: float64(l.Max)}
	b.c = -1 / math.Expm1(-1/b.max)
	b.more = min(0.001/b.per+b.c*1e-15, 0.2/b.c)
	return b
}

// most is the highest level at which n units are admitted: C - n, and a little more. That is as much as decays in a us, the step of
// the clock, and what the errors of doubles add up to; else a steady flow of Max per Per, which comes up to it, would be
// denied now and then. It is less than 1/4 of a unit in all: with more, an interval of Per could hold more than 2 x Max.
func (b bounds) most(n float64) float64 { return (b.c - n) * (1 + b.more) }

// after is a level some time later. It stays as it is for a time below 0, when the clock has stepped back.
func (b bounds) after(x float64, us int64) float64 {
	x *= math.Exp(-float64(max(0, us)) / 1000 / b.per)
	if x < rest {
		return 0
	}
	return x
}

// add adds n units to a level. Where they do not fit, it stops at C, or stays where it was above.
func (b bounds) add(x, n float64) float64 {
	if x > b.most(n) {
		return max(x, b.c)
	}
	return x + n
}

// usage tells how many units of Max cannot be admitted at once, how long until n can, and how long until the level counts as
// 0, in whole ms.
func (b bounds) usage(x, n float64) (used, retry, reset int64) {
	most := b.most(n)
	used = int64(b.max - math.Floor(min(b.max, max(0, b.c-x/(1+b.more)))))
	if x > most {
		retry = whole(b.per * math.Log(x/most))
	}
	if x > 0 {
		reset = whole(b.per * math.Log(x/rest))
	}
	return used, retry, reset
}

// whole rounds a wait up to at least 1 ms.
func whole(ms float64) int64 { return max(1, int64(math.Floor(ms))+1) }

// one is the time at which a level at now will have decayed to 1 (or was 1), in us; 0 if the level is 0.
func (b bounds) one(x float64, now int64) int64 {
	if x == 0 {
		return 0
	}
	return int64(math.Floor(float64(now) + 1000*b.per*math.Log(x) + 0.5))
}

// newLimitState is what a usage, and the time at which the level will have decayed to 1, say of a limit.
func newLimitState(u Usage, one, now int64) LimitState {
	per := float64(u.Limit.Per)
	s := LimitState{Usage: u, HalfLife: time.Duration(per * math.Ln2)}
	if one != 0 {
		s.Level = math.Exp(float64(one-now) * float64(time.Microsecond) / per)
	}
	s.Rate = s.Level / u.Limit.Per.Seconds()
	return s
}
