package window

import (
	"errors"
	"time"
)

// Observation is what Config.Observe is told. It names no event, so that all of it can go into metrics.
type Observation struct {
	Limiter  string        // Config.Name
	Kind     Kind          // what happened
	Units    int64         // of an attempt or a peek: how many it asked for
	Decision Decision      // of Allowed, Denied and, without an error, Peeked; the zero Decision else
	Took     time.Duration // of an attempt or a peek: from call to answer
	Part     int           // of an outage: which sixty-fourth of the hash slots, from 0; 0 for a server that is no cluster
}

// Kind says what an Observation is about. Its text can be a label.
type Kind string

// What a limiter tells. Begin and end of an outage take turns, for each part. The first six are how an attempt ended, by Allow or AllowN, also inside Wait; Peeked is a peek,
// however it ended.
const (
	Allowed   Kind = "allowed"
	Denied    Kind = "denied"
	Outage    Kind = "outage"    // ErrOutage: nothing was counted
	Uncertain Kind = "uncertain" // ErrUncertain: it may have been counted
	Refused   Kind = "refused"   // an error of the caller's: of cost, event or context, or a value in Redis that is no record
	Peeked    Kind = "peeked"

	OutageBegan Kind = "outage began" // three calls in a row failed; Redis is left alone for a second, and again until one succeeds
	OutageEnded Kind = "outage ended" // a call succeeded
)

// observed tells of an attempt or a peek.
func (l *Limiter) observed(v verb, n int64, d Decision, err error, began time.Time) {
	o := Observation{Limiter: l.cfg.Name, Kind: kindOf(d, err), Units: n, Decision: d, Took: time.Since(began)}
	if v == peek {
		o.Kind = Peeked
	}
	l.cfg.Observe(o)
}

func kindOf(d Decision, err error) Kind {
	switch {
	case errors.Is(err, ErrUncertain):
		return Uncertain
	case errors.Is(err, ErrOutage):
		return Outage
	case err != nil:
		return Refused
	case d.Allowed:
		return Allowed
	}
	return Denied
}
