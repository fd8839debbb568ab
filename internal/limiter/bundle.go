package limiter

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/send"
)

// maxBundle is the maximum number of keys in a script call for several limiters. Each limiter
// except the first needs a proof that its keys are on the same server.
const maxBundle = 16

// An Ask is a request to be combined with other asks in one script call. Bundle.Decide decides on N
// units of the event. UndoTogether refunds what Undo says that a decision counted or, if Undo has no
// limits, resets the event.
type Ask struct {
	*Limiter
	Event string
	N     int64
	Undo  Counted
}

// A Bundle is a set of asks for one script call.
type Bundle struct {
	asks    []Ask
	stores  []*onRedis
	keys    []string
	release func() // lets others use the keys; nil before Decide
}

// NewBundle returns a Bundle of as many asks as fit in one script call, starting with the first. The
// asks must be on one Connection, use the server's clock, have limiters that do not count denials,
// and have different keys. On a cluster, the keys must be in the same hash slot. It returns nil if
// fewer than two asks fit.
func NewBundle(asks []Ask) *Bundle {
	if len(asks) < 2 {
		return nil
	}
	b := &Bundle{stores: make([]*onRedis, 0, len(asks)), keys: make([]string, 0, len(asks))}
	tag := ""
	for i, a := range asks[:min(len(asks), maxBundle)] {
		s, asksRedis := a.store.(*onRedis)
		if !asksRedis || a.CountDenied || a.Clock.Now != nil {
			break
		}
		if i == 0 || a.Event != asks[i-1].Event || !bytes.Equal(a.Secret, asks[i-1].Secret) { // a tag with a secret is expensive
			tag = a.Tag(a.Event)
		}
		key := a.keyOf(tag)
		b.stores, b.keys = append(b.stores, s), append(b.keys, key)
		first := b.stores[0].pipeline
		if !s.pipeline.SharesClient(first) || slices.Contains(b.keys[:i], key) || !first.SharesSlot(b.keys[0], key) {
			b.stores, b.keys = b.stores[:i], b.keys[:i]
			break
		}
	}
	if len(b.keys) < 2 {
		return nil
	}
	b.asks = asks[:len(b.keys)]
	return b
}

// Len returns the number of asks.
func (b *Bundle) Len() int { return len(b.asks) }

// joins reports whether one script call can serve all keys at the moment.
func (b *Bundle) joins() bool {
	first, can := b.stores[0].pipeline, true
	for _, s := range b.stores[1:] { // without a break, since Joins starts the proofs that are missing
		can = first.Joins(s.pipeline) && can
	}
	return can
}

// newRequest returns a request for all keys. The first of its last arguments is the number of keys.
// The caller adds to these arguments, and sets the units.
func (b *Bundle) newRequest(verb string) *send.Request {
	first := b.stores[0]
	r := first.pipeline.NewRequest()
	r.Call = send.Call{Script: first.Script(verb), Key: b.keys[0], Verb: verb, Joint: &send.Joint{Keys: b.keys}}
	r.Rest = append(make([]string, 0, 1+4*len(b.keys)), Integer(int64(len(b.keys))))
	for _, s := range b.stores {
		if p := s.pipeline; p != first.pipeline && !slices.Contains(r.Joint.Others, p) {
			r.Joint.Others = append(r.Joint.Others, p)
		}
	}
	return r
}

// do makes the script call. It returns false if the keys must be sent separately at the moment: the
// call then changed nothing.
func (b *Bundle) do(ctx context.Context, timeout time.Duration, r *send.Request) bool {
	p := b.stores[0].pipeline
	r.Group = strings.Join(r.Rest, " ")
	p.Do(ctx, timeout, r)
	if r.IsApart() {
		p.SetApart()
		return false
	}
	return true
}

// timeout returns the shortest timeout of the limiters, or -1 if none of them has a timeout.
func (b *Bundle) timeout() time.Duration {
	shortest := time.Duration(-1)
	for _, s := range b.stores {
		if s.Timeout >= 0 && (shortest < 0 || s.Timeout < shortest) {
			shortest = s.Timeout
		}
	}
	return shortest
}
