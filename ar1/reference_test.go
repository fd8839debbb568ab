package ar1_test

import (
	"math"
	"time"

	"github.com/slidegate/slidegate/window"
)

// reference is the model that limiters are compared with. It keeps every counted attempt on one
// event, together with the time for which the attempt has decayed. For every answer it adds up all
// attempts, whereas the limiters keep one number. It shares no code with ar1, and has no tolerance
// for rounding: C is exactly 1 / (1 - e^(-1/Max)).
type reference struct {
	written int64                // when write was last called, in µs
	counted map[float64][]counts // by Per in ms
}

// counts holds units, and for how many ms they had decayed when the reference was last written.
type counts struct{ units, age float64 }

func newReference() *reference { return &reference{counted: map[float64][]counts{}} }

// peakOf returns the C of a limit.
func peakOf(l window.Limit) float64 { return -1 / math.Expm1(-1/float64(l.Max)) }

// sum returns the sum of all counted units, decayed to now. If now is before the last write,
// nothing decays.
func (r *reference) sum(per float64, now int64) (sum float64) {
	passed := float64(max(0, now-r.written)) / 1000
	for _, c := range r.counted[per] {
		sum += c.units * math.Exp(-(c.age+passed)/per)
	}
	return sum
}

// level returns the sum, or 0 if it is below 1/4.
func (r *reference) level(per float64, now int64) float64 {
	if x := r.sum(per, now); x >= 0.25 {
		return x
	}
	return 0
}

// nearMinimum reports whether a level is so close to 1/4 that 10 µs decide whether it counts as 0.
func (r *reference) nearMinimum(now int64) bool {
	for per := range r.counted {
		if x := r.sum(per, now); x > 0 && math.Abs(per*math.Log(4*x)) < tolerance {
			return true
		}
	}
	return false
}

// write permanently decays all counted units to now, and forgets levels below 1/4.
func (r *reference) write(now int64) {
	passed := float64(max(0, now-r.written)) / 1000
	for per, log := range r.counted {
		if r.level(per, now) == 0 {
			delete(r.counted, per)
		}
		for i := range log {
			log[i].age += passed
		}
	}
	r.written = now
}

// tolerance is the difference in ms below which the reference cannot say which of two answers is
// correct.
const tolerance = 0.010

// wait returns how long it takes, in ms, until the level x has decayed so far that n units fit. It
// is negative if they already fit.
func wait(l window.Limit, x float64, n int64) float64 {
	return perOf(l) * math.Log(x/(peakOf(l)-float64(n)))
}

// fits reports whether n units fit under all limits, and whether the answer depends on less than 10
// µs.
func (r *reference) fits(limits []window.Limit, n, now int64) (fits, ambiguous bool) {
	fits = true
	for _, l := range limits {
		w := wait(l, r.level(perOf(l), now), n)
		fits, ambiguous = fits && w <= 0, ambiguous || math.Abs(w) < tolerance
	}
	return fits, ambiguous
}

// count counts n units under every limit. If they do not fit, it counts as many as raise the level
// to C.
func (r *reference) count(limits []window.Limit, n, now int64) {
	r.write(now)
	for _, l := range limits {
		per := perOf(l)
		if units := min(float64(n), peakOf(l)-r.level(per, now)); units > 0 {
			r.counted[per] = append(r.counted[per], counts{units: units})
		}
	}
}

// refund gives back what is left of the units that d counted, if that is at least 1/4 of a unit.
func (r *reference) refund(limits []window.Limit, d window.Decision, now int64) {
	passed, left := float64(max(0, max(now, r.written)-d.At.UnixMicro()))/1000, map[float64]float64{}
	for _, l := range limits {
		per := perOf(l)
		if x, units := r.level(per, now), float64(d.Counted)*math.Exp(-passed/per); holds(d, l) && x > 0 && units >= 0.25 {
			left[per] = units
		}
	}
	if len(left) > 0 {
		r.write(now)
	}
	for per, units := range left {
		r.counted[per] = append(r.counted[per], counts{units: -units})
	}
}

func holds(d window.Decision, l window.Limit) bool {
	for _, u := range d.Usage {
		if u.Limit.Per == l.Per {
			return true
		}
	}
	return false
}

// isWait reports whether got is the exact wait rounded up to a whole ms. If rounding is ambiguous,
// it also accepts the next ms.
func isWait(got time.Duration, exact float64) bool {
	ms := float64(got) / float64(time.Millisecond)
	if exact <= 0 {
		return ms == 0 || exact > -tolerance && ms == 1
	}
	return ms == math.Ceil(exact) || ms == math.Ceil(exact-tolerance) || ms == math.Ceil(exact+tolerance)
}

func (r *reference) clone() *reference {
	c := &reference{written: r.written, counted: map[float64][]counts{}}
	for per, log := range r.counted {
		c.counted[per] = append([]counts(nil), log...)
	}
	return c
}
