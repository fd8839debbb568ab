package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/pipeline"
)

const verbJoint = "joint" // all attempts are counted, or none

// maxJoint is how many keys a joint call has at most. Each limiter beside the first needs a proof.
const maxJoint = 16

// An Ask is one of several attempts that are to be counted together.
type Ask struct {
	*Limiter
	Event string
	N     int64
}

// A Joint decides about the first of some asks by one script call: all are counted, or none.
type Joint struct {
	asks    []Ask
	stores  []*onRedis
	keys    []string
	event   string // of the last key, with its secret and tag
	secret  []byte
	tag     string
	alone   bool // nobody else asked about several keys, one of these among them, when this began
	release func()
}

// A JointReply is the answer to one ask.
type JointReply struct {
	Reply *Reply // nil if it was not asked
	Err   error
	Fits  bool // the ask would be admitted, but another one is not, so it is not counted
}

// NewJoint returns a Joint about as many asks, from the first one on, as one script call could be
// about: on one Connection, by the clock of the server, under limiters that count no denials, and
// about different keys, on a cluster of one hash slot. It is nil if that is fewer than two. Close it.
func NewJoint(asks []Ask) *Joint {
	if len(asks) < 2 {
		return nil
	}
	j := &Joint{stores: make([]*onRedis, 0, len(asks)), keys: make([]string, 0, len(asks))}
	for _, a := range asks[:min(len(asks), maxJoint)] {
		if !j.add(a) {
			break
		}
	}
	if len(j.keys) < 2 {
		return nil
	}
	j.asks = asks[:len(j.keys)]
	j.alone, j.release = j.stores[0].pipeline.Use(j.keys)
	return j
}

// add adds an ask, and reports whether it can.
func (j *Joint) add(a Ask) bool {
	s, asksRedis := a.store.(*onRedis)
	if !asksRedis || a.CountDenied || a.Clock.Now != nil {
		return false
	}
	key := j.key(a)
	j.stores, j.keys = append(j.stores, s), append(j.keys, key)
	first, last := j.stores[0].pipeline, len(j.keys)-1
	if !s.pipeline.SharesClient(first) || slices.Contains(j.keys[:last], key) || !first.SharesSlot(j.keys[0], key) {
		j.stores, j.keys = j.stores[:last], j.keys[:last]
		return false
	}
	return true
}

// key returns the key of an ask. Those of one event and one secret share a tag, which is costly to make.
func (j *Joint) key(a Ask) string {
	if a.Event != j.event || !bytes.Equal(a.Secret, j.secret) {
		j.event, j.secret, j.tag = a.Event, a.Secret, keys.Tag(a.Secret, a.Event)
	}
	return a.prefix + j.tag + a.suffix
}

// Len returns about how many asks it decides.
func (j *Joint) Len() int { return len(j.asks) }

// Close ends the Joint.
func (j *Joint) Close() { j.release() }

// Decide answers the asks. If they cannot be decided together now, nothing is asked, and decided is
// false. An outage is the error of each.
func (j *Joint) Decide(ctx context.Context) (replies []JointReply, decided bool) {
	if !j.canAsk() {
		return nil, false
	}
	replies = make([]JointReply, len(j.asks))
	timeout, cached, err := j.lookUp(ctx, replies)
	if cached {
		return replies, true
	}
	if err == nil {
		r := j.request()
		defer r.Free()
		j.stores[0].pipeline.Do(ctx, timeout, r)
		if r.IsApart() {
			j.stores[0].pipeline.SetApart()
			return nil, false
		}
		err = j.decode(r, replies)
	}
	j.fail(replies, err)
	return replies, true
}

// canAsk reports whether one script call can be about all keys now.
func (j *Joint) canAsk() bool {
	if !j.alone {
		return false
	}
	first, can := j.stores[0].pipeline, true
	for _, s := range j.stores[1:] { // all of them, since that begins proofs
		can = first.Joins(s.pipeline) && can
	}
	return can
}

// lookUp looks for a denial in the denial caches. It returns the timeout of the call, which is the
// shortest of all limiters.
func (j *Joint) lookUp(ctx context.Context, replies []JointReply) (timeout time.Duration, cached bool, err error) {
	timeout = j.timeout()
	began := time.Now()
	for i, s := range j.stores {
		if replies[i].Reply, err = s.remembered(ctx, timeout, j.asks[i].limits, j.keys[i], j.asks[i].N); err != nil || replies[i].Reply != nil {
			return timeout, err == nil, err
		}
	}
	if timeout >= 0 {
		timeout = max(1, timeout-time.Since(began))
	}
	return timeout, false, nil
}

func (j *Joint) timeout() time.Duration {
	shortest := time.Duration(-1)
	for _, s := range j.stores {
		if s.Timeout >= 0 && (shortest < 0 || s.Timeout < shortest) {
			shortest = s.Timeout
		}
	}
	return shortest
}

// request returns the request about all keys. Its last arguments are the number of keys and, for each
// key, the number of its limits and the limits.
func (j *Joint) request() *pipeline.Request {
	r := j.stores[0].pipeline.NewRequest()
	r.Script, r.Key, r.Verb, r.Units, r.Joint = j.stores[0].script, j.keys[0], verbJoint, j.asks[0].N, &pipeline.Joint{Keys: j.keys}
	r.Rest = append(make([]string, 0, 1+j.width()), integer(int64(len(j.keys))))
	for i, a := range j.asks {
		r.Joint.Units = append(r.Joint.Units, integer(a.N))
		r.Rest = append(append(r.Rest, integer(int64(len(a.limits.list)))), a.limits.args...)
		if p := j.stores[i].pipeline; p != j.stores[0].pipeline && !slices.Contains(r.Joint.Others, p) {
			r.Joint.Others = append(r.Joint.Others, p)
		}
	}
	r.Group = strings.Join(r.Rest, " ")
	return r
}

// decode sets the replies to what the script replied: for each key as to allow, or a text in place of
// the first integer.
func (j *Joint) decode(q *pipeline.Request, replies []JointReply) error {
	all := make([]Reply, len(replies))
	for i := range replies {
		all[i].Trace, replies[i].Reply = q.Trace, &all[i]
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
		if text, failed := q.Joint.Texts[place]; failed {
			replies[i].Err = q.Explain(&pipeline.ReplyError{Cause: errors.New(text)})
		}
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

// width returns how many integers the script replies.
func (j *Joint) width() (n int) {
	for _, a := range j.asks {
		n += 2 + 3*len(a.limits.list)
	}
	return n
}

// fail sets the error of all replies, if there is one. It adds to each error the name of the limiter.
func (j *Joint) fail(replies []JointReply, err error) {
	for i, a := range j.asks {
		r := &replies[i]
		if r.Err = a.Wrap(cmp.Or(r.Err, err)); err != nil && j.stores[i].denials != nil {
			j.stores[i].denials.Forget(j.keys[i])
		}
		if r.Reply == nil && r.Err != nil {
			r.Reply = &Reply{}
		}
	}
}
