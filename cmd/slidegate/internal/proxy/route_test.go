package proxy

import (
	"bufio"
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

// routed is a proxy with such routes, and one for the rest.
func routed(to string, patterns ...string) *Proxy {
	routes := []Route{limited("/", "1000000/1h")}
	for _, pattern := range patterns {
		routes = append(routes, limited(pattern, "1/1h"))
	}
	return made(to, Config{Routes: routes})
}

// parsed is a request with this first line, and the fields that follow it.
func parsed(line string, fields ...string) (*http.Request, error) {
	return http.ReadRequest(bufio.NewReader(strings.NewReader(line + " HTTP/1.1\r\n" + strings.Join(append(fields, "", ""), "\r\n"))))
}

// TestRoute: which route has a request, and where it could have another, none.
func TestRoute(t *testing.T) {
	const refused = ""
	p := routed("http://127.0.0.1:1", "POST /login", "/api/", "GET /api/health", "/items/{id}", "api.example.com/")
	for _, tt := range []struct{ request, want string }{
		// As they are.
		{"POST /login", "POST /login"},
		{"POST /login?x=/api/", "POST /login"},
		{"GET /login", "/"},
		{"HEAD /api/health", "GET /api/health"},
		{"PUT /api/health", "/api/"},
		{"GET /api", "/api/"}, // servers send it on to /api/, or take it for that
		{"GET /items/7", "/items/{id}"},
		{"GET /items/", "/"},
		{"GET http://api.example.com/login", "api.example.com/"},
		{"GET http://api.example.com", "api.example.com/"},

		// Spelt in another way that all servers read alike.
		{"POST /lo%67in", "POST /login"},
		{"GET /a//b/../%2F", "/"},
		{"GET /api//b/./%2F", "/api/"},

		// Spelt in another way that some read as one route, and some as another.
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

		// No path.
		{"POST a:http://x/login", refused},
		{"POST http:login", refused},
		{"POST http:%2Flogin", refused},
		{"POST *", refused},
	} {
		r := must(parsed(tt.request, "Host: a"))
		got, ok := p.route(r)
		if !ok {
			got = refused
		}
		if got != tt.want {
			t.Errorf("%s: %q, not %q", tt.request, got, tt.want)
		}
	}
}

// TestHost: a host is the same in capitals, with a port and with a dot; and whoever names none means the server.
func TestHost(t *testing.T) {
	p := routed("http://api.example.com:8080", "api.example.com/")
	for host, want := range map[string]string{
		"api.example.com": "api.example.com/", "API.Example.com": "api.example.com/", "api.example.com.": "api.example.com/", "api.example.com:80": "api.example.com/",
		"API.example.com.:8080": "api.example.com/", "": "api.example.com/", "example.com": "/", "api.example.com.evil": "/",
	} {
		if got, ok := p.route(must(parsed("GET /", "Host: "+host))); got != want || !ok {
			t.Errorf("%q: %q, not %q", host, got, want)
		}
	}
}

// TestAmbiguous: a request that could have two routes gets 400, does not reach the server, and is counted.
func TestAmbiguous(t *testing.T) {
	p := routed(serving(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s reached the server", r.RequestURI) })), "POST /login")
	front := serving(t, p)
	for _, target := range []string{"/x%2F..%2Flogin", "a:http://x/login", "/../login"} {
		if got := ask(t, front, "POST "+target+" HTTP/1.1\r\nHost: a\r\n\r\n"); got.Status != "400 Bad Request" {
			t.Errorf("%s: %s", target, got.Status)
		}
	}
	if n := metric(p, `slidegate_requests_total{by="nobody",decision="ambiguous",route=""}`); n != "3" {
		t.Errorf("%s are counted", n)
	}
}

// TestOutOfThePath: nobody gets out of the path that the URL of the server has.
func TestOutOfThePath(t *testing.T) {
	p := routed("http://127.0.0.1:1/app", "POST /login")
	for _, target := range []string{"/../app/login", "/%2e%2e/app/login", "/x/../../app/login", "//../../app/login", "/..%2Fapp%2Flogin", "/.."} {
		if pattern, ok := p.route(must(parsed("POST "+target, "Host: a"))); ok {
			t.Errorf("%s is of %s", target, pattern)
		}
	}
}

// TestPatterns: one that is wrong, or that no request would match, is an error that says why.
func TestPatterns(t *testing.T) {
	const one, such = "; write one as ", "POST /login, /api/ or GET api.example.com/items/{id}"
	for _, tt := range []struct{ one, other, want string }{
		{"POST /login", "POST /login", `route "POST /login" has limits already; write them as one, as in 1/5s,5/1h`},
		{"/{path...}", "", `route "/" conflicts with "/{path...}", as some requests match both; write a third that matches just these, or change one`},
		{"/a/{x}", "/{y}/b", `route "/{y}/b" conflicts with "/a/{x}", as some requests match both; write a third that matches just these, or change one`},
		{"login", "", `route "login" is no pattern (at offset 0: host/path missing /)` + one + such},
		{"/{a", "", `route "/{a" is no pattern (at offset 1: bad wildcard segment (must end with '}'))` + one + such},
		{"post /login", "", `route "post /login" matches no request, as its method is not in capitals` + one + such},
		{"API.example.com/", "", `route "API.example.com/" matches no request, as its host has capitals, a port or a dot at the end` + one + such},
		{"api.example.com:80/", "", `route "api.example.com:80/" matches no request, as its host has capitals, a port or a dot at the end` + one + such},
		{"/\xff", "", `route "/\xff" matches no request, as it is not UTF-8` + one + such},
		{"/api//x", "", `route "/api//x" matches no request, as its path has // or a dot segment` + one + such},
		{"http://api.example.com/", "", `route "http://api.example.com/" matches no request, as its host has capitals, a port or a dot at the end` + one + such},
	} {
		routes := []Route{limited(tt.one, "1/1h")}
		if tt.other != "" {
			routes = append(routes, limited(tt.other, "1/1h"))
		}
		if _, err := New(Config{To: &url.URL{Host: "a"}, Name: "proxy", Routes: routes, Log: slog.New(slog.DiscardHandler)}); err == nil || err.Error() != tt.want {
			t.Errorf("%q and %q:\n got %v\nwant %s", tt.one, tt.other, err, tt.want)
		}
	}
}

// clean is a path without // and dot segments.
func clean(p string) string {
	if c := path.Clean("/" + p); c == "/" || !strings.HasSuffix(p, "/") {
		return c
	}
	return path.Clean("/"+p) + "/"
}

// decode is a path without percent signs, where it can be one.
func decode(p string) string {
	if d, err := url.PathUnescape(p); err == nil {
		return d
	}
	return p
}

// segments is a path without dot segments, as RFC 3986, 5.2.4 has it: // is an empty segment.
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

// reference is the path of a target that a server takes for a relative URL, as in new URL(target, "http://localhost").
func reference(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return "/"
	}
	return (&url.URL{Scheme: "http", Host: "localhost", Path: "/"}).ResolveReference(u).EscapedPath()
}

// apart are the parts of a path, each decoded by itself, and whole those of one that is decoded.
func apart(path string) []string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = decode(parts[i])
	}
	return parts
}

