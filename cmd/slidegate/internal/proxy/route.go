package proxy

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// register adds a pattern to the mux. It returns an error if the mux panics.
func (p *Proxy) register(pattern string) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("route %q %s", pattern, patternError(pattern, fmt.Sprint(cause)))
		}
	}()
	if p.routes[pattern] != nil {
		return fmt.Errorf("route %q already has limits; write them as one list, as in 1/5s,5/1h", pattern)
	}
	if why := whyNeverMatches(pattern); why != "" {
		return fmt.Errorf("route %q matches no request, because %s; write one such as POST /login, /api/ or GET api.example.com/items/{id}", pattern, why)
	}
	p.mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// whyNeverMatches says why no request can match a pattern that net/http accepts. It returns "" if a
// request can.
func whyNeverMatches(pattern string) string {
	begin, rest, _ := strings.Cut(pattern, "/")
	method, host, found := strings.Cut(begin, " ")
	if !found {
		method, host = "", begin
	}
	clean := path.Clean("/" + rest)
	switch {
	case !utf8.ValidString(pattern):
		return "it is not UTF-8"
	case method != strings.ToUpper(method):
		return "its method is not in capitals"
	case host != hostname(host):
		return "its host has capitals, a port or a dot at the end"
	case clean != "/" && "/"+strings.TrimSuffix(rest, "/") != clean || clean == "/" && rest != "":
		return "its path has // or a dot segment"
	}
	return ""
}

// patternError returns net/http's message about a pattern, without the position in the source.
func patternError(pattern, text string) string {
	if _, after, found := strings.Cut(text, "conflicts with pattern "); found {
		other, _, _ := strings.Cut(after, " (registered at ")
		return "conflicts with " + other + ", because some requests match both; write a third that matches just these, or change one"
	}
	why := strings.TrimPrefix(text, fmt.Sprintf("parsing %q: ", pattern))
	return "is not a pattern (" + why + "); write one such as POST /login, /api/ or GET api.example.com/items/{id}"
}

// route returns the pattern of the request's route. Like most servers, it matches the path after
// removing duplicate slashes and dot segments. ok is false if another server could interpret the
// path or the method as belonging to a different route, if the target is not a path, or if the path
// leaves the root.
func (p *Proxy) route(r *http.Request) (pattern string, ok bool) {
	escaped := cmp.Or(r.URL.EscapedPath(), "/")
	if r.URL.Opaque != "" || escaped[0] != '/' {
		return "", false
	}
	pattern = p.match(r.Host, r.Method, escaped)
	method := strings.ToUpper(r.Method) // as some servers interpret it
	if method == r.Method && !strings.Contains(escaped, "//") && !strings.Contains(escaped, "/.") && !strings.ContainsAny(escaped, "%;") {
		return pattern, true
	}
	paths := readings(escaped)
	if slices.ContainsFunc(paths, leavesRoot) {
		return "", false
	}
	return pattern, !slices.ContainsFunc(pathVariants(paths), func(path string) bool {
		return p.match(r.Host, r.Method, path) != pattern || p.match(r.Host, method, path) != pattern
	})
}

// match returns the pattern that matches an escaped path.
func (p *Proxy) match(host, method, escaped string) string {
	u := &url.URL{RawPath: escaped}
	u.Path, _ = url.PathUnescape(escaped)
	_, pattern := p.mux.Handler(&http.Request{Method: method, Host: hostname(cmp.Or(host, p.cfg.To.Host)), URL: u})
	return pattern
}

// hostname returns a host in the form used in patterns: in lower case, without a port or a trailing
// dot.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// leavesRoot reports whether an escaped path has more .. segments than it takes to reach the root.
func leavesRoot(escaped string) bool {
	inside := path.Clean(strings.TrimLeft(unescape(escaped), "/"))
	return inside == ".." || strings.HasPrefix(inside, "../")
}

// pathVariants returns the escaped paths that servers may see, given the readings of a path. These
// are all combinations of:
//   - a reading;
//   - // and a host at the start removed, or not;
//   - // and dot segments removed, only dot segments removed, or neither.
func pathVariants(readings []string) (all []string) {
	for _, path := range readings {
		starts := []string{path}
		if strings.HasPrefix(path, "//") {
			_, after, _ := strings.Cut(strings.TrimLeft(path, "/"), "/")
			starts = append(starts, "/"+after)
		}
		for _, path := range starts {
			all = append(all, path, nameSegments(path, ""), nameSegments(path, "", ".", ".."))
		}
	}
	return all
}

// readings returns the ways in which servers may read an escaped path: unchanged and decoded, and
// each of these also without the segments' parameters, which may be dropped before decoding, after
// it, or both.
func readings(escaped string) []string {
	dropped, decoded := dropParameters(escaped), reescape(escaped)
	return []string{escaped, dropped, decoded, dropParameters(decoded), reescape(dropped), dropParameters(reescape(dropped))}
}

// reescape returns an escaped path with only those percent-encodings that are necessary.
func reescape(escaped string) string { return (&url.URL{Path: unescape(escaped)}).EscapedPath() }

// unescape decodes a path. All of its percent-encodings are valid, because net/http has parsed it.
func unescape(escaped string) string {
	decoded, _ := url.PathUnescape(escaped)
	return decoded
}

// dropParameters removes the parameters of those segments that are empty or dot segments up to
// their first semicolon. Servlet containers drop parameters before they remove dot segments, so
// /x/..;/login means /login. They never decode parameters.
func dropParameters(escaped string) string {
	parts := strings.Split(escaped, "/")
	for i, part := range parts {
		name, _, _ := strings.Cut(part, ";")
		decoded := unescape(name)
		switch decoded[strings.LastIndex(decoded, "/")+1:] {
		case "", ".", "..":
			parts[i] = name
		default:
			parts[i] = name + strings.ReplaceAll(part[len(name):], "%", "%25") // must stay encoded
		}
	}
	return strings.Join(parts, "/")
}

// nameSegments replaces the given segments of a path by a name, so that the mux does not remove
// them.
func nameSegments(path string, segments ...string) string {
	parts := strings.Split(path, "/")
	last := len(parts) - 1
	for i, part := range parts {
		inside := i > 0 && (i < last || part != "")
		if inside && slices.Contains(segments, part) {
			parts[i] = "%00"
		}
	}
	if parts[last] == "." || parts[last] == ".." {
		parts = append(parts, "") // RFC 3986, section 5.2.4, keeps the slash
	}
	return strings.Join(parts, "/")
}
