package pace

import (
	"time"

	"github.com/slidegate/slidegate/internal/pipeline"
)

// A Reservation is a turn that was booked.
type Reservation struct {
	OK    bool          // false: the turn would lie beyond MaxAhead, so nothing was booked
	Delay time.Duration // until the turn, from the arrival of the reply; if not OK, until one can be booked
	At    time.Time     // the turn, in UTC, on the Redis clock; zero if not OK
	N     int64         // units
	Shift int64         // the ms by which all pauses together had shifted turns at that time, for Due and Cancel

	// Degraded reports that the Fallback booked the turn.
	Degraded bool

	// Cause is why Redis did not answer, if Degraded, as in window.Decision.
	Cause error `json:"-"`
}

// state is the part that all replies about an event have in common. Times are in ms.
type state struct {
	now   int64 // the time of the reply; 0 if there is none
	shift int64 // how far all pauses together have shifted turns
	end   int64 // the end of the last pause; 0 if there was none
}

// booking is the reply to a request for several turns in a row.
type booking struct {
	state
	turns []int64 // the booked turns
	until int64   // if there are fewer than requested: how long until the next one can be booked
	trace pipeline.Trace

	arrived  time.Time // on the clock of this process
	degraded bool      // by the Fallback
	cause    error     // if degraded: why Redis did not answer
}

// reservations returns the turns, of n units each.
func (b *booking) reservations(n int64) (all []Reservation) {
	for _, at := range b.turns {
		all = append(all, Reservation{true, milliseconds(at - b.now), time.UnixMilli(at).UTC(), n, b.shift, b.degraded, b.cause})
	}
	return all
}

// turn converts a Reservation to a turn on the clock of this process.
func (b *booking) turn(r Reservation) turn {
	return turn{Reservation: r, trace: b.trace, due: b.arrived.Add(r.Delay), shifted: b.shift}
}

func (b *booking) wait() time.Duration { return milliseconds(b.until) }

// since returns how far pauses have shifted turns beyond the given shift. After a Reset the sum
// starts over at 0.
func (s state) since(shift int64) int64 {
	if s.shift < shift {
		return s.shift
	}
	return s.shift - shift
}

// turn returns the current time of a turn. If that is before the end of the last pause, the turn
// came before it.
func (s state) turn(r Reservation) int64 { return r.At.UnixMilli() + s.since(r.Shift) }

// paused reports whether a turn came before a pause that was made after it was booked.
func (s state) paused(r Reservation) bool { return s.since(r.Shift) > 0 && s.turn(r) < s.end }

// due returns how long until a turn comes.
func (s state) due(r Reservation) (time.Duration, error) {
	paused, left := max(0, s.end-s.now), s.turn(r)-s.now
	if s.paused(r) || left < -maxLate.Milliseconds() {
		return 0, ErrMissed
	}
	// Apart from a pause, it is further ahead than when it was booked only if the clock has stepped
	// back.
	return milliseconds(max(paused, min(left, paused+r.Delay.Milliseconds()))), nil
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
