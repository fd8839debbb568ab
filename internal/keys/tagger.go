package keys

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// Tagger computes tags with a secret. It caches recent tags, because an HMAC takes a microsecond
// and a decision can need the same tag twice.
type Tagger struct {
	secret []byte
	seed   maphash.Seed
	last   [256]atomic.Pointer[tagged] // indexed by a hash of the event
}

type tagged struct{ event, tag string }

// NewTagger returns a Tagger for secret, or nil if secret is nil.
func NewTagger(secret []byte) *Tagger {
	if secret == nil {
		return nil
	}
	return &Tagger{secret: secret, seed: maphash.MakeSeed()}
}

// Tag returns the hash tag of event; see the function Tag. A nil Tagger uses no secret.
func (t *Tagger) Tag(event string) string {
	if t == nil {
		return Tag(nil, event)
	}
	if len(event) > Longest {
		return Tag(t.secret, event)
	}
	slot := &t.last[maphash.String(t.seed, event)%uint64(len(t.last))]
	if known := slot.Load(); known != nil && known.event == event {
		return known.tag
	}
	tag := Tag(t.secret, event)
	slot.Store(&tagged{strings.Clone(event), tag})
	return tag
}
