package send

import (
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/lua"
)

// A Request asks for a script call, waits for it, and holds the answer. Its fields have different
// owners: the user of NewRequest, the caller in Do, and the sender that takes the request.
type Request struct {
	office *office

	Call          // what to send: the user sets it before Do, and nothing changes it after that
	waiter        // the caller's
	shard  *shard // Do sets it
	probe  bool   // this request is a probe of an open circuit breaker; Do sets it

	state atomic.Int32 // one of the states below
	done  chan bool    // receives true when the request is finished, and false when the time in end has come
	batch *batch       // the sender sets it before it moves the request to sent
	next  *Request     // the sender's: the next request in the same part, in order of arrival

	// When it moves the request to finished, the sender sets these fields for the caller. If the caller
	// leaves first, it sets cause and Err itself. After Do, the Answer belongs to the user.

	Answer // what came back
	doneAt time.Duration
	cause  error // why there is no Reply
}

// newRequest returns an empty request.
func (o *office) newRequest() *Request {
	if r, _ := o.requests.Get().(*Request); r != nil {
		return r
	}
	return &Request{office: o, done: make(chan bool, 2)}
}

// Free makes a request from NewRequest available for reuse, unless a sender or the timer may still
// refer to it.
func (r *Request) Free() {
	if r.state.Load() == left || r.timed {
		return
	}
	o := r.office
	*r = Request{office: o, done: r.done, waiter: waiter{timer: r.timer, retries: retries{timer: r.retries.timer}}}
	o.requests.Put(r)
}

// A Call is a script call for one key or, with a Joint, for several keys.
type Call struct {
	Script *lua.Script
	Key    string
	Verb   string
	Time   string   // for the script; "" means the time of the server
	Units  int64    // number of units; 0 if the script takes no such argument
	Rest   []string // the last arguments
	Reads  bool     // the call changes nothing, so it can always be repeated
	InText bool     // the reply can contain strings instead of integers

	// Calls of the same Group can be one script call if Script, Verb and Time are equal. All calls of
	// a Group must have the same Rest. Calls for one unit of the same key are merged if they have a
	// Merge. Calls of one limiter for several keys are one script call if one server has all keys. A
	// call without a Group is always a script call of its own.
	Group  string
	Merge  Merge  // zero if the call does not merge
	OneKey bool   // the script takes a single key, so calls for different keys do not become one
	Joint  *Joint // set if the call is for several keys
}

// A Merge specifies how calls for one unit of the same key are merged, in order of arrival.
type Merge struct {
	Verb   string      // the verb for their total; for one unit, its reply must be that of Call.Verb
	Script *lua.Script // the script that has the verb
	OneKey bool        // with the verb, the script takes a single key
}

// An Answer is the outcome of a request.
type Answer struct {
	Reply []int64        // the script's reply for the key, shared by all merged requests
	Texts map[int]string // strings in the Reply, by their indices
	First int64          // how many units of other merged requests come before the units of this request
	Trace Trace
	Err   error // why there is no Reply, and whether the script may have run
}

// A Trace records how a request was sent, even if it got no reply.
type Trace struct {
	Master  string          // the ID of the master; "" if it is not known or the server is not a cluster
	InRedis time.Duration   // time from sending to the reply
	Merged  bool            // the reply answers several merged units; its verb is that of Call.Merge
	Batch   int             // number of requests in the batch
	Failure *health.Failure // why Redis did not answer, or nil; set by the user of Do
}

// The states of a request. Transitions for which sender and caller compete use compare-and-swap, so
// that only one of them sets the outcome. A request that is left is never used again.
//
//   - From idle to queued, and from finished to idle: the caller.
//   - From queued to sent, and from sent to finished: the sender.
//   - From queued or sent to left: the caller.
const (
	idle     = iota // neither queued nor in flight
	queued          // no sender has taken the request
	sent            // the request is in a batch
	finished        // the request has its outcome, and the caller is being notified
	left            // the caller no longer waits for the request
)

// Sent returns the verb that was sent: that of Merge if the request was merged, and Verb otherwise.
func (r *Request) Sent() string {
	if r.Trace.Merged {
		return r.Merge.Verb
	}
	return r.Verb
}

// Explain adds to err, an error of the request, whether the script may have run. Each script writes
// only once, as its last step, so an error reply means that it changed nothing.
func (r *Request) Explain(err error) error { return health.Explain(err, r.name(), r.Reads) }

// merges reports whether the call can be merged with others.
func (c *Call) merges() bool { return c.Merge.Verb != "" }

// fits reports whether c can be one script call with other.
func (c *Call) fits(other *Call) bool {
	return c.Group != "" && c.Group == other.Group && c.Verb == other.Verb && c.Time == other.Time && c.Script == other.Script
}

// shards yields the request's shard and, if there is a Joint, the shards of the other limiters for
// the same master.
func (r *Request) shards(yield func(*shard) bool) {
	if !yield(r.shard) || r.Joint == nil {
		return
	}
	for _, p := range r.Joint.Others {
		if !yield(p.shard(r.shard.lane.queue)) {
			return
		}
	}
}

// isAllowed reports whether the circuit breakers allow the request. If not, it sets the error. A
// request with a Joint can probe open breakers only when all of them are due for a probe. Otherwise
// the probe of one breaker would be wasted while another breaker still blocks the request.
func (r *Request) isAllowed() bool {
	for s := range r.shards {
		if !s.IsDue(r.began) {
			r.Err = s.Err()
			return false
		}
	}
	for s := range r.shards {
		allowed, probe := s.Allows(r.began)
		if r.probe = r.probe || probe; !allowed {
			r.Err = s.Err()
			return false
		}
	}
	return true
}

// failed counts a failure in the circuit breakers of the request.
func (r *Request) failed(now time.Duration, cause error) {
	for s := range r.shards {
		s.Failed(r.ctx, r.began, now, cause, false)
	}
}

// probeSoon makes the next request a probe of those circuit breakers of the request that are open.
func (r *Request) probeSoon(now time.Duration) {
	for s := range r.shards {
		s.ProbeSoon(now)
	}
}

// deliver passes the outcome of the request to its caller. If the caller has left, deliver records
// the outcome in the circuit breakers and returns false: a reply within the timeout is a success,
// even if the caller had less time. A reply after the timeout only brings the next probe forward, to
// find out whether replies arrive in time again.
func (r *Request) deliver(a Answer, err error, now time.Duration) bool {
	if r.state.CompareAndSwap(sent, finished) {
		a.Trace.Master = r.Trace.Master
		r.Answer, r.cause, r.doneAt = a, err, now
		r.done <- true
		return true
	}
	r.shard.abandoned.Add(-1)
	switch {
	case !health.IsWell(err):
	case r.timeout < 0 || now-r.began <= r.timeout:
		for s := range r.shards {
			s.Succeeded(r.ctx, now)
		}
	default:
		r.probeSoon(now)
	}
	return false
}
