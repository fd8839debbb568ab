// Package keys builds the Redis key of an event.
package keys

import (
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strings"
)

// Longest is the length in bytes of the longest event that appears in a key unhashed.
const Longest = 128

// MinSecret is the minimum length of a secret in bytes. FIPS mode rejects HMAC keys of fewer than
// 14 bytes.
const MinSecret = 16

const hexDigit = "0123456789ABCDEF"

// IsHashed reports whether the tag of event is a hash.
func IsHashed(secret []byte, event string) bool { return secret != nil || len(event) > Longest }

// Tag returns the hash tag of event. Different events never share a tag, and no event can end its
// tag early. Printable ASCII characters stand for themselves, except braces, the percent sign and a
// leading tilde. These and all other bytes become %XX. A leading tilde marks a hash: the SHA-256 of
// a long event or, if secret is not nil, the HMAC-SHA256 of any event.
func Tag(secret []byte, event string) string {
	switch {
	case secret != nil:
		return NewHider(secret).Tag(event)
	case len(event) > Longest:
		sum := sha256.Sum256([]byte(event))
		return "~" + base64.RawURLEncoding.EncodeToString(sum[:])
	case plain(event):
		return event
	}
	return escape(event)
}

func plain(event string) bool {
	for i := range len(event) {
		if !plainByte(event[i], i) {
			return false
		}
	}
	return true
}

func plainByte(c byte, i int) bool {
	return c > ' ' && c < 0x7f && c != '{' && c != '}' && c != '%' && (c != '~' || i > 0)
}

func escape(event string) string {
	tag := make([]byte, 0, 3*len(event))
	for i := range len(event) {
		c := event[i]
		if plainByte(c, i) {
			tag = append(tag, c)
		} else {
			tag = append(tag, '%', hexDigit[c>>4], hexDigit[c&15])
		}
	}
	return string(tag)
}

// Event returns the event whose tag is tag, or "" if tag is a hash or does not come from Tag.
func Event(tag string) string {
	if strings.HasPrefix(tag, "~") {
		return ""
	}
	event, err := url.PathUnescape(tag)
	if err != nil || Tag(nil, event) != tag {
		return ""
	}
	return event
}
