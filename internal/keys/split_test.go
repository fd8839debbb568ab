package keys_test

import (
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/keys"
)

// FuzzSplit checks that Split returns the name, the tag and the letter of every key that a limiter
// creates, and that the parts of any text that it accepts form that text again.
func FuzzSplit(f *testing.F) {
	for _, event := range []string{"198.51.100.7", "~a", "a%b{c}d", "\x00\xff é", strings.Repeat("x", 128), strings.Repeat("x", 129), "login:{a}:w", "%41"} {
		f.Add(event)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if name, tag, kind, ok := keys.Split(text); ok && name+":{"+tag+"}:"+string(rune(kind)) != text {
			t.Errorf("%q: %q %q %q", text, name, tag, kind)
		}
		if text == "" {
			return
		}
		for _, secret := range [][]byte{nil, []byte("sixteen bytes, or more")} {
			tag := keys.Tag(secret, text)
			name, got, kind, ok := keys.Split("a:b.c:{" + tag + "}:w")
			if name != "a:b.c" || got != tag || kind != 'w' || !ok {
				t.Errorf("%q: %q %q %q %v", tag, name, got, kind, ok)
			}
			if event, plain := keys.Event(tag), secret == nil && len(text) <= keys.Longest; plain && event != text || !plain && event != "" {
				t.Errorf("%q: %q", tag, event)
			}
		}
	})
}

// TestSplitForeign checks that Split rejects keys that no limiter creates.
func TestSplitForeign(t *testing.T) {
	for _, key := range []string{
		"", "a", "a:{b}", "a:{}:w", "{b}:w", ":{b}:w", "a:{b}:", "a:{b}w", "a:{b}:ww", "a b:{c}:w", "a\x1b:{c}:w",
		"a:{b{c}:w", "a:{b}c}:w", "a:{b c}:w", "a:{%}:w", "a:{%4}:w", "a:{%4g}:w", "a:{%41}:w", "a:{%7b}:w", "a:{~b}:w", "a:{\xff}:w",
		strings.Repeat("a", 65) + ":{b}:w", "a:{" + strings.Repeat("b", 129) + "}:w", "a:{~" + strings.Repeat("b", 42) + "}:w",
		"a:{~AAAAAAAA.1}:p", "a:{b}:\xff", "a:{~\n" + strings.Repeat("b", 43) + "}:w",
	} {
		if name, tag, kind, ok := keys.Split(key); ok {
			t.Errorf("%q: %q %q %q", key, name, tag, kind)
		}
	}
}
