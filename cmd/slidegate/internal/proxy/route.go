package proxy

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// register has the mux know a pattern. It panics where it cannot, in words that begin with where in the source the pattern stands.
func (p *Proxy) register(pattern string) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%s; write one as of net/http, such as POST /login, /api/ or GET api.example.com/items/{id}", reason(fmt.Sprint(cause)))
		}
	}()
	p.mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// reason is what net/http says of a pattern, but for places in the source.
func reason(text string) string {
	if _, after, found := strings.Cut(text, "conflicts with pattern "); found {
		other, _, _ := strings.Cut(after, " (registered at ")
		return "it conflicts with " + other + ": some requests match both, and neither is more specific"
	}
	_, after, _ := strings.Cut(text, "): ")
	return after
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
