package keys

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// LongestName is the length in bytes of the longest limiter name.
const LongestName = 64

// NameByte reports whether a limiter's name may contain the byte c.
func NameByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return c == '.' || c == '_' || c == '-' || c == ':'
}

// Split returns the parts of a key of the form Name:{tag}:k, where k is one letter. It returns
// false if no limiter creates such a key. Other programs can have keys of the same form.
func Split(key string) (name, tag string, kind byte, ok bool) {
	name, rest, found := strings.Cut(key, ":{")
	end := len(rest) - len("}:k")
	if !found || end < 1 || rest[end:end+2] != "}:" || !isName(name) {
		return "", "", 0, false
	}
	tag, kind = rest[:end], rest[end+2]
	if Event(tag) == "" && !isHash(tag) || kind < 'a' || kind > 'z' {
		return "", "", 0, false
	}
	return name, tag, kind, true
}

func isName(name string) bool {
	for i := range len(name) {
		if !NameByte(name[i]) {
			return false
		}
	}
	return name != "" && len(name) <= LongestName
}

// hashLength is the length of a tag that is a hash. It is checked because the base64 decoder
// ignores line breaks.
const hashLength = 1 + (8*sha256.Size+5)/6

// isHash reports whether tag has the form of a hash.
func isHash(tag string) bool {
	sum, err := base64.RawURLEncoding.DecodeString(tag[1:])
	return tag[0] == '~' && len(tag) == hashLength && err == nil && len(sum) == sha256.Size
}
