package pipeline

import (
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/lua"
)

// A Request asks for a script call for one key or, with a Joint, for several keys.
type Request struct {
	// The user of NewRequest sets these fields before Do. They do not change.

	Script *lua.Script
	Key    string
	Verb   string
	Time   string   // for the script; "" means the time of the server
	Units  int64    // number of units; 0 if the script takes no such argument
	Rest   []string // the last arguments
	Reads  bool     // the request changes nothing, so it can always be repeated

	// Requests of the same Group can share a script call if Script, Verb and Time are equal. All
	// requests of a Group must have the same Rest. Requests for one unit of the same key are merged
	// if they have a Merge. Requests of one limiter for several keys share a call if one server has
	// all keys. A request without a Group always has its own script call.
	Group  string
	Merge  Merge // zero if the request does not merge
	OneKey bool  // the script takes a single key, so requests for different keys do not share a call
	InText bool  // the reply can contain strings instead of integers

	Joint *Joint // set if the request is for several keys

	// Do sets these fields. They do not change after that.

	call  *call
	slots *slotRange
	lane  *lane
	probe bool // this request is a probe of an open circuit breaker

	state atomic.Int32 // one of the states below

	// This field belongs to the sender that moved the request to sent, until the request is done.

	next *Request // the next request in the same part, in order of arrival

	// The sender sets batch before it moves the request to sent, and the other fields when the
	// request is done. After that, the fields belong to the call, and after Do to the user of the
	// request. If the call leaves before the request is done, the call sets cause, and the sender
	// sets nothing more.

	batch  *batch
	doneAt time.Duration
	cause  error // why there is no Reply

	Reply []int64        // the script's reply for the key, shared by all merged requests
	Texts map[int]string // if InText: strings in the Reply, by their indices
	First int64          // how many units of other merged requests come before the units of this request
	Trace Trace
	Err   error // why there is no Reply, and whether the script may have run
}

// A Merge specifies how requests for one unit of the same key are merged, in order of arrival.
type Merge struct {
	Verb   string      // the verb for their total; for one unit, its reply must be that of Request.Verb
	Script *lua.Script // the script that has the verb
	OneKey bool        // with the verb, the script takes a single key
}

// A Trace records how a request was sent, even if it got no reply.
type Trace struct {
	SlotRange int           // the slot range: which sixty-fourth of the hash slots
	InRedis   time.Duration // time from sending to the reply
	Merged    bool          // the reply answers several merged units; its verb is that of Request.Merge
	Batch     int           // number of requests in the batch
	Failure   *Failure      // why Redis did not answer, or nil; set by the caller of Do
}

// The states of a request. The call moves a request from idle to queued, and from done to idle. A
// sender moves it from queued to sent, and from sent to done. The call can also move it from queued
// or sent to left. Transitions for which sender and call compete use compare-and-swap, so that only
// one of them owns the request.
const (
	idle   = iota // neither queued nor in flight
	queued        // no sender has taken the request
	sent          // the request is in a batch
	done          // the batch is done, and the call is being notified
	left          // the caller no longer waits for the request
)

// Sent returns the verb that was sent: that of Merge if the request was merged, and Verb otherwise.
func (r *Request) Sent() string {
	if r.Trace.Merged {
		return r.Merge.Verb
	}
	return r.Verb
}

// Free makes a request from NewRequest available for reuse, unless a sender may still hold it.
func (r *Request) Free() { r.call.free() }

// Explain adds to err, an error of the request, whether the script may have run. Each script writes
// only once, as its last step, so an error reply means that it changed nothing.
func (r *Request) Explain(err error) error { return explain(err, r.name(), r.Reads) }

// merges reports whether the request can be merged with others.
func (r *Request) merges() bool { return r.Merge.Verb != "" }

// fits reports whether r can share a script call with other.
func (r *Request) fits(other *Request) bool {
	return r.Group != "" && r.Group == other.Group && r.Verb == other.Verb && r.Time == other.Time && r.Script == other.Script
}

// arriveLate records the outcome of a request whose caller has left. A reply within the timeout is
// a success, even if the caller had less time. A reply after the timeout only brings the next probe
// forward, to find out whether replies arrive in time again.
func (r *Request) arriveLate(err error, now time.Duration) {
	r.slots.abandoned.Add(-1)
	c := r.call
	if !isWell(err) {
		return
	}
	for slots := range r.ranges {
		if c.timeout < 0 || now-c.began <= c.timeout {
			slots.succeeded(c.ctx, now)
		} else {
			slots.probeSoon(now)
		}
	}
}

// ranges yields the request's slot range and, if there is a Joint, the same slot range of the other
// limiters.
func (r *Request) ranges(yield func(*slotRange) bool) {
	if !yield(r.slots) || r.Joint == nil {
		return
	}
	for _, p := range r.Joint.Others {
		if !yield(p.slots(r.Trace.SlotRange)) {
			return
		}
	}
}

// isAllowed reports whether the circuit breakers allow the request. If not, it sets the error. A
// request with a Joint can probe open breakers only when all of them are due for a probe. Otherwise
// the probe of one breaker would be wasted while another breaker still blocks the request.
func (r *Request) isAllowed() bool {
	for slots := range r.ranges {
		if !slots.isDue(r.call.began) {
			r.Err = slots.err()
			return false
		}
	}
	for slots := range r.ranges {
		allowed, probe := slots.allows(r.call.began)
		if r.probe = r.probe || probe; !allowed {
			r.Err = slots.err()
			return false
		}
	}
	return true
}

// failed counts a failure in the circuit breakers of the request.
func (r *Request) failed(now time.Duration, cause error) {
	for slots := range r.ranges {
		slots.failed(r.call.ctx, r.call.began, now, cause, false)
	}
}

// deliver passes the outcome of the request to its call. It returns false if the call has left.
func (r *Request) deliver(trace Trace, reply []int64, first int64, err error, now time.Duration) bool {
	call := r.call
	if !r.state.CompareAndSwap(sent, done) {
		return false
	}
	trace.SlotRange = r.Trace.SlotRange
	r.Reply, r.First, r.Trace, r.cause, r.doneAt = reply, first, trace, err, now
	call.done <- true
	return true
}