func whole(path string) []string { return strings.Split(path, "/") }

// asked is the route of a path to a server that has routes for POST /login, /api/ and /items/{id}, and takes methods in any case.
func asked(method string, parts []string) string {
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

// FuzzNoPathGoesAroundARoute: what a server takes for a request of a route, the proxy has counted there, or refused.
func FuzzNoPathGoesAroundARoute(f *testing.F) {
	for _, target := range []string{
		"/login", "//login", "/x/../login", "/x%2F..%2Flogin", "/x/%2e%2E/login", "/lo%67in", "/%2Flogin", "//x/login", "/.//login", "/api/../login", "/api//../login", "/api%2F7", "/items/a%2Fb", "/items//7",
		"/items/../login/.", "http://x/login", "a:http://x/login", "http:/login", "http://x//login", "/..", "/../login", "/a%2F..%2Flogin|", "/api/%252e%252e/login", "*", "/login?/x", "/?/../login", "/%", "///x/login",
	} {
		f.Add("POST", target)
		f.Add("post", target)
	}
	patterns := []string{"POST /login", "/api/", "/items/{id}"}
	p := routed("http://127.0.0.1:1", patterns...)
	behind := http.NewServeMux()
	for _, pattern := range append(patterns, "/") {
		behind.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Pattern", r.Pattern) })
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		r, err := parsed(method+" "+target, "Host: a")
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
			"as it is": apart(raw), "cleaned": apart(clean(raw)), "by RFC 3986": apart(segments(raw)), "as a reference": apart(reference(sent)), "as a reference, then cleaned": apart(clean(reference(sent))),
			"decoded": whole(decode(raw)), "decoded, then cleaned": whole(clean(decode(raw))), "decoded, then by RFC 3986": whole(segments(decode(raw))),
			"cleaned, then decoded": whole(decode(clean(raw))), "by RFC 3986, then decoded": whole(decode(segments(raw))), "as a reference, then decoded": whole(decode(reference(sent))),
			"cleaned, decoded and cleaned": whole(clean(decode(clean(raw)))), "by RFC 3986, decoded and by that": whole(segments(decode(segments(raw)))), "as a reference, decoded and cleaned": whole(clean(decode(reference(sent)))),
		} {
			if want := asked(method, parts); want != pattern && !slices.Equal(parts, []string{"", "api"}) { // which the proxy has in /api/
				t.Errorf("%s %q is of %s for the proxy, and for a server that takes %q %s, of %s", method, target, pattern, sent, name, want)
			}
		}
		w := httptest.NewRecorder()
		if again, err := parsed(method+" "+sent, "Host: a"); err == nil {
			behind.ServeHTTP(w, again)
		}
		if want := w.Header().Get("Pattern"); want != "" && want != pattern {
			t.Errorf("%s %q is of %s for the proxy, and for http.ServeMux of %s", method, target, pattern, want)
		}
	})
}
