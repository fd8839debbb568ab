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

// register has the mux know a pattern. The mux panics where it cannot.
func (p *Proxy) register(pattern string) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("route %q %s", pattern, fault(pattern, fmt.Sprint(cause)))
		}
	}()
	if p.routes[pattern] != nil {
		return fmt.Errorf("route %q has limits already; write them as one, as in 1/5s,5/1h", pattern)
	}
	if why := vain(pattern); why != "" {
		return fmt.Errorf("route %q matches no request, as %s; write one as POST /login, /api/ or GET api.example.com/items/{id}", pattern, why)
	}
	p.mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// vain is why no request ever matches a pattern that net/http takes, if so.
func vain(pattern string) string {
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

// fault is what net/http says of a pattern, but for where in the source it stands.
func fault(pattern, text string) string {
	if _, after, found := strings.Cut(text, "conflicts with pattern "); found {
		other, _, _ := strings.Cut(after, " (registered at ")
		return "conflicts with " + other + ", as some requests match both; write a third that matches just these, or change one"
	}
	return "is no pattern (" + strings.TrimPrefix(text, fmt.Sprintf("parsing %q: ", pattern)) + "); write one as POST /login, /api/ or GET api.example.com/items/{id}"
}

// route is the pattern of the route of a request. It looks at the path as if it had no // and no dot segments, as most servers do. It reports false if another server could find
// in it the path, or the method, of another route; and if it is no path, or one out of what it is to be in.
func (p *Proxy) route(r *http.Request) (pattern string, ok bool) {
	escaped := cmp.Or(r.URL.EscapedPath(), "/")
	if r.URL.Opaque != "" || escaped[0] != '/' || climbs(r.URL.Path) {
		return "", false
	}
	pattern = p.match(r.Host, r.Method, escaped)
	method := strings.ToUpper(r.Method) // as some servers take it
	if method == r.Method && !strings.Contains(escaped, "//") && !strings.Contains(escaped, "/.") && !strings.Contains(escaped, "%") {
		return pattern, true
	}
	return pattern, !slices.ContainsFunc(readings(r.URL), func(path string) bool {
		return p.match(r.Host, r.Method, path) != pattern || p.match(r.Host, method, path) != pattern
	})
}

// match is the pattern of an escaped path.
func (p *Proxy) match(host, method, escaped string) string {
	u := &url.URL{RawPath: escaped}
	u.Path, _ = url.PathUnescape(escaped)
	_, pattern := p.mux.Handler(&http.Request{Method: method, Host: hostname(cmp.Or(host, p.cfg.To.Host)), URL: u})
	return pattern
}

// hostname is a host in the one spelling of many that patterns have.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// climbs reports whether a path has so many dot segments that it leaves the root.
func climbs(decoded string) bool {
	inside := path.Clean(strings.TrimLeft(decoded, "/"))
	return inside == ".." || strings.HasPrefix(inside, "../")
}

// readings are the escaped paths that servers may find in one: with its percent signs decoded or not; with // at its begin taken for that of a host, or not; with // taken for one slash, or
// not; and with dot segments left in it, or not.
func readings(u *url.URL) (all []string) {
	for _, path := range []string{u.EscapedPath(), (&url.URL{Path: u.Path}).EscapedPath()} {
		starts := []string{path}
		if strings.HasPrefix(path, "//") {
			_, after, _ := strings.Cut(strings.TrimLeft(path, "/"), "/")
			starts = append(starts, "/"+after)
		}
		for _, path := range starts {
			all = append(all, path, named(path, ""), named(path, "", ".", ".."))
		}
	}
	return all
}

// named is a path with a name in the place of such segments, so that the mux does not clean them away.
func named(path string, segments ...string) string {
	parts := strings.Split(path, "/")
	last := len(parts) - 1
	for i, part := range parts {
		inside := i > 0 && (i < last || part != "")
		if inside && slices.Contains(segments, part) {
			parts[i] = "%00"
		}
	}
	if parts[last] == "." || parts[last] == ".." {
		parts = append(parts, "") // RFC 3986, 5.2.4 leaves a slash
	}
	return strings.Join(parts, "/")
}
