package keys

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// LongestName is the length in bytes of the longest limiter name.
const LongestName = 64

// BadByte returns the index of the first byte of name that a limiter's name may not contain, or -1.
func BadByte(name string) int {
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		digit := c >= '0' && c <= '9'
		if !letter && !digit && strings.IndexByte("._-:", c) < 0 {
			return i
		}
	}
	return -1
}

// Split returns the parts of a key of the form Name:{tag}:k, where k is one letter. It returns
// false if no limiter creates such a key. Other programs can have keys of the same form.
func Split(key string) (name, tag string, kind byte, ok bool) {
	name, rest, found := strings.Cut(key, ":{")
	end := len(rest) - len("}:k")
	if !found || end < 1 || rest[end:end+2] != "}:" {
		return "", "", 0, false
	}
	if name == "" || len(name) > LongestName || BadByte(name) >= 0 {
		return "", "", 0, false
	}
	tag, kind = rest[:end], rest[end+2]
	if Event(tag) == "" && !isHash(tag) || kind < 'a' || kind > 'z' {
		return "", "", 0, false
	}
	return name, tag, kind, true
}

// hashLength is the length of a tag that is a hash. It is checked because the base64 decoder
// ignores line breaks.
const hashLength = 1 + (8*sha256.Size+5)/6

// isHash reports whether tag has the form of a hash.
func isHash(tag string) bool {
	sum, err := base64.RawURLEncoding.DecodeString(tag[1:])
	return tag[0] == '~' && len(tag) == hashLength && err == nil && len(sum) == sha256.Size
}
