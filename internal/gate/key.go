package gate

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
)

// Longest is how many bytes an event may have that stands for itself; a longer one is hashed.
const Longest = 128

const hexDigit = "0123456789ABCDEF"

// Key is the Redis key of an event: the name, the event as hash tag, the kind of record.
func (l *Limiter[U]) Key(event string) string { return l.prefix + Tag(l.Secret, event) + l.suffix }

// Tag is an event as it stands in a key. Two events never share one, and no event can end its tag early: printable ASCII stands for itself but for braces, the percent sign and a leading tilde,
// and every other byte is written as %XX. A tag that begins with a tilde is a hash: of a long event, or under a secret, if that is not nil.
func Tag(secret []byte, event string) string {
	switch {
	case secret != nil:
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(event))
		return "~" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
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
