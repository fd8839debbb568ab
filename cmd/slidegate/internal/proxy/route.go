package proxy

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// register has the mux know a pattern. The mux panics where it cannot.
func (p *Proxy) register(pattern string) (err error) {
	if p.routes[pattern] != nil {
		return fmt.Errorf("route %q has limits already; write them as one, as in 1/5s,5/1h", pattern)
	}
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("route %q %s", pattern, fault(pattern, fmt.Sprint(cause)))
		}
	}()
	p.mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// fault is what net/http says of a pattern, but for where in the source it stands.
func fault(pattern, text string) string {
	if _, after, found := strings.Cut(text, "conflicts with pattern "); found {
		other, _, _ := strings.Cut(after, " (registered at ")
		return "conflicts with " + other + ", as some requests match both; write a third that matches just these, or change one"
	}
	return "is no pattern (" + strings.TrimPrefix(text, fmt.Sprintf("parsing %q: ", pattern)) + "); write one as POST /login, /api/ or GET api.example.com/items/{id}"
}

// route is the pattern of the route of a request. It looks at the path as if it had no // and no dot segments, as servers do. It reports false if the path has slashes
// or dots in percent signs that make it one of another route for a server that decodes them first.
func (p *Proxy) route(r *http.Request) (pattern string, ok bool) {
	pattern = p.match(r)
	if r.URL.RawPath == "" {
		return pattern, true
	}
	decoded := *r
	decoded.URL = &url.URL{Path: r.URL.Path}
	return pattern, p.match(&decoded) == pattern
}

func (p *Proxy) match(r *http.Request) string {
	if _, pattern := p.mux.Handler(r); pattern != "" {
		return pattern
	}
	return rest // as OPTIONS *
}
