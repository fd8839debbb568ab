package limiter

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/send"
)

// Reply is the reply to one request, as integers in the units of the scripts.
type Reply struct {
	Allowed bool
	Full    bool  // the event is new, and memory had no room for it
	Granted int64 // units that every limit allows: all or none, unless the verb is partial
	Counted int64 // units that the request counted
	At      int64 // the time of the decision, in units of the clock

	Key        string     // the event's key in Redis; "" if it was not computed
	Trace      send.Trace // of the Redis call, even if there is no reply
	Remembered bool       // the reply comes from the denial cache

	few  [3 * fewLimits]int64
	many []int64 // the rows, if there are more than fewLimits
}

// decode returns the Reply to q. If q was merged, the script's reply covers all merged attempts of
// one unit, and that of q is number q.First. The verbs each and counteach reply the state after each
// attempt, and all other verbs reply one state: the last.
func decode(q *send.Request, limits *Limits, v Verb) (Reply, error) {
	r := Reply{Key: q.Key, Trace: q.Trace}
	if q.Err != nil {
		return r, q.Err
	}
	raw, width, verb := q.Reply, 3*len(limits.list), q.Sent()
	units, i, states := q.Units, q.First, int64((len(raw)-2)/width)
	valid := len(raw) >= 2+width && (len(raw)-2)%width == 0
	switch verb {
	case verbEach: // the last state also applies to all later attempts
		i = min(i, states-1)
	case verbCountEach:
		valid = valid && i < states
	default:
		valid, i = valid && states == 1, 0
	}
	if !valid {
		return r, q.Explain(fmt.Errorf("the script replied %d integers to %s for %d limits", len(raw), verb, len(limits.list)))
	}
	fit, rows := raw[0], raw[2:][width*int(i):][:width]
	r.At = raw[1]
	r.setRows(rows)
	granted := int64(0)
	switch {
	case v.Partial():
		granted = min(fit, units)
	case q.First < fit:
		granted = units
	}
	r.Grant(v, units, granted)
	if q.Trace.Merged && verb == string(Some) { // as before the later attempts, which were counted at the same instant
		for k, later := 0, fit-1-q.First; later > 0 && k < len(limits.list); k++ {
			row := r.Row(k)
			row[0], row[1] = row[0]-later, 0
		}
	}
	return r, nil
}

// Grant sets how many of n units were granted. From that, it also sets how many units were counted,
// and whether the request is allowed.
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

// Full returns the reply to a request for n units of a new event when memory has no room. Nothing
// is counted. If allow is true, the request is allowed.
func Full(allow bool, limits []Limit, at, n int64) Reply {
	r, wait := Reply{Full: true, At: at}, health.RecoveryDelay.Milliseconds()
	if allow {
		r.Allowed, r.Granted, wait = true, n, 0
	}
	for i := range limits {
		r.Granted = min(r.Granted, limits[i].Max)
		r.SetRow(i, len(limits), 0, wait, 0)
	}
	return r
}

// ErrFull is the error for a Charge to a new event when memory has no room.
var ErrFull = errors.New("nothing was counted, because memory already holds MaxEvents events; raise it")

// fewLimits is how many rows a Reply can hold without allocating.
const fewLimits = 4

// Row returns three numbers for limit i: the units used, the time until the limit would allow the
// same request once more, and the time until the limit is as if it had never been used. Times are
// in ms.
func (r *Reply) Row(i int) []int64 { return r.rows()[3*i : 3*i+3] }

// SetRow sets the three numbers for limit i; see Row. The parameter limits is the total number of
// limits.
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

// setRows copies rows, from a script's reply, into r.
func (r *Reply) setRows(rows []int64) {
	if len(rows) > len(r.few) {
		r.many = slices.Clone(rows)
		return
	}
	copy(r.few[:], rows)
}

// Rows splits a reply to the verb inspect, without its head, into one row per limit. A row consists
// of three integers, the number of buckets, and the time and units of each bucket. Rows returns
// false if the reply is malformed, for example if it ends within a row.
func Rows(reply []int64) (rows [][]int64, ok bool) {
	for len(reply) > 0 {
		if len(reply) < 4 || reply[3] < 0 || reply[3] > int64(len(reply)-4)/2 {
			return nil, false
		}
		n := 4 + 2*reply[3]
		rows, reply = append(rows, reply[:n]), reply[n:]
	}
	return rows, true
}

// Buckets returns the buckets listed in a row. B is window.Bucket.
func Buckets[B ~struct {
	Last  time.Time
	Units int64
}](c clock.Clock, row []int64) (buckets []B) {
	for pairs := row[4:]; len(pairs) > 0; pairs = pairs[2:] {
		buckets = append(buckets, B{Last: c.Time(pairs[0]), Units: pairs[1]})
	}
	return buckets
}

// Malformed returns the error for a reply that no Slidegate script would send.
func (l *core) Malformed() error {
	return l.Wrap(fmt.Errorf("the reply does not match the header of %s; remove the script that Redis holds under this hash", l.File))
}

// The kinds of observations: the outcomes of requests, and the kinds of health.Report.
const (
	Allowed   = "allowed"
	Denied    = "denied"
	Outage    = "outage"
	Uncertain = "uncertain"
	Refused   = "refused"
	Peeked    = "peeked"
	Charged   = "charged"

	OutageBegan = health.OutageBegan
	OutageEnded = health.OutageEnded
)

// KindOf returns the kind of observation for a request with the verb v.
func KindOf(v Verb, allowed bool, err error) string {
	switch {
	case v == Peek:
		return Peeked
	case errors.Is(err, health.ErrUncertain):
		return Uncertain
	case errors.Is(err, health.ErrOutage):
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
