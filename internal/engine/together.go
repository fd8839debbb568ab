package engine

import (
	"bytes"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/pipeline"
)

// maxTogether is how many keys a script call about several limiters has at most. Each limiter beside
// the first needs a proof.
const maxTogether = 16

// An Ask is about N units of an event, among others by one script call.
type Ask struct {
	*Limiter
	Event string
	N     int64
}

// gathered is some asks by one script call.
type gathered struct {
	asks   []Ask
	stores []*onRedis
	keys   []string
	event  string // of the last key, with its secret and tag
	secret []byte
	tag    string
}

// gather returns as many asks, from the first one on, as one script call could be about: on one
// Connection, by the clock of the server, under limiters that count no denials, and about different
// keys, on a cluster of one hash slot. It is nil if that is fewer than two.
func gather(asks []Ask) *gathered {
	if len(asks) < 2 {
		return nil
	}
	t := &gathered{stores: make([]*onRedis, 0, len(asks)), keys: make([]string, 0, len(asks))}
	for _, a := range asks[:min(len(asks), maxTogether)] {
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

// add adds an ask, and reports whether it can.
func (t *gathered) add(a Ask) bool {
	s, asksRedis := a.store.(*onRedis)
	if !asksRedis || a.CountDenied || a.Clock.Now != nil {
		return false
	}
	key := t.key(a)
	t.stores, t.keys = append(t.stores, s), append(t.keys, key)
	first, last := t.stores[0].pipeline, len(t.keys)-1
	if !s.pipeline.SharesClient(first) || slices.Contains(t.keys[:last], key) || !first.SharesSlot(t.keys[0], key) {
		t.stores, t.keys = t.stores[:last], t.keys[:last]
		return false
	}
	return true
}

// key returns the key of an ask. Those of one event and one secret share a tag, which is costly to make.
func (t *gathered) key(a Ask) string {
	if a.Event != t.event || !bytes.Equal(a.Secret, t.secret) {
		t.event, t.secret, t.tag = a.Event, a.Secret, a.Tag(a.Event)
	}
	return a.prefix + t.tag + a.suffix
}

// Len returns about how many asks it is.
func (t *gathered) Len() int { return len(t.asks) }

// joins reports whether one script call can be about all keys now.
func (t *gathered) joins() bool {
	first, can := t.stores[0].pipeline, true
	for _, s := range t.stores[1:] { // all of them, since that begins proofs
		can = first.Joins(s.pipeline) && can
	}
	return can
}

// timeout returns the shortest timeout of all limiters.
func (t *gathered) timeout() time.Duration {
	shortest := time.Duration(-1)
	for _, s := range t.stores {
		if s.Timeout >= 0 && (shortest < 0 || s.Timeout < shortest) {
			shortest = s.Timeout
		}
	}
	return shortest
}

// newRequest returns a request about all keys, whose last arguments begin with the number of keys. It
// has no units yet.
func (t *gathered) newRequest(verb string) *pipeline.Request {
	first := t.stores[0]
	r := first.pipeline.NewRequest()
	r.Script, r.Key, r.Verb, r.Joint = first.script, t.keys[0], verb, &pipeline.Joint{Keys: t.keys}
	r.Rest = append(make([]string, 0, 1+4*len(t.keys)), integer(int64(len(t.keys))))
	for _, s := range t.stores {
		if p := s.pipeline; p != first.pipeline && !slices.Contains(r.Joint.Others, p) {
			r.Joint.Others = append(r.Joint.Others, p)
		}
	}
	return r
}
