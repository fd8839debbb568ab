package engine

import (
	"fmt"
	"sync/atomic"
	"time"
)

// A request asks the script about one event, usually for one attempt.
type request struct {
	question
	key      string
	attempts int // above 1 only for attempts of one unit

	call       *call
	slotRange  *slotRange
	rangeIndex int
	began      time.Duration // when its call began; times count from the making of the limiter
	doneAt     time.Duration // when its last batch was done
	probe      bool          // the circuit breaker is open, and this request probes

	state atomic.Int32
	batch *batch   // the batch that took it, once state is sent
	next  *request // the next one merged into the same script call, in order of arrival

	reply reply // if cause is nil
	cause error // why there is no reply
	err   error // cause, and whether units may have been counted
}

// A question holds what a request asks, apart from the event.
type question struct {
	verb   string
	now    string // for the script; empty: the clock of the server
	n      int64
	limits *Limits  // of an attempt or a peek
	args   []string // the last arguments
}

// The states of a request.
const (
	idle   = iota // neither queued nor in flight
	queued        // no sender has taken it
	sent          // in a batch
	done          // its batch is done, and its call is being notified
	left          // its caller no longer waits for it
)

// prepare sets what a request asks.
func (q *request) prepare(s *redis, k string, ask question) {
	q.question, q.key, q.attempts = ask, k, 1
	q.rangeIndex = s.slotRange(k)
	q.slotRange = &s.ranges[q.rangeIndex]
}

// merges reports whether the request is for attempts of one unit. Several such requests can become
// one script call.
func (q *request) merges() bool {
	return q.n == 1 && (q.verb == string(Allow) || q.verb == string(Count))
}

// A reply is what the script replied to a request, or to several merged requests.
type reply struct {
	verb  string // that was sent
	raw   []int64
	first int // the index of the request's first attempt among those merged

	took   time.Duration // from sending to reply
	merged bool          // it is the reply to several attempts
	batch  int           // requests in its batch
}

// attempt returns the reply to attempt i of the request.
func (q *request) attempt(i int) (Reply, error) {
	r := Reply{Trace: q.trace()}
	if q.err != nil {
		return r, q.err
	}
	limits := len(q.limits.list)
	raw, width := q.reply.raw, 3*limits
	i += q.reply.first
	if len(raw) < 2+width || (len(raw)-2)%width != 0 || !q.reply.covers(i, (len(raw)-2)/width) {
		err := fmt.Errorf("the script replied %d integers to %s for %d limits", len(raw), q.reply.verb, limits)
		return r, explain(err, q.key, q.verb)
	}
	r.Grant(Verb(q.verb), q.n, q.granted(i))
	r.At = raw[1]
	rows := raw[2:]
	r.setRows(rows[width*min(i, len(rows)/width-1):][:width])
	if q.reply.merged && q.reply.verb == string(Some) {
		r.rewind(raw[0]-1-int64(i), limits)
	}
	return r, nil
}

// granted returns how many units attempt i was granted.
func (q *request) granted(i int) int64 {
	switch fit := q.reply.raw[0]; {
	case Verb(q.verb).partial():
		return min(fit, q.n)
	case int64(i) < fit:
		return q.n
	}
	return 0
}

func (q *request) trace() Trace {
	return Trace{SlotRange: q.rangeIndex, InRedis: q.reply.took, Merged: q.reply.merged, Batch: q.reply.batch}
}

// covers reports whether a reply with this number of rows can answer attempt i.
func (r reply) covers(i, rows int) bool {
	switch r.verb {
	case verbEach: // the last row also answers all later attempts
		return true
	case verbCountEach:
		return i < rows
	}
	return rows == 1
}

// rewind changes the rows from after some units of window were admitted, all at one time, to those
// from before the last units.
func (r *Reply) rewind(units int64, limits int) {
	for i := 0; units > 0 && i < limits; i++ {
		row := r.Row(i)
		row[0], row[1] = row[0]-units, 0
	}
}
