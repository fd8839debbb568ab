package proxy

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
)

// newRoutedProxy returns a proxy with a route for each of the given patterns, and one for all other
// requests.
func newRoutedProxy(to string, patterns ...string) *Proxy {
	routes := []Route{limitedRoute("/", "1000000/1h")}
	for _, pattern := range patterns {
		routes = append(routes, limitedRoute(pattern, "1/1h"))
	}
	return newProxy(to, Config{Routes: routes})
}

// TestRoute checks which route a request has, and that an ambiguous request has none.
func TestRoute(t *testing.T) {
	const refused = ""
	p := newRoutedProxy("http://127.0.0.1:1", "POST /login", "/api/", "GET /api/health", "/items/{id}", "api.example.com/")
	for _, tt := range []struct{ request, want string }{
		// Usual spellings.
		{"POST /login", "POST /login"},
		{"POST /login?x=/api/", "POST /login"},
		{"GET /login", "/"},
		{"HEAD /api/health", "GET /api/health"},
		{"PUT /api/health", "/api/"},
		{"GET /api", "/api/"}, // servers redirect to /api/, or treat it as /api/
		{"GET /items/7", "/items/{id}"},
		{"GET /items/", "/"},
		{"GET http://api.example.com/login", "api.example.com/"},
		{"GET http://api.example.com", "api.example.com/"},

		// Spellings that all servers interpret in the same way.
		{"POST /lo%67in", "POST /login"},
		{"GET /a//b/../%2F", "/"},
		{"GET /api//b/./%2F", "/api/"},
		{"GET /items/7;v=2", "/items/{id}"},
		{"GET /a/..;/b;x=/../c", "/"},
		{"POST /x..;/login", "/"},
		{"POST /login;x=1", "/"}, // the proxy cannot know that this is a parameter

		// Spellings that servers interpret as different routes.
		{"POST //login", refused},
		{"POST /./login", refused},
		{"POST /%2e/login", refused},
		{"GET /items/a%2Fb", refused},
		{"POST /x%2F..%2Flogin", refused},
		{"POST /x/%2e%2e/login", refused},
		{"GET /api%2Fhealth", refused},
		{"GET /api/x%2F..%2F..%2Fy", refused},
		{"GET /api//../x", refused},
		{"GET /api/../x", refused},
		{"POST //x/login", refused},
		{"POST ///x/login", refused},
		{"POST /%2Fx/login", refused},
		{"POST /../login", refused},
		{"post /login", refused},
		{"Post /x/%2e%2e/lo%67in", refused},
		{"GET /items/..;x", refused},
		{"GET /items/;x", refused},
		{"GET /%2Fitems/7;%2F", refused},
		{"GET /x/..;/items%2F//%3B", refused},
		{"GET /api/..;/x", refused},

		// Not a path.
		{"POST a:http://x/login", refused},
		{"POST http:login", refused},
		{"POST http:%2Flogin", refused},
		{"POST *", refused},
	} {
		r := must(parseRequest(tt.request, "Host: a"))
		got, ok := p.route(r)
		if !ok {
			got = refused
		}
		if got != tt.want {
			t.Errorf("%s: %q, not %q", tt.request, got, tt.want)
		}
	}
}

// TestHost checks that upper case, a port or a trailing dot do not make a different host. If a
// request has no host, it gets the server's.
func TestHost(t *testing.T) {
	p := newRoutedProxy("http://api.example.com:8080", "api.example.com/")
	for host, want := range map[string]string{
		"api.example.com": "api.example.com/", "API.Example.com": "api.example.com/", "api.example.com.": "api.example.com/", "api.example.com:80": "api.example.com/",
		"API.example.com.:8080": "api.example.com/", "": "api.example.com/", "example.com": "/", "api.example.com.evil": "/",
	} {
		if got, ok := p.route(must(parseRequest("GET /", "Host: "+host))); got != want || !ok {
			t.Errorf("%q: %q, not %q", host, got, want)
		}
	}
}

