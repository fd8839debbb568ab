package keys

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"sync"
)

// A Hider computes tags with a secret. It keeps HMACs that hold the secret, because preparing one
// takes longer than the rest.
type Hider struct{ macs sync.Pool }

// mac is an HMAC with the buffers of one call.
type mac struct {
	hash.Hash
	event, sum []byte
	tag        [1 + (sha256.Size*8+5)/6]byte
}

// NewHider returns a Hider for secret, or nil if secret is nil.
func NewHider(secret []byte) *Hider {
	if secret == nil {
		return nil
	}
	return &Hider{sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, secret)} }}}
}

// Tag returns the hash tag of event; see the function Tag. A nil Hider uses no secret.
func (h *Hider) Tag(event string) string {
	if h == nil {
		return Tag(nil, event)
	}
	m := h.macs.Get().(*mac) //nolint:forcetypeassert // New returns nothing else
	defer h.macs.Put(m)
	m.Reset()
	m.event = append(m.event[:0], event...)
	m.Write(m.event)
	m.sum = m.Sum(m.sum[:0])
	m.tag[0] = '~'
	base64.RawURLEncoding.Encode(m.tag[1:], m.sum)
	return string(m.tag[:])
}
