package limiter

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/send"
)

const verbJoint = "joint" // all attempts are counted, or none

// A BundleReply is the answer to one ask of a Bundle.
type BundleReply struct {
	Decided bool // false if the reply to another ask came from the denial cache
	Reply   Reply
	Err     error
	Fits    bool // the ask would be allowed, but is not counted because another ask is denied
}

// Decide decides the asks: all are counted, or none. It returns false, and counts nothing, if the
// asks cannot be decided in one call at the moment, or if others are using a key: attempts on a hot
// key are better merged. In an outage, the reply to each ask contains the error. Close the Bundle
// after use.
func (b *Bundle) Decide(ctx context.Context) (replies []BundleReply, decided bool) {
	alone, release := b.stores[0].pipeline.Use(b.keys)
	b.release = release
	if !alone || !b.joins() {
		return nil, false
	}
	replies = make([]BundleReply, len(b.asks))
	for i, s := range b.stores { // a cached denial of one ask decides all
		if s.denials == nil {
			continue
		}
		if r, denied := s.cachedDenial(b.asks[i].limits, b.keys[i], b.asks[i].N, time.Now()); denied {
			replies[i] = BundleReply{Decided: true, Reply: r}
			return replies, true
		}
	}
	r := b.newRequest(verbJoint)
	defer r.Free()
	for _, a := range b.asks {
		r.Joint.Units = append(r.Joint.Units, Integer(a.N))
		r.Rest = append(append(r.Rest, Integer(int64(len(a.limits.list)))), a.limits.args...)
	}
	if !b.do(ctx, b.timeout(), r) {
		return nil, false
	}
	err := b.decode(r, replies)
	for i, a := range b.asks {
		reply := &replies[i]
		reply.Err = a.Wrap(cmp.Or(reply.Err, err))
		reply.Reply.Trace.Failure = health.FailureIn(reply.Err)
		b.stores[i].denials.changed(b.keys[i], reply.Reply.Counted, reply.Err)
	}
	return replies, true
}

// Close lets others use the keys of a Bundle that was decided.
func (b *Bundle) Close() { b.release() }

// decode sets replies from the script's reply. For each key, that contains the same integers as the
// reply to allow, or an error string in place of the first integer.
func (b *Bundle) decode(q *send.Request, replies []BundleReply) error {
	want := 0
	for i, a := range b.asks {
		replies[i].Decided, replies[i].Reply.Key, replies[i].Reply.Trace = true, b.keys[i], q.Trace
		want += 2 + 3*len(a.limits.list)
	}
	if q.Err != nil {
		return q.Err
	}
	if len(q.Reply) != want {
		return q.Explain(fmt.Errorf("the script replied %d integers to joint, not %d", len(q.Reply), want))
	}
	index, fits := 0, true
	for i, a := range b.asks {
		r, raw := &replies[i].Reply, q.Reply[index:][:2+3*len(a.limits.list)]
		replies[i].Err = q.TextOf(b.keys[i], index)
		r.Grant(Allow, a.N, a.N*min(1, raw[0]))
		r.At = raw[1]
		r.setRows(raw[2:])
		fits = fits && r.Allowed
		index += len(raw)
	}
	for i := range replies {
		if r := &replies[i]; !fits {
			r.Reply.Counted, r.Fits = 0, r.Reply.Allowed
		}
	}
	return nil
}
