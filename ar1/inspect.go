package ar1

import (
	"math"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/window"
)

// snapshot converts the reply to the verb inspect, which the header of ar1.lua describes.
func (l *Limiter) snapshot(reply []int64) (Snapshot, error) {
	n := 2 + 4*len(l.limits)
	if len(reply) < n || (len(reply)-n)%3 > 0 {
		return Snapshot{}, l.base.Malformed()
	}
	s := Snapshot{At: l.base.Clock.Time(reply[1])}
	for i, limit := range l.limits {
		of := reply[2+4*i:]
		s.Limits = append(s.Limits, newLimitState(newUsage(limit, of), of[3]))
	}
	for others := reply[n:]; len(others) > 0; others = others[3:] {
		u := window.Usage{Limit: window.Limit{Per: clock.Milliseconds(others[0])}, ResetAfter: clock.Milliseconds(others[1])}
		s.Others = append(s.Others, newLimitState(u, others[2]))
	}
	return s, nil
}

// newLimitState returns the state of a limit from its Usage and its level in units of 10^-8.
func newLimitState(u window.Usage, level int64) LimitState {
	s := LimitState{Usage: u, Level: float64(level) / 1e8, HalfLife: time.Duration(float64(u.Limit.Per) * math.Ln2)}
	s.Rate = s.Level / u.Limit.Per.Seconds()
	return s
}
