package pipeline

import (
	"sync/atomic"
	"time"
)

// A Request asks a script about one key.
type Request struct {
	// The maker of the request sets these before Do, and they do not change.

	Script *Script
	Key    string
	Verb   string
	Time   string   // for the script; empty means the clock of the server
	Units  int64    // number of units; 0 if the script takes no such argument
	Rest   []string // the last arguments
	Reads  bool     // it changes nothing, so it can always be repeated

	// Requests of a Group can share a script call if Script, Verb and Time agree. Those of one
	// Group have the same Rest. Those on one key merge if they have Merged: the verb for all their
	// Units, in order of arrival. Those of one limiter on several keys share a call if one server
	// has all keys. A request without a Group is a separate script call.
	Group  string
	Merged string
	OneKey bool // the script takes one key at a time, so requests on several keys share no call
	InText bool // the reply can contain strings instead of integers

	Joint *Joint // for a request for several keys; nil for others

	// Do sets these, and they do not change afterwards.

	call  *call
	slots *slotRange
	lane  *lane
	began time.Duration // when its call started; all times are relative to the creation of the Connection
	probe bool          // the circuit breaker is open, and this request probes

	state atomic.Int32 // see the constants

	// These belong to the sender that moved the request to sent, until it is done.

	next *Request // the next one merged into the same part, in order of arrival

	// The sender sets batch and claimed before it moves the request to sent, and the rest when it
	// is done. From then on they belong to the call, and after Do to the maker of the request. If
	// the call leaves first, it sets cause, and the sender sets nothing more.

	batch   *batch
	claimed time.Duration
	doneAt  time.Duration
	cause   error // why there is no Reply

	Reply []int64        // of the script, for the key: shared by all requests that merged
	Texts map[int]string // strings in the Reply, by their indices, if InText
	First int64          // how many units of other requests come before those of this one in a merged call
	Trace Trace
	Err   error // why there is no Reply, and whether the script may have run
}

// A Trace records how a request was sent, even if it got no reply.
type Trace struct {
	SlotRange int           // which sixty-fourth of the hash slots
	InRedis   time.Duration // from sending to reply
	Merged    bool          // one reply answers several requests of one unit each, by Request.Merged
	Batch     int           // requests in the batch
	Failure   *Failure      // why Redis did not answer; nil if it did; set by the caller of Do
}

// The states of a request. The call moves it from idle to queued, and from done to idle. A sender
// moves it from queued to sent, and from sent to done. The call can also move it from queued or
// sent to left. It changes hands by compare-and-swap, so that either the sender or the call has it.
const (
	idle   = iota // neither queued nor in flight
	queued        // no sender has taken it
	sent          // in a batch
	done          // its batch is done, and its call is being notified
	left          // its caller no longer waits for it
)

// Sent returns the verb of the script call that the Reply answers.
func (r *Request) Sent() string {
	if r.Trace.Merged {
		return r.Merged
	}
	return r.Verb
}

// Free returns a request of NewRequest for reuse, unless a sender may still hold it.
func (r *Request) Free() { r.call.free() }

// Explain adds to an error of the request whether the script may have run. The scripts write last
// and once, so an error reply means that they changed nothing.
func (r *Request) Explain(err error) error { return explain(err, r.name(), r.Reads) }

// fits reports whether the request can share a script call with another.
func (r *Request) fits(other *Request) bool {
	return r.Group != "" && r.Group == other.Group && r.Verb == other.Verb && r.Time == other.Time && r.Script.same(other.Script)
}

// isUnanswered reports whether no server has replied for this long to any request of the queue, or
// for much longer to this one.
func (r *Request) isUnanswered(now, least time.Duration) bool {
	switch state := r.state.Load(); {
	case state == sent && now-r.claimed >= slowReply*least:
		return true
	case state == sent || state == queued:
		return r.lane.queue.isSilent(now, least, r.call.crowd)
	}
	return false
}

// arriveLate records the outcome of a request whose caller has left. A reply within the timeout is
// a success, even if the caller had less time. After a later one, a probe shows whether replies
// come in time again.
func (r *Request) arriveLate(err error, now time.Duration) {
	r.slots.abandoned.Add(-1)
	c := r.call
	if !isWell(err) {
		return
	}
	for slots := range r.ranges {
		if c.timeout < 0 || now-r.began <= c.timeout {
			slots.succeeded(c.ctx, now)
		} else {
			slots.probeSoon(now)
		}
	}
}

// ranges yields the slot range of the request, and those of the other limiters of a Joint.
func (r *Request) ranges(yield func(*slotRange) bool) {
	if !yield(r.slots) || r.Joint == nil {
		return
	}
	for _, p := range r.Joint.Others {
		if !yield(&p.ranges[r.Trace.SlotRange]) {
			return
		}
	}
}

// isAllowed reports whether the circuit breakers let the request through. Otherwise it sets the
// error. A Joint probes those that are open once all of them are due: a probe of one would be lost
// while it waits for another.
func (r *Request) isAllowed() bool {
	for slots := range r.ranges {
		if !slots.isDue(r.began) {
			r.Err = slots.err()
			return false
		}
	}
	for slots := range r.ranges {
		allowed, probe := slots.allows(r.began)
		if r.probe = r.probe || probe; !allowed {
			r.Err = slots.err()
			return false
		}
	}
	return true
}

// failed counts a failure in the circuit breaker.
func (r *Request) failed(now time.Duration, cause error, together bool) {
	for slots := range r.ranges {
		slots.failed(r.call.ctx, r.began, now, cause, together)
	}
}

// deliver gives the call the outcome of its request. It returns false if the call has left.
func (r *Request) deliver(trace Trace, reply []int64, first int64, err error, now time.Duration) bool {
	call := r.call
	if !r.state.CompareAndSwap(sent, done) {
		return false
	}
	trace.SlotRange = r.Trace.SlotRange
	r.Reply, r.First, r.Trace, r.cause, r.doneAt = reply, first, trace, err, now
	call.done <- r
	return true
}