// TestAmbiguous checks that a request that could belong to two routes gets 400, does not reach the
// server, and is counted.
func TestAmbiguous(t *testing.T) {
	p := newRoutedProxy(startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s reached the server", r.RequestURI) })), "POST /login")
	front := startServer(t, p)
	for _, target := range []string{"/x%2F..%2Flogin", "a:http://x/login", "/../login"} {
		if got := ask(t, front, "POST "+target+" HTTP/1.1\r\nHost: a\r\n\r\n"); got.Status != "400 Bad Request" {
			t.Errorf("%s: %s", target, got.Status)
		}
	}
	if n := metricValue(p, `slidegate_requests_total{by="nobody",decision="ambiguous",route=""}`); n != "3" {
		t.Errorf("%s are counted", n)
	}
}

// TestNoWayAroundARoute sends different spellings of POST /login to a server that interprets paths
// like Tomcat, after the client has used up the route's limit. None of them may reach the route.
func TestNoWayAroundARoute(t *testing.T) {
	const route = "POST /login"
	reached := make(chan string, 1)
	p := newRoutedProxy(startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		raw, _, _ := strings.Cut(r.RequestURI, "?")
		reached <- expectedRoute(r.Method, servletSegments(raw, decode, true))
	})), route)
	front := startServer(t, p)
	for _, tt := range []struct{ path, want string }{
		{"/login", "200 OK"},
		{"/login", "429 Too Many Requests"},
		{"/lo%67in", "429 Too Many Requests"},
		{"/x;y/z", "200 OK"},
		{"/x/..;/y", "200 OK"},
		{"/;/login", "400 Bad Request"},
		{"/;x=1/login", "400 Bad Request"},
		{"/;x//login", "400 Bad Request"},
		{"/.;/login", "400 Bad Request"},
		{"/..;/login", "400 Bad Request"},
		{"/x/..;/login", "400 Bad Request"},
		{"/x/..;a=b/login", "400 Bad Request"},
		{"/x/..;;/login", "400 Bad Request"},
		{"/x;y/..;/login", "400 Bad Request"},
		{"/x;y/../login", "400 Bad Request"},
		{"/x/y/..;/..;/login", "400 Bad Request"},
		{"/x/.;/..;/;/login", "400 Bad Request"},
		{"/x/..;/lo%67in", "400 Bad Request"},
		{"/x/%2e%2e;/login", "400 Bad Request"},
		{"/x/.%2E;a/login", "400 Bad Request"},
		{"/x/..%3B/login", "400 Bad Request"},
		{"/x/%2e%2e%3ba/login", "400 Bad Request"},
		{"/x/..;%2Flogin", "400 Bad Request"},
		{"/x%2F..;/login", "400 Bad Request"},
		{"/x%2F..;y%2Fz/login", "400 Bad Request"},
		{"/x%2F;y%2F/..;/..;/login", "400 Bad Request"},
		{"//;/login", "400 Bad Request"},
		{"//x/..;/login", "400 Bad Request"},
		{"/login/..;/login", "400 Bad Request"},
		{"http://a/x/..;/login", "400 Bad Request"},
		{"/x/..;/login?a=b", "400 Bad Request"},
	} {
		got, read := ask(t, front, "POST "+tt.path+" HTTP/1.1\r\nHost: a\r\n\r\n").Status, ""
		if got == "200 OK" {
			read = <-reached
		}
		if got != tt.want || read == route && tt.path != "/login" {
			t.Errorf("%s: %s, not %s; it reached %q", tt.path, got, tt.want, read)
		}
	}
}

// TestOutOfThePath checks that no request leaves the path in the server's URL.
func TestOutOfThePath(t *testing.T) {
	p := newRoutedProxy("http://127.0.0.1:1/app", "POST /login")
	for _, target := range []string{"/../app/login", "/%2e%2e/app/login", "/x/../../app/login", "//../../app/login", "/..%2Fapp%2Flogin", "/..", "/..;/app/login", "/..;x=1/app/login", "/%2e%2e;/app/login", "/..%3B/app/login", "/x/..;/..;/app/login", "/x%2F..;y%2Fz/../app/login"} {
		if pattern, ok := p.route(must(parseRequest("POST "+target, "Host: a"))); ok {
			t.Errorf("%s has the route %s", target, pattern)
		}
	}
}

