package logs

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// web reads access logs in the common or combined format of Apache, nginx and other servers:
//
//	192.0.2.1 - alice [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 23 "http://ref/" "curl/8"
//
// In Apache's vhost_combined format, the address is preceded by the virtual host and its port, as
// in example.org:443.
//
// The client chooses the user, the request, the referer and the user agent, each of which can
// imitate any part of the line. But servers escape quotes in them, as \" or \x22. The first
// unescaped quote after a bracket therefore begins the request. The time is before that quote, and
// the address is before the first space, so nothing after the quote can change or hide either of
// them.
//
// The event is taken from the log as written, including escapes. Only addresses are normalized.
type web struct{}

var errWeb = errors.New(`it does not begin like 192.0.2.1 - alice [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1"`)

func asWeb(line string, _ Options, _ bool) format {
	return ifRead(web{}, line)
}

var webFields = []string{"address", "user", "path", "agent"}

func (web) fields() []string        { return webFields }
func (web) byDefault(string) string { return "address" }

func (web) read(line, field string) (Attempt, error) {
	host, ident, user, stamp, request, ok := cutWeb(line)
	if !ok {
		return Attempt{}, errWeb
	}
	address, err := webAddress(host, ident)
	if err != nil {
		return Attempt{}, err
	}
	a := Attempt{Units: 1, Times: 1}
	if a.At, ok = parseWebTime(stamp); !ok {
		return Attempt{}, fmt.Errorf("%q is not a time", stamp)
	}
	switch field {
	case "address":
		a.Event = withoutDash(address)
	case "user":
		a.Event = withoutDash(user)
	case "path":
		a.Event = webPath(request)
	case "agent":
		a.Event = withoutDash(webAgent(request))
	}
	return a, nil
}

// cutWeb splits a line, up to the quote that begins the request.
func cutWeb(line string) (host, ident, user, stamp, request string, ok bool) {
	host, rest, _ := strings.Cut(line, " ")
	if isVirtualHost(host) {
		host, rest, _ = strings.Cut(rest, " ")
	}
	head, request, quoted := strings.Cut(rest, `] "`)
	start := len(head) - len(webTime) - len(" [")
	if !quoted || start < 0 || head[start:start+len(" [")] != " [" {
		return "", "", "", "", "", false
	}
	ident, user, ok = strings.Cut(head[:start], " ") // ident is the response of identd, which is nearly always "-"
	return host, ident, user, head[start+len(" ["):], request, ok
}

// isVirtualHost reports whether a word is a host with a port rather than an address.
func isVirtualHost(word string) bool {
	colon := strings.LastIndexByte(word, ':')
	if colon < 0 || !isNumber(word[colon+1:]) {
		return false
	}
	_, err := netip.ParseAddr(word)
	return err != nil
}

// withoutDash returns the value of a field. It returns "" for what servers write if there is no
// value: a dash or, in Apache, two quotes for a user without a name.
func withoutDash(field string) string {
	if field == "-" || field == `""` {
		return ""
	}
	return field
}

// webAddress normalizes an address, and returns a host name unchanged. Anything else is an error,
// because it means that the line only resembles this format. A word in front of the whole line,
// such as Docker Compose adds, is also an error: it is not followed by identd's "-".
func webAddress(host, ident string) (string, error) {
	address, err := netip.ParseAddr(host)
	switch {
	case err != nil && isWord(host) && ident == "-":
		return host, nil
	case err != nil && isWord(host):
		return "", fmt.Errorf("it begins with %q, which is not an address, and no - follows it", host)
	case err != nil:
		return "", fmt.Errorf("it begins with %q, which is neither an address nor a host name", host)
	}
	if text := address.Unmap().AppendTo(make([]byte, 0, 64)); string(text) != host {
		return string(text), nil
	}
	return host, nil
}

// isWord reports whether a string could be a host name or an HTTP method.
func isWord(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isWordByte(c) && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}

// webPath returns the path of a request, or "" if there is none. Like servers, it drops the
// fragment. A target may contain spaces, and an HTTP/0.9 request line has no version.
func webPath(rest string) string {
	request, _ := cutQuoted(rest)
	method, target, _ := strings.Cut(request, " ")
	if space := strings.LastIndexByte(target, ' '); space >= 0 && strings.HasPrefix(target[space:], " HTTP/") {
		target = target[:space]
	}
	if end := strings.IndexAny(target, "?#"); end >= 0 {
		target = target[:end]
	}
	_, afterScheme, absolute := strings.Cut(target, "://")
	switch {
	case !isWord(method):
		return ""
	case strings.HasPrefix(target, "/"):
		return target
	case absolute:
		_, path, _ := strings.Cut(afterScheme, "/")
		return "/" + path
	}
	return ""
}

// webAgent returns the user agent, which is the second quoted string after the status and the size.
// The common format has none.
func webAgent(rest string) string {
	_, rest = cutQuoted(rest)
	for range 3 { // " 200 2326 "
		_, rest, _ = strings.Cut(rest, " ")
	}
	referer, hasReferer := strings.CutPrefix(rest, `"`)
	_, rest = cutQuoted(referer)
	agent, hasAgent := strings.CutPrefix(rest, ` "`)
	if !hasReferer || !hasAgent {
		return ""
	}
	agent, _ = cutQuoted(agent)
	return agent
}

// cutQuoted splits s after an opening quote at the closing quote, which is the first quote not
// escaped by a backslash. A truncated line has no closing quote.
func cutQuoted(s string) (quoted, rest string) {
	for end := 0; ; end++ {
		next := strings.IndexByte(s[end:], '"')
		if next < 0 {
			return s, ""
		}
		end += next
		if backslashes := end - len(strings.TrimRight(s[:end], `\`)); backslashes%2 == 0 {
			return s[:end], s[end+1:]
		}
	}
}
