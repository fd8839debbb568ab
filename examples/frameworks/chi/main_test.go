package main

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/slidegate/slidegate/examples/internal/visits"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

func TestLimits(t *testing.T) { visits.Check(t, newHandler) }

// TestRoute checks the keys of chiRoute for an escaped path, in a mounted router, and behind a
// middleware that changes the path.
func TestRoute(t *testing.T) {
	router := chi.NewRouter()
	router.Use(middleware.StripSlashes, limitBy("test", chiRoute(router), window.PerHour(1)).Wrap)
	router.Get("/orders/{id}", hello)
	router.Route("/api", func(r chi.Router) {
		r.Get("/a/{id}", hello)
		r.Get("/b", hello)
	})
	for _, of := range []struct {
		path string
		want int
	}{
		{"/orders/1", 200},
		{"/orders/1/", 429},
		{"/orders/a%2Fb", 429},
		{"/api/a/1", 200},
		{"/api/a/2", 429},
		{"/api/b", 200},
		{"/nowhere", 404},
		{"/api/nowhere", 429},
	} {
		if got := visits.Status(t, router, of.path); got != of.want {
			t.Errorf("%s: %d, not %d", of.path, got, of.want)
		}
	}
}

// TestSubRouter checks that with Use on a sub-router, Route is the pattern of the mount, so that
// all routes of the sub-router share one budget.
func TestSubRouter(t *testing.T) {
	router := chi.NewRouter()
	router.Route("/api", func(r chi.Router) {
		r.Use(limitBy("test", httplimit.Route, window.PerHour(1)).Wrap)
		r.Get("/a", hello)
		r.Get("/b", hello)
	})
	if one, two := visits.Status(t, router, "/api/a"), visits.Status(t, router, "/api/b"); one != 200 || two != 429 {
		t.Errorf("%d and %d", one, two)
	}
}

// TestRealIP checks that chi's RealIP lets clients choose the address by which they are limited, and
// that without it they cannot.
func TestRealIP(t *testing.T) {
	for _, of := range []struct {
		use  []func(http.Handler) http.Handler
		want int
	}{{nil, 429}, {[]func(http.Handler) http.Handler{middleware.RealIP}, 200}} { //nolint:staticcheck // deprecated, as the page says
		router := chi.NewRouter()
		router.Use(append(of.use, limitBy("test", clients.Key, window.PerHour(1)).Wrap)...)
		router.Get("/", hello)
		visits.Status(t, router, "/", "X-Real-IP", "203.0.113.1")
		if got := visits.Status(t, router, "/", "X-Real-IP", "203.0.113.2"); got != of.want {
			t.Errorf("with %d middlewares before: %d, not %d", len(of.use), got, of.want)
		}
	}
}