// TestPatterns checks the errors for patterns that are invalid or that no request can match.
func TestPatterns(t *testing.T) {
	const hint = "; write one such as POST /login, /api/ or GET api.example.com/items/{id}"
	for _, tt := range []struct{ one, other, want string }{
		{"POST /login", "POST /login", `route "POST /login" already has limits; write them as one list, as in 1/5s,5/1h`},
		{"/{path...}", "", `route "/" conflicts with "/{path...}", because some requests match both; write a third that matches just these, or change one`},
		{"/a/{x}", "/{y}/b", `route "/{y}/b" conflicts with "/a/{x}", because some requests match both; write a third that matches just these, or change one`},
		{"login", "", `route "login" is not a pattern (at offset 0: host/path missing /)` + hint},
		{"/{a", "", `route "/{a" is not a pattern (at offset 1: bad wildcard segment (must end with '}'))` + hint},
		{"post /login", "", `route "post /login" matches no request, because its method is not in capitals` + hint},
		{"API.example.com/", "", `route "API.example.com/" matches no request, because its host has capitals, a port or a dot at the end` + hint},
		{"api.example.com:80/", "", `route "api.example.com:80/" matches no request, because its host has capitals, a port or a dot at the end` + hint},
		{"/\xff", "", `route "/\xff" matches no request, because it is not UTF-8` + hint},
		{"/api//x", "", `route "/api//x" matches no request, because its path has // or a dot segment` + hint},
		{"http://api.example.com/", "", `route "http://api.example.com/" matches no request, because its host has capitals, a port or a dot at the end` + hint},
	} {
		routes := []Route{limitedRoute(tt.one, "1/1h")}
		if tt.other != "" {
			routes = append(routes, limitedRoute(tt.other, "1/1h"))
		}
		if _, err := New(Config{To: &url.URL{Host: "a"}, Name: "proxy", Routes: routes, Log: slog.New(slog.DiscardHandler)}); err == nil || err.Error() != tt.want {
			t.Errorf("%q and %q:\n got %v\nwant %s", tt.one, tt.other, err, tt.want)
		}
	}
}

// clean removes duplicate slashes and dot segments from a path.
func clean(p string) string {
	if c := path.Clean("/" + p); c == "/" || !strings.HasSuffix(p, "/") {
		return c
	}
	return path.Clean("/"+p) + "/"
}

// decode decodes the percent-encodings in a path if they are valid.
func decode(p string) string {
	if d, err := url.PathUnescape(p); err == nil {
		return d
	}
	return p
}

// segments removes dot segments from a path according to RFC 3986, section 5.2.4: // contains an
// empty segment.
func segments(p string) string {
	var out []string
	parts := strings.Split(p, "/")[1:]
	for i, s := range parts {
		last := i == len(parts)-1
		switch {
		case s == "..":
			out = out[:max(0, len(out)-1)]
		case s != ".":
			out = append(out, s)
			continue
		}
		if last {
			out = append(out, "")
		}
	}
	return "/" + strings.Join(out, "/")
}

// reference returns the path that a server sees if it treats the target as a relative URL, as in
// new URL(target, "http://localhost").
func reference(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return "/"
	}
	return (&url.URL{Scheme: "http", Host: "localhost", Path: "/"}).ResolveReference(u).EscapedPath()
}

// servletSegments returns a path's segments as servlet containers see them. They drop each
// segment's parameters, decode it, and then remove dot segments. Some also remove empty segments.
// The parameters of other segments are kept in the result, because the proxy cannot recognize them.
func servletSegments(path string, decode func(string) string, mergeSlashes bool) []string {
	out := []string{""}
	push := func(name, parameters string, last bool) {
		switch {
		case name == "..":
			out = out[:max(1, len(out)-1)]
		case name == "" && !last && !mergeSlashes, name != "" && name != ".":
			out = append(out, name+parameters)
			return
		}
		if last {
			out = append(out, "")
		}
	}
	parts := strings.Split(path, "/")[1:]
	for i, part := range parts {
		name, parameters, found := strings.Cut(part, ";")
		if found {
			parameters = ";" + parameters
		}
		names := strings.Split(decode(name), "/")
		end := len(names) - 1
		for _, name := range names[:end] {
			push(name, "", false)
		}
		push(names[end], parameters, i == len(parts)-1)
	}
	return out
}

// asIs returns a path that is already decoded.
func asIs(path string) string { return path }

// decodedSegments splits a path into segments, and decodes each on its own.
func decodedSegments(path string) []string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = decode(parts[i])
	}
	return parts
}

// splitSegments splits a decoded path into segments.
func splitSegments(path string) []string { return strings.Split(path, "/") }

