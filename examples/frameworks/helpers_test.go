package frameworks

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode) // silences gin
	os.Exit(m.Run())
}

// must returns v, or panics if there is an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// once returns a limiter that allows one request an hour.
func once() *window.Limiter {
	return must(window.NewLocal(window.Config{Name: "api", Limits: []window.Limit{window.PerHour(1)}}))
}

var clients httplimit.Clients // the address of the connection; behind a load balancer, use httplimit.ClientsBehind

// limitBy returns a middleware that allows one request per hour and key.
func limitBy(key httplimit.Key) *httplimit.Middleware {
	return must(httplimit.New(httplimit.Config{Limiter: once(), Key: key, Outage: httplimit.FailOpen}))
}

// status sends a request from 198.51.100.7 and returns the status. fields are alternating header
// names and values.
func status(h http.Handler, path string, fields ...string) int {
	r, w := httptest.NewRequest(http.MethodGet, "http://example.com"+path, http.NoBody), httptest.NewRecorder()
	r.RemoteAddr = "198.51.100.7:50000"
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	h.ServeHTTP(w, r)
	return w.Code
}

// show sends a request and prints the status.
func show(h http.Handler, path string, fields ...string) {
	fmt.Println("GET", path, status(h, path, fields...))
}

// hello is a handler.
func hello(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "hello") }

// userKey is the context key of the user's name.
type userKey struct{}

// nameOf returns the user named in a request. A real program would verify a session or a token.
func nameOf(r *http.Request) string { return r.Header.Get("X-Test-User") }

// authenticate puts the user's name into the context of a request.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := nameOf(r)
		if name == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
	})
}

// user returns the Key of the user that authenticate has verified.
func user(r *http.Request) string {
	name, _ := r.Context().Value(userKey{}).(string)
	if name == "" {
		return "" // HTTP 400: authenticate has not run
	}
	return "user " + name
}

// checkRoutes checks the keys of a router's routes under a limit of one request per hour and route.
// Paths that match no route share one budget, so that clients cannot get another budget by
// inventing paths.
func checkRoutes(t *testing.T, h http.Handler) {
	t.Helper()
	for _, of := range []struct {
		path string
		want int
	}{
		{"/orders/1", 200},
		{"/orders/2", 429},
		{"/prices", 200},
		{"/nowhere", 404},
		{"/elsewhere", 429},
		{"/orders/1/else", 429},
	} {
		if got := status(h, of.path); got != of.want {
			t.Errorf("%s: %d, not %d", of.path, got, of.want)
		}
	}
}

// checkCountOnly checks the second response of a handler that responds with 401, if only responses
// with 401 count.
func checkCountOnly(t *testing.T, handler func(*httplimit.Middleware) http.Handler, want int) {
	t.Helper()
	h := handler(must(httplimit.New(httplimit.Config{
		Limiter: once(), Key: clients.Key, Outage: httplimit.FailOpen,
		CountOnly: func(status int) bool { return status == http.StatusUnauthorized },
	})))
	if one, two := status(h, "/"), status(h, "/"); one != http.StatusUnauthorized || two != want {
		t.Errorf("%d, then %d, want %d", one, two, want)
	}
}
