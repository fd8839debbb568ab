package window

import (
	"time"

	"github.com/slidegate/slidegate/internal/engine"
)

// Observation is what Config.Observe is told. It names no event, so that all of it can go into
// metrics and traces.
type Observation struct {
	Limiter  string        // Config.Name
	Kind     Kind          // what happened
	Units    int64         // of an attempt or a peek: how many it asked for
	Decision Decision      // of Allowed, Denied and, without an error, Peeked; the zero Decision else
	Took     time.Duration // of an attempt or a peek: from call to answer

	Full bool // the event was new, and there was no room for it in memory: see Config.MaxEvents

	// How Redis was asked by an attempt or a peek. All are zero where nothing was sent, except the
	// SlotRange.
	InRedis    time.Duration // from sending to reply, of the whole pipeline that the request was in; 0 if the caller left before
	Merged     bool          // one script call decided several attempts on the event
	Batch      int           // requests that were sent as one pipeline, with this one: 1 to 512; 0 if the caller left before
	Remembered bool          // the denial cache answered
	SlotRange  int           // which sixty-fourth of the hash slots, from 0, also of an outage; 0 for a server that is no cluster
}

// Kind says what an Observation is about. Its text can be a label.
type Kind string

// The kinds. The first five are how an attempt ended: one by Allow, AllowN, AllowUpTo or AllowEach,
// or one inside Wait. Peeked is a peek, however it ended. The begin and the end of an outage
// alternate, for each slot range.
const (
	Allowed   Kind = engine.Allowed   // units were admitted: all, or some by AllowUpTo
	Denied    Kind = engine.Denied    // not admitted, also where denied attempts count
	Outage    Kind = engine.Outage    // ErrOutage: nothing was counted
	Uncertain Kind = engine.Uncertain // ErrUncertain: it may have been counted
	Refused   Kind = engine.Refused   // an error of the caller's: of cost, event or context, or a value in Redis that is no record
	Peeked    Kind = engine.Peeked    // PeekN: nothing was to be counted
	Charged   Kind = engine.Charged   // Charge, or Settle of too low an estimate: all units were counted

	OutageBegan Kind = engine.OutageBegan // three calls in a row failed; Redis is left alone for a second, and again until one succeeds
	OutageEnded Kind = engine.OutageEnded // a call succeeded

	CacheOff Kind = engine.CacheOff // told once: the client does not keep what it looks at, so DenialCache is of no use
)
