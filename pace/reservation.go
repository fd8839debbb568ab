package pace

import (
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/send"
)

// A Reservation is a turn that was booked. A job queue can store it as JSON, without Cause, and pass
// it to Due and Cancel of any limiter with the same configuration. If Degraded, only the Fallback
// that booked it knows it.
type Reservation struct {
	OK    bool          // false if the turn would be beyond MaxAhead, so that nothing was booked
	Delay time.Duration // from the arrival of the reply until the turn or, if not OK, until a turn can be booked
	At    time.Time     // time of the turn, in UTC, on the Redis clock; zero if not OK
	Event string        // as passed to Reserve

	// Degraded reports whether the Fallback booked the turn.
	Degraded bool

	// Cause is why Redis did not answer, if Degraded, as in window.Decision.
	Cause error `json:"-"`

	booked
}

// booked is what Cancel and Due need in addition. It is embedded, with exported fields, so that it
// marshals although it is no part of the API.
type booked struct {
	N     int64 // units that were booked or, if not OK, asked for
	Shift int64 // ms by which all pauses together had shifted turns when this one was booked
}

// state is what all replies about an event have in common. Times are in ms.
type state struct {
	now   int64 // the time of the reply; 0 if there is no reply
	shift int64 // by how much all pauses together have shifted turns
	end   int64 // the end of the last pause; 0 if there was none
}

// booking is the reply to a request for several consecutive turns.
type booking struct {
	state
	turns []int64 // the booked turns
	until int64   // if there are fewer turns than requested, how long until the next turn can be booked
	trace send.Trace

	arrived  time.Time // when the reply arrived, on the clock of this process
	degraded bool      // the Fallback booked the turns
	cause    error     // if degraded: why Redis did not answer
}

// reservations returns the turns of n units each as Reservations.
func (b *booking) reservations(event string, n int64) (all []Reservation) {
	for _, at := range b.turns {
		r := b.reservation(event, n)
		r.OK, r.Delay, r.At = true, clock.Milliseconds(at-b.now), time.UnixMilli(at).UTC()
		all = append(all, r)
	}
	return all
}

// reservation returns a Reservation of n units that is not OK.
func (b *booking) reservation(event string, n int64) Reservation {
	return Reservation{Delay: b.wait(), Event: event, Degraded: b.degraded, Cause: b.cause, booked: booked{n, b.shift}}
}

// turn converts a Reservation to a turn on the clock of this process.
func (b *booking) turn(r Reservation) turn {
	return turn{Reservation: r, trace: b.trace, due: b.arrived.Add(r.Delay), shifted: b.shift}
}

func (b *booking) wait() time.Duration { return clock.Milliseconds(b.until) }

// since returns by how much pauses have shifted turns since the sum of all shifts was shift. After
// a Reset, the sum starts over at 0.
func (s state) since(shift int64) int64 {
	if s.shift < shift {
		return s.shift
	}
	return s.shift - shift
}

// turn returns the time of r's turn, including shifts since it was booked. A time before the end of
// the last pause means that the turn came before the pause.
func (s state) turn(r Reservation) int64 { return r.At.UnixMilli() + s.since(r.Shift) }

// paused reports whether r's turn came before a pause that started after the turn was booked.
func (s state) paused(r Reservation) bool { return s.since(r.Shift) > 0 && s.turn(r) < s.end }

// due returns how long it takes until r's turn comes.
func (s state) due(r Reservation) (time.Duration, error) {
	paused, left := max(0, s.end-s.now), s.turn(r)-s.now
	if s.paused(r) || left < -maxLate.Milliseconds() {
		return 0, ErrMissed
	}
	// Except for pauses, a turn is further away than when it was booked only if the clock has
	// stepped back.
	return clock.Milliseconds(max(paused, min(left, paused+r.Delay.Milliseconds()))), nil
}
