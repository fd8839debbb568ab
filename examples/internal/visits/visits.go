// Package visits tests the limits of the services in examples/frameworks.
package visits

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// Status sends a request from 198.51.100.7 and returns the status. fields are alternating header
// names and values.
func Status(t *testing.T, h http.Handler, path string, fields ...string) int {
	t.Helper()
	r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com"+path, http.NoBody), httptest.NewRecorder()
	r.RemoteAddr = "198.51.100.7:50000"
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	h.ServeHTTP(w, r)
	if served := strings.Contains(w.Body.String(), "hello"); served != (w.Code == http.StatusOK) {
		t.Errorf("%s gets %d, with %q", path, w.Code, w.Body)
	}
	return w.Code
}

// Check checks the limits of a service, per minute: 20 requests from each address, 10 to each
// route, and 3 of each user. Paths that match no route share one budget, so that clients cannot get
// another budget by inventing paths.
func Check(t *testing.T, newHandler func() http.Handler) {
	t.Helper()
	type visit struct {
		times int
		path  string
		user  string
		want  int
	}
	for name, visits := range map[string][]visit{
		"routes": {
			{6, "/orders/1", "", 200},
			{4, "/orders/2", "", 200},
			{1, "/orders/3", "", 429},
			{1, "/prices", "", 200},
		},
		"paths without a route": {
			{4, "/nowhere", "", 404},
			{6, "/elsewhere", "", 404},
			{1, "/anywhere", "", 429},
		},
		"addresses": {
			{10, "/orders/1", "", 200},
			{9, "/prices", "", 200},
			{1, "/nowhere", "", 404},
			{1, "/prices", "", 429},
			{1, "/nowhere", "", 429},
		},
		"users": {
			{3, "/account", "alice", 200},
			{1, "/account", "alice", 429},
			{1, "/account", "bob", 200},
			{1, "/account", "", 401},
		},
	} {
		h := newHandler()
		for _, v := range visits {
			for range v.times {
				if got := Status(t, h, v.path, "X-Test-User", v.user); got != v.want {
					t.Errorf("%s: %s gets %d, not %d", name, v.path, got, v.want)
				}
			}
		}
	}
}

// CheckCountOnly checks the second response of a handler that responds with 401, if only responses
// with 401 count.
func CheckCountOnly(t *testing.T, want int, wrap func(*httplimit.Middleware) http.Handler) {
	t.Helper()
	limiter, err := window.NewLocal(window.Config{Name: "test", Limits: []window.Limit{window.PerHour(1)}})
	if err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter, Key: new(httplimit.Clients).Key, Outage: httplimit.FailOpen,
		CountOnly: func(status int) bool { return status == http.StatusUnauthorized },
	})
	if err != nil {
		t.Fatal(err)
	}
	h := wrap(limit)
	if one, two := Status(t, h, "/"), Status(t, h, "/"); one != http.StatusUnauthorized || two != want {
		t.Errorf("%d, then %d, want %d", one, two, want)
	}
}
