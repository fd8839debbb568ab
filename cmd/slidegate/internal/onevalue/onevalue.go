// Package onevalue provides httplimit.Keys for headers and cookies. They return no key if servers
// could read different values from a request. For example, a request can spell a name in two ways,
// so that the server behind the proxy uses a value other than the one that the limiter counts.
package onevalue

import (
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/adapter"
)

// Header returns a Key whose value is that of the given header. The key is "" unless the request
// has exactly one such field. Header returns nil if name is not a valid header name.
func Header(name string) httplimit.Key {
	key := httplimit.Header(name)
	if key == nil {
		return nil
	}
	return func(r *http.Request) string {
		if fields(r, name) > 1 {
			return adapter.NoteKeyless(r.Context(), "the header "+name+" has several values or spellings")
		}
		if isTrimmed(r.Header.Get(name)) {
			return adapter.NoteKeyless(r.Context(), "servers could read only part of the header "+name)
		}
		return key(r)
	}
}

// Cookie returns a Key whose value is that of the given cookie, with percent-encodings decoded. The
// key is "" unless the request has exactly one such cookie, or if servers could read only a part of
// its value. Cookie returns nil if name is not a valid cookie name.
func Cookie(name string) httplimit.Key {
	key, start := httplimit.Cookie(name), "cookie "+name+" "
	if key == nil {
		return nil
	}
	return func(r *http.Request) string {
		n := cookies(r.Header.Get("Cookie"), name)
		if n > 1 || fields(r, "Cookie") > 1 {
			return adapter.NoteKeyless(r.Context(), "the cookie "+name+" has several values or spellings")
		}
		value, found := strings.CutPrefix(key(r), start)
		switch {
		case !found:
			return "" // the reason has been recorded
		case n == 0 || isAmbiguous(value):
			return adapter.NoteKeyless(r.Context(), "servers could read only part of the cookie "+name)
		}
		return start + strings.ReplaceAll(decode(value), " ", "+") // some servers decode + to a space
	}
}

// isTrimmed reports whether some servers trim a character from the start or the end of value: a
// Unicode space, or a byte that is a space in Latin-1, because Python decodes headers as Latin-1.
func isTrimmed(value string) bool {
	const latin1 = "\x1c\x1d\x1e\x1f\x85\xa0"
	return value != strings.TrimSpace(value) || value != "" &&
		(strings.IndexByte(latin1, value[0]) >= 0 || strings.IndexByte(latin1, value[len(value)-1]) >= 0)
}

// isAmbiguous reports whether servers could read different values from the same cookie. Perl and
// Ruby end a value at an &. After the prefix j:, Express parses JSON, which can spell a value in
// many ways.
func isAmbiguous(value string) bool {
	return strings.ContainsAny(value, separators+"&") || strings.HasPrefix(decode(value), "j:")
}

// fields returns how often a request names the given field. Trailers count, because some servers
// add them to the headers. So do names listed in Connection, because the proxy drops those fields.
func fields(r *http.Request, name string) (n int) {
	for field, values := range r.Header {
		if sameField(field, name) {
			n += len(values)
		}
	}
	for field := range r.Trailer {
		if sameField(field, name) {
			n++
		}
	}
	for field := range strings.SplitSeq(strings.Join(r.Header["Connection"], ","), ",") {
		if sameField(strings.TrimSpace(field), name) {
			n++
		}
	}
	return n
}

// sameField reports whether a server could treat two names as the same field. CGI turns a name into
// an upper-case variable, with _ for each hyphen. Some servers write _ for every character that is
// neither a letter nor a digit.
func sameField(a, b string) bool {
	return len(a) == len(b) && strings.EqualFold(strings.Map(variable, a), strings.Map(variable, b))
}

func variable(r rune) rune {
	if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
		return r
	}
	return '_'
}

// separators are the characters other than ";" that end a cookie on some servers: a comma in RFC
// 2109, and a space or a tab in Python.
const separators = ", \t"

// cookies returns how many cookies with the given name a server could read in a Cookie header. It
// ignores quotes, because servers disagree on what they quote.
func cookies(line, name string) (n int) {
	name = plain(decode(name))
	for part := range strings.SplitSeq(line, ";") {
		texts := strings.Split(strings.TrimLeft(part, "= \t"), "=")
		if isCookie(texts[0], name) {
			n++
		}
		for _, text := range texts[:len(texts)-1] { // the text before each =
			text = strings.TrimRight(text, " \t")
			if i := strings.LastIndexAny(text, separators); i >= 0 && isCookie(text[i+1:], name) {
				n++
			}
		}
	}
	return n
}

// isCookie reports whether a server could read text as the given cookie name, which must be in
// plain form. PHP treats name[x] as part of the cookie, and its old versions read names only up to
// a zero byte.
func isCookie(text, name string) bool {
	text, _, _ = strings.Cut(decode(text), "\x00")
	array, _, _ := strings.Cut(text, "[")
	return plain(text) == name || plain(array) == name
}

// plain maps all cookie names that some server treats as equal to one spelling. PHP replaces
// spaces, dots and brackets by _, other servers remove Unicode spaces, and ASP.NET ignores case.
func plain(name string) string {
	name = strings.TrimLeftFunc(name, isSpace)
	name = strings.TrimRightFunc(name, func(r rune) bool { return isSpace(r) || strings.ContainsRune("_.[", r) })
	return strings.ToLower(underscores.Replace(name))
}

func isSpace(r rune) bool { return r <= ' ' || r > '~' || r == '+' }

var underscores = strings.NewReplacer(" ", "_", "+", "_", ".", "_", "[", "_")

// decode decodes the valid percent-encodings in text.
func decode(text string) string {
	return escape.ReplaceAllStringFunc(text, func(e string) string {
		b, _ := hex.DecodeString(e[1:])
		return string(b)
	})
}

var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
