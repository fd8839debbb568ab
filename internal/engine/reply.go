package engine

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

// decode returns the Reply to q.
func decode(q *send.Request, limits *Limits, v Verb) (Reply, error) {
	r := Reply{Key: q.Key, Trace: q.Trace}
	if q.Err != nil {
		return r, q.Err
	}
	raw, width := q.Reply, 3*len(limits.list)
	n, i := q.Units, q.First
	if len(raw) < 2+width || (len(raw)-2)%width != 0 || !covers(q.Sent(), i, int64((len(raw)-2)/width)) {
		return r, q.Explain(fmt.Errorf("the script replied %d integers to %s for %d limits", len(raw), q.Sent(), len(limits.list)))
	}
	r.Grant(v, n, granted(raw[0], v, n, i))
	r.At = raw[1]
	rows := raw[2:]
	r.setRows(rows[width*min(int(i), len(rows)/width-1):][:width])
	if q.Trace.Merged && q.Sent() == string(Some) {
		r.rewind(raw[0]-1-i, len(limits.list))
	}
	return r, nil
}

// covers reports whether a reply to verb that has the given number of rows contains a row for unit
// i.
func covers(verb string, i, rows int64) bool {
	switch verb {
	case verbEach: // the last row also applies to all later attempts
		return true
	case verbCountEach:
		return i < rows
	}
	return rows == 1
}

// granted returns how many of n units are granted, given that fit units fit according to the
// script. If units merge, n is 1 and the result is for unit i.
func granted(fit int64, v Verb, n, i int64) int64 {
	switch {
	case v.Partial():
		return min(fit, n)
	case i < fit:
		return n
	}
	return 0
}

// rewind makes the rows describe the state before the last attempts of a merged call were counted;
// units is the number of those attempts. It is for package window, where all attempts of a merged
// call are counted at the same instant.
func (r *Reply) rewind(units int64, limits int) {
	for i := 0; units > 0 && i < limits; i++ {
		row := r.Row(i)
		row[0], row[1] = row[0]-units, 0
	}
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
