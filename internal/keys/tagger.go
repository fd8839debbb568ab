package keys

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// Tagger computes tags under a secret. It caches some of the most recent ones, because an HMAC
// takes a microsecond and a decision can need the tag twice.
type Tagger struct {
	secret []byte
	seed   maphash.Seed
	last   [256]atomic.Pointer[tagged] // indexed by the hash of the event
}

type tagged struct{ event, tag string }

// NewTagger returns a Tagger under a secret, or nil if the secret is nil.
func NewTagger(secret []byte) *Tagger {
	if secret == nil {
		return nil
	}
	return &Tagger{secret: secret, seed: maphash.MakeSeed()}
}

// Tag returns the hash tag of an event: see the function Tag.
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
