package window

import (
	"time"

	"github.com/slidegate/slidegate/internal/engine"
)

// Observation is the argument of Config.Observe. It holds no event, so that all of it can go into
// metrics and traces.
type Observation struct {
	Limiter  string        // Config.Name
	Plan     string        // of the limiter that was called, from WithPlan; "" if it has none
	Kind     Kind          // what happened
	Units    int64         // how many an attempt or a peek asked for
	Decision Decision      // the answer; zero if there is none
	Took     time.Duration // from call to answer, of an attempt or a peek

	Full bool // the event was new, and there was no room for it in memory: see Config.MaxEvents

	// How Redis was asked by an attempt or a peek. Where nothing was sent, all except SlotRange are
	// zero.
	InRedis    time.Duration // from sending to reply, for the whole pipeline of the request; 0 if the caller left before
	Merged     bool          // one script call decided several attempts on the event
	Batch      int           // requests in the pipeline of this one, with it: 1 to 128; 0 if the caller left before
	Remembered bool          // the denial cache answered
	SlotRange  int           // which 64th of the hash slots, from 0, also of an outage; 0 if the server is no cluster
}

// Kind is the subject of an Observation. Its text can be a label.
type Kind string

// The kinds. Their texts are their names in lower case, as in "outage began"; that of KindCacheOff
// is "denial cache off". The first five are how an attempt ended: one by Allow, AllowN, AllowUpTo
// or AllowEach, or one inside Wait. KindPeeked is a peek, however it ended. In each slot range,
// KindOutageBegan and KindOutageEnded alternate.
const (
	KindAllowed   Kind = engine.Allowed   // units were admitted: all, or some by AllowUpTo
	KindDenied    Kind = engine.Denied    // not admitted, also where denied attempts count
	KindOutage    Kind = engine.Outage    // ErrOutage: nothing was counted
	KindUncertain Kind = engine.Uncertain // ErrUncertain: it may have been counted
	KindRefused   Kind = engine.Refused   // an error of the caller's: of cost, event or context, or a value in Redis that is no record
	KindPeeked    Kind = engine.Peeked    // PeekN: it counts nothing
	KindCharged   Kind = engine.Charged   // Charge, or Settle of too low an estimate: all units were counted

	KindOutageBegan Kind = engine.OutageBegan // three calls in a row failed; until one succeeds, one call a second goes to Redis
	KindOutageEnded Kind = engine.OutageEnded // a call succeeded

	KindCacheOff Kind = engine.CacheOff // reported once: the client keeps no values in its cache, so DenialCache is of no use
)
