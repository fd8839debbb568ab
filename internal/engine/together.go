package engine

import (
	"bytes"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/send"
)

// maxTogether is the maximum number of keys in a script call for several limiters. Each limiter
// except the first needs a proof that its keys are on the same server.
const maxTogether = 16

// An Ask is a request to be combined with other asks in one script call. A Joint decides on N units
// of the event. UndoTogether refunds what Undo says that a decision counted or, if Undo has no
// limits, resets the event.
type Ask struct {
	*Limiter
	Event string
	N     int64
	Undo  Counted
}

// gathered is a set of asks for one script call.
type gathered struct {
	asks   []Ask
	stores []*onRedis
	keys   []string
	tag    string // of the last ask
}

// gather returns as many asks as fit in one script call, starting with the first. The asks must be
// on one Connection, use the server's clock, have limiters that do not count denials, and have
// different keys. On a cluster, the keys must be in the same hash slot. It returns nil if fewer
// than two asks fit.
func gather(asks []Ask) *gathered {
	if len(asks) < 2 {
		return nil
	}
	t := &gathered{stores: make([]*onRedis, 0, len(asks)), keys: make([]string, 0, len(asks))}
	for i, a := range asks[:min(len(asks), maxTogether)] {
		if i == 0 || a.Event != asks[i-1].Event || !bytes.Equal(a.Secret, asks[i-1].Secret) { // a tag with a secret is expensive
			t.tag = a.Tag(a.Event)
		}
		if !t.add(a) {
			break
		}
	}
	if len(t.keys) < 2 {
		return nil
	}
	t.asks = asks[:len(t.keys)]
	return t
}

// add adds a if possible, and reports whether it has been added.
func (t *gathered) add(a Ask) bool {
	s, asksRedis := a.store.(*onRedis)
	if !asksRedis || a.CountDenied || a.Clock.Now != nil {
		return false
	}
	key := a.keyOf(t.tag)
	t.stores, t.keys = append(t.stores, s), append(t.keys, key)
	first, last := t.stores[0].pipeline, len(t.keys)-1
	if !s.pipeline.SharesClient(first) || slices.Contains(t.keys[:last], key) || !first.SharesSlot(t.keys[0], key) {
		t.stores, t.keys = t.stores[:last], t.keys[:last]
		return false
	}
	return true
}

// Len returns the number of asks.
func (t *gathered) Len() int { return len(t.asks) }

// joins reports whether one script call can serve all keys at the moment.
func (t *gathered) joins() bool {
	first, can := t.stores[0].pipeline, true
	for _, s := range t.stores[1:] { // without a break, since Joins starts the proofs that are missing
		can = first.Joins(s.pipeline) && can
	}
	return can
}

// timeout returns the shortest timeout of the limiters, or -1 if none of them has a timeout.
func (t *gathered) timeout() time.Duration {
	shortest := time.Duration(-1)
	for _, s := range t.stores {
		if s.Timeout >= 0 && (shortest < 0 || s.Timeout < shortest) {
			shortest = s.Timeout
		}
	}
	return shortest
}

// newRequest returns a request for all keys. The first of its last arguments is the number of keys.
// The caller must set its units.
func (t *gathered) newRequest(verb string) *send.Request {
	first := t.stores[0]
	r := first.pipeline.NewRequest()
	r.Script, r.Key, r.Verb, r.Joint = first.Script(verb), t.keys[0], verb, &send.Joint{Keys: t.keys}
	r.Rest = append(make([]string, 0, 1+4*len(t.keys)), Integer(int64(len(t.keys))))
	for _, s := range t.stores {
		if p := s.pipeline; p != first.pipeline && !slices.Contains(r.Joint.Others, p) {
			r.Joint.Others = append(r.Joint.Others, p)
		}
	}
	return r
}
