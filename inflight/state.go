package inflight

import (
	"time"

	"github.com/slidegate/slidegate/internal/health"
)

// A phase says whether a lease needs its limiter.
type phase int

// The phases of a lease, their transitions, and who makes them.
const (
	// idle: the lease waits until it is due.
	//	to asking: step, when the lease is due
	//	to over:   step, at its end or at MaxHold; finish
	idle phase = iota

	// asking: a call to Redis about the lease is in flight.
	//	to idle: heard, unless the lease is lost
	//	to over: step, at its end or at MaxHold; heard, if Redis no longer holds the units; finish
	asking

	// over: the lease was released or lost. It has no transitions.
	over
)

// An action is what a limiter does with a lease next.
type action int

const (
	wait    action = iota // nothing
	renew                 // renew the lease in Redis, or acquire it there if only the Fallback holds it
	carry                 // let the Fallback hold the units for another TTL
	land                  // release the units in the Fallback, because Redis holds them
	giveUp                // release the units in Redis, because the lease is over
	lose                  // report that the lease is lost, and release its units
	overdue               // the same, because of MaxHold
)

// A state is what this process knows about a lease. It decides what to do, but makes no call and
// reads no clock. An action that it returns is recorded as done.
type state struct {
	ref
	ttl  time.Duration // never changes; neither do last and safe
	last time.Time     // when the lease ends because of MaxHold
	safe bool          // there is a Fallback

	phase    phase
	degraded bool            // the Fallback holds the units: from carry to land
	end      time.Time       // when the lease ends for its holder: earlier than in Redis
	renewAt  time.Time       // when the lease is due
	failure  *health.Failure // why the last call to Redis about the lease failed
}

// A ref identifies a lease to a store.
type ref struct {
	id    string // 8 random bytes
	n     int64  // never changes; neither do id and max
	max   int64
	token int64 // the token in Redis; 0 if only the Fallback holds the lease
}

// extend records that the lease is held for a TTL that started at began.
func (s *state) extend(began time.Time) {
	s.end, s.renewAt = earlier(s.last, began.Add(s.ttl-s.ttl/10)), began.Add(s.ttl/3)
}

// step returns what to do now with a lease that is not over, and when to call step again. A lease
// that will be due soon is renewed already, so that many leases need few calls.
func (s *state) step(now time.Time) (do action, again time.Time) {
	soon, late := now.Add(s.ttl/20), s.end // late: when a reply of Redis may come too late
	if s.safe {
		late = s.end.Add(-s.ttl / 10)
	}
	switch {
	case !s.last.After(now):
		s.phase = over
		return overdue, now.Add(s.ttl)
	case !s.end.After(now):
		s.phase = over
		return lose, now.Add(s.ttl)
	case s.phase == asking && s.safe && !late.After(now):
		s.degraded = true
		s.extend(now)
		return carry, soon
	case s.phase == asking:
		return wait, earlier(late, soon)
	case s.renewAt.After(soon):
		return wait, earlier(s.end, s.renewAt)
	}
	s.phase, s.renewAt = asking, now.Add(s.ttl/10) // when to retry if this call fails
	return renew, earlier(late, s.renewAt)
}

// heard returns what to do after a reply to the call in flight, which began at the given time. The
// token is 0 if Redis does not hold the units.
func (s *state) heard(began time.Time, token int64, err error) action {
	if s.phase == over {
		if token > 0 || err != nil && s.token == 0 { // the units were acquired, or may have been
			return giveUp
		}
		return wait
	}
	s.phase = idle
	if err != nil {
		s.failure = health.FailureIn(err)
	}
	switch {
	case token > 0:
		s.extend(began)
		s.token, s.failure = token, nil
		if !s.degraded {
			return wait
		}
		s.degraded = false
		return land
	case s.degraded && s.token > 0 && err == nil: // the lease has ended in Redis
		s.token = 0
		return wait
	case s.degraded || s.safe && health.IsOutage(err):
		s.degraded = true
		s.extend(began)
		return carry
	case err != nil:
		return wait
	}
	s.phase = over
	return lose
}

// finish ends the lease because its holder releases it. It returns false if the lease was already
// over.
func (s *state) finish() bool {
	ends := s.phase != over
	s.phase = over
	return ends
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