// expectedRoute returns the route that a request has on a server with routes for POST /login, /api/
// and /items/{id}. The server ignores the case of methods.
func expectedRoute(method string, parts []string) string {
	switch {
	case strings.EqualFold(method, http.MethodPost) && slices.Equal(parts, []string{"", "login"}):
		return "POST /login"
	case len(parts) > 2 && parts[1] == "api":
		return "/api/"
	case len(parts) == 3 && parts[1] == "items" && parts[2] != "":
		return "/items/{id}"
	}
	return "/"
}

// FuzzNoPathGoesAroundARoute checks that the proxy counts every request under the route to which a
// server assigns it, or refuses the request.
func FuzzNoPathGoesAroundARoute(f *testing.F) {
	for _, target := range []string{
		"/login", "//login", "/x/../login", "/x%2F..%2Flogin", "/x/%2e%2E/login", "/lo%67in", "/%2Flogin", "//x/login", "/.//login", "/api/../login", "/api//../login", "/api%2F7", "/items/a%2Fb", "/items//7",
		"/items/../login/.", "http://x/login", "a:http://x/login", "http:/login", "http://x//login", "/..", "/../login", "/a%2F..%2Flogin|", "/api/%252e%252e/login", "*", "/login?/x", "/?/../login", "/%", "///x/login",
		"/;/login", "/.;/login", "/x;y/..;/login", "/x/..%3Ba/login", "/x%2F..;y%2Fz/login", "/x/%2e%2e;/login", "/login;x", "/items/;x", "/items/7;x/..;", "/%2Fitems/7;%2F", "//;/x;/login", "/api;x/7", "/api/.;/..;/x",
	} {
		f.Add("POST", target)
		f.Add("post", target)
	}
	patterns := []string{"POST /login", "/api/", "/items/{id}"}
	p := newRoutedProxy("http://127.0.0.1:1", patterns...)
	behind := http.NewServeMux()
	for _, pattern := range append(patterns, "/") {
		behind.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Pattern", r.Pattern) })
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		r, err := parseRequest(method+" "+target, "Host: a")
		if err != nil || r.Method == http.MethodConnect {
			return
		}
		pattern, ok := p.route(r)
		if !ok {
			return
		}
		pr := &httputil.ProxyRequest{In: r, Out: r.Clone(t.Context())}
		p.rewrite(pr)
		sent := pr.Out.URL.RequestURI()
		if sent[0] != '/' {
			t.Fatalf("%q goes on as %q", target, sent)
		}
		raw, _, _ := strings.Cut(sent, "?")
		for name, parts := range map[string][]string{
			"as it is": decodedSegments(raw), "cleaned": decodedSegments(clean(raw)), "by RFC 3986": decodedSegments(segments(raw)), "as a reference": decodedSegments(reference(sent)), "as a reference, then cleaned": decodedSegments(clean(reference(sent))),
			"decoded": splitSegments(decode(raw)), "decoded, then cleaned": splitSegments(clean(decode(raw))), "decoded, then by RFC 3986": splitSegments(segments(decode(raw))),
			"cleaned, then decoded": splitSegments(decode(clean(raw))), "by RFC 3986, then decoded": splitSegments(decode(segments(raw))), "as a reference, then decoded": splitSegments(decode(reference(sent))),
			"cleaned, decoded and cleaned": splitSegments(clean(decode(clean(raw)))), "by RFC 3986, decoded and by that": splitSegments(segments(decode(segments(raw)))), "as a reference, decoded and cleaned": splitSegments(clean(decode(reference(sent)))),
			"as Tomcat": servletSegments(raw, decode, true), "as Jetty": servletSegments(raw, decode, false),
			"decoded, then as Tomcat": servletSegments(decode(raw), asIs, true), "decoded, then as Jetty": servletSegments(decode(raw), asIs, false),
		} {
			if want := expectedRoute(method, parts); want != pattern && !slices.Equal(parts, []string{"", "api"}) { // the proxy counts /api under /api/
				t.Errorf("%s %q has the route %s for the proxy, and for a server that reads %q %s, the route %s", method, target, pattern, sent, name, want)
			}
		}
		w := httptest.NewRecorder()
		if again, err := parseRequest(method+" "+sent, "Host: a"); err == nil {
			behind.ServeHTTP(w, again)
		}
		if want := w.Header().Get("Pattern"); want != "" && want != pattern {
			t.Errorf("%s %q has the route %s for the proxy, and for http.ServeMux %s", method, target, pattern, want)
		}
	})
}
