package engine

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/send"
)

const verbJoint = "joint" // all attempts are counted, or none

// A Joint decides as many of the given asks as possible in one script call, starting with the
// first: all are counted, or none.
type Joint struct {
	*gathered
	alone   bool // when this Joint was created, no other Joint was using any of its keys
	release func()
}

// A JointReply is the answer to one ask.
type JointReply struct {
	Reply *Reply // nil if the ask was not decided
	Err   error
	Fits  bool // the ask would be allowed, but is not counted because another ask is denied
}

// NewJoint returns a Joint for as many asks as fit in one script call, starting with the first. It
// returns nil if fewer than two fit. Close the Joint after use.
func NewJoint(asks []Ask) *Joint {
	t := gather(asks)
	if t == nil {
		return nil
	}
	j := &Joint{gathered: t}
	j.alone, j.release = t.stores[0].pipeline.Use(t.keys)
	return j
}

// Close lets other Joints use the keys.
func (j *Joint) Close() { j.release() }

// Decide decides the asks. If they cannot be decided in one call at the moment, it counts nothing
// and returns false. In an outage, the reply to each ask contains the error.
func (j *Joint) Decide(ctx context.Context) (replies []JointReply, decided bool) {
	if !j.alone || !j.joins() {
		return nil, false
	}
	replies = make([]JointReply, len(j.asks))
	if j.lookUp(replies) {
		return replies, true
	}
	r := j.request()
	defer r.Free()
	j.stores[0].pipeline.Do(ctx, j.timeout(), r)
	if r.IsApart() {
		j.stores[0].pipeline.SetApart()
		return nil, false
	}
	j.fail(replies, j.decode(r, replies))
	return replies, true
}

// lookUp looks for a denial in the limiters' denial caches. If it finds one, it sets the reply to
// that ask and returns true.
func (j *Joint) lookUp(replies []JointReply) bool {
	for i, s := range j.stores {
		if s.denials == nil {
			continue
		}
		if r, denied := s.cachedDenial(j.asks[i].limits, j.keys[i], j.asks[i].N, time.Now()); denied {
			replies[i].Reply = &r
			return true
		}
	}
	return false
}

// request returns the request for all keys. Its last arguments are the number of keys and, for each
// key, the number of its limits and the limits.
func (j *Joint) request() *send.Request {
	r := j.newRequest(verbJoint)
	for _, a := range j.asks {
		r.Joint.Units = append(r.Joint.Units, Integer(a.N))
		r.Rest = append(append(r.Rest, Integer(int64(len(a.limits.list)))), a.limits.args...)
	}
	r.Group = strings.Join(r.Rest, " ")
	return r
}

// decode sets replies from the script's reply. For each key, that contains the same integers as the
// reply to allow, or an error string in place of the first integer.
func (j *Joint) decode(q *send.Request, replies []JointReply) error {
	all := make([]Reply, len(replies))
	for i := range replies {
		all[i].Key, all[i].Trace, replies[i].Reply = j.keys[i], q.Trace, &all[i]
	}
	if q.Err != nil {
		return q.Err
	}
	if want := j.width(); len(q.Reply) != want {
		return q.Explain(fmt.Errorf("the script replied %d integers to joint, not %d", len(q.Reply), want))
	}
	place, fits := 0, true
	for i, a := range j.asks {
		r, raw := &all[i], q.Reply[place:][:2+3*len(a.limits.list)]
		replies[i].Err = q.TextOf(j.keys[i], place)
		r.Grant(Allow, a.N, a.N*min(1, raw[0]))
		r.At = raw[1]
		r.setRows(raw[2:])
		fits = fits && r.Allowed
		place += len(raw)
	}
	for i := range replies {
		if r := &replies[i]; !fits {
			r.Reply.Counted, r.Fits = 0, r.Reply.Allowed
		}
	}
	return nil
}

// width returns the number of integers in the script's reply.
func (j *Joint) width() (n int) {
	for _, a := range j.asks {
		n += 2 + 3*len(a.limits.list)
	}
	return n
}

// fail sets err, if it is not nil, in all replies that have no error yet. It adds the limiter's
// name to each error. It also removes events from the denial caches, as a single request does.
func (j *Joint) fail(replies []JointReply, err error) {
	for i, a := range j.asks {
		r := &replies[i]
		r.Err = a.Wrap(cmp.Or(r.Err, err))
		switch cache := j.stores[i].denials; {
		case err != nil:
			cache.Forget(j.keys[i])
		case r.Reply.Counted > 0:
			cache.Remove(j.keys[i])
		}
	}
}
