package engine

import (
	"errors"
	"slices"
	"time"
)

// Reply is the answer to one request, in the integers of the scripts.
type Reply struct {
	Allowed  bool
	Degraded bool  // the Fallback answered, so the rows are those of its limits
	Full     bool  // the event is new, and there was no room for it in memory
	Granted  int64 // units that every limit admits: all or none, unless the request can be granted in part
	Counted  int64 // units that the request counted
	At       int64 // the time of the decision, in units of the clock
	Trace    Trace

	few  [3 * fewLimits]int64
	many []int64 // the rows, if there are more than fewLimits
}

// A Trace records how Redis was asked, even if it gave no answer.
type Trace struct {
	SlotRange  int           // which sixty-fourth of the hash slots
	InRedis    time.Duration // from sending to reply
	Merged     bool          // one script call answered several attempts
	Batch      int           // requests in the batch
	Remembered bool          // the denial cache answered
}

// Grant sets how many of n units were granted. It also sets what follows from that: how many were
// counted, and whether the request is allowed.
func (r *Reply) Grant(v Verb, n, granted int64) {
	r.Granted, r.Allowed = granted, granted > 0
	switch v {
	case Allow, Some:
		r.Counted = granted
	case Count, CountSome:
		r.Counted = n
	case Charge:
		r.Counted, r.Allowed = n, granted == n
	}
}

// Full returns the reply to a request on a new event for which there is no room. It counts nothing.
func Full(allow bool, limits []Limit, at, n int64) Reply {
	r, wait := Reply{Full: true, At: at}, RecoveryDelay.Milliseconds()
	if allow {
		r.Allowed, r.Granted, wait = true, n, 0
	}
	for i := range limits {
		r.Granted = min(r.Granted, limits[i].Max)
		r.SetRow(i, len(limits), 0, wait, 0)
	}
	return r
}

// ErrFull is the error of a Charge on a new event for which there is no room.
var ErrFull = errors.New("nothing was counted, since as many events are held in memory as MaxEvents says; raise it")

// fewLimits is how many rows a Reply holds without an allocation.
const fewLimits = 5

// Row returns three numbers of limit i. The first is the units used. The second is the time until
// the limit would admit the same request once more. The third is the time until the limit is as if
// never used. Times are in ms.
func (r *Reply) Row(i int) []int64 { return r.rows()[3*i : 3*i+3] }

// SetRow sets the three numbers of limit i; see Row. Limits is the number of all limits.
func (r *Reply) SetRow(i, limits int, used, retryAfter, resetAfter int64) {
	if limits > fewLimits && r.many == nil {
		r.many = make([]int64, 3*limits)
	}
	row := r.Row(i)
	row[0], row[1], row[2] = used, retryAfter, resetAfter
}

func (r *Reply) rows() []int64 {
	if r.many != nil {
		return r.many
	}
	return r.few[:]
}

// setRows copies the rows of a script's reply.
func (r *Reply) setRows(rows []int64) {
	if len(rows) > len(r.few) {
		r.many = slices.Clone(rows)
		return
	}
	copy(r.few[:], rows)
}

// Event is a report of a limiter that is not a decision.
type Event struct {
	Kind  string // OutageBegan, OutageEnded or CacheOff
	Range int    // of an outage: which sixty-fourth of the hash slots
}

// The kinds of reports: how requests end, and the kinds of an Event.
const (
	Allowed     = "allowed"
	Denied      = "denied"
	Outage      = "outage"
	Uncertain   = "uncertain"
	Refused     = "refused"
	Peeked      = "peeked"
	Charged     = "charged"
	OutageBegan = "outage began"
	OutageEnded = "outage ended"
	CacheOff    = "denial cache off"
)

// KindOf returns how a request ended.
func KindOf(v Verb, allowed bool, err error) string {
	switch {
	case v == Peek:
		return Peeked
	case errors.Is(err, ErrUncertain):
		return Uncertain
	case errors.Is(err, ErrOutage):
		return Outage
	case err != nil:
		return Refused
	case v == Charge:
		return Charged
	case allowed:
		return Allowed
	}
	return Denied
}
