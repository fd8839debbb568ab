package frameworks

import (
	"cmp"
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/slidegate/slidegate/httplimit"
)

// How do I limit a chi router by IP address?
func Example_chi() {
	limit := limitBy(clients.Key)
	router := chi.NewRouter()
	router.Use(limit.Wrap)
	router.Get("/orders/{id}", hello)

	show(router, "/orders/1")
	show(router, "/orders/2")
	show(router, "/nowhere")
	// Output:
	// GET /orders/1 200
	// GET /orders/2 429
	// GET /nowhere 429
}

// How do I limit each chi route separately?
func Example_chiRoute() {
	limiter := once()
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter, Key: httplimit.Key(httplimit.Route).And(clients.Key), Outage: httplimit.FailOpen,
	})
	if err != nil {
		panic(err)
	}
	router := chi.NewRouter()
	router.Group(func(r chi.Router) {
		r.Use(limit.Wrap) // in a Group, it runs once the route is known
		r.Get("/orders/{id}", hello)
		r.Get("/prices", hello)
	})
	router.Get("/health", hello) // without a limit

	show(router, "/orders/1")
	show(router, "/orders/2")
	show(router, "/prices")
	show(router, "/health")
	show(router, "/nowhere")
	// Output:
	// GET /orders/1 200
	// GET /orders/2 429
	// GET /prices 200
	// GET /health 200
	// GET /nowhere 404
}

// chiRoute returns the Key that is the pattern of the route, for Use on a whole router.
func chiRoute(router chi.Routes) httplimit.Key {
	return httplimit.RouteBy(func(r *http.Request) string {
		current := chi.RouteContext(r.Context()) // has the path that StripSlashes and others set
		path := cmp.Or(current.RoutePath, r.URL.RawPath, r.URL.Path)
		return router.Find(chi.NewRouteContext(), r.Method, path)
	})
}

// How do I limit each route with Use on a whole chi router?
func Example_chiUse() {
	limiter := once()
	router := chi.NewRouter()
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter, Key: chiRoute(router).And(clients.Key), Outage: httplimit.FailOpen,
	})
	if err != nil {
		panic(err)
	}
	router.Use(limit.Wrap)
	router.Get("/orders/{id}", hello)

	show(router, "/orders/1")
	show(router, "/orders/2")
	show(router, "/nowhere")
	show(router, "/elsewhere")
	// Output:
	// GET /orders/1 200
	// GET /orders/2 429
	// GET /nowhere 404
	// GET /elsewhere 429
}

// How do I limit each user of a chi router?
func Example_chiUser() {
	limiter := once()
	limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: user, Outage: httplimit.FailOpen})
	if err != nil {
		panic(err)
	}
	router := chi.NewRouter()
	router.Use(authenticate, limit.Wrap) // in this order
	router.Get("/orders/{id}", hello)

	show(router, "/orders/1", "X-Test-User", "alice")
	show(router, "/orders/2", "X-Test-User", "alice")
	show(router, "/orders/1", "X-Test-User", "bob")
	show(router, "/orders/1")
	// Output:
	// GET /orders/1 200
	// GET /orders/2 429
	// GET /orders/1 200
	// GET /orders/1 401
}

// TestChiRoute checks the keys of chiRoute, including for an escaped path, in a mounted router, and
// behind a middleware that changes the path.
func TestChiRoute(t *testing.T) {
	router := chi.NewRouter()
	router.Use(middleware.StripSlashes, limitBy(chiRoute(router)).Wrap)
	router.Get("/orders/{id}", hello)
	router.Get("/prices", hello)
	router.Route("/api", func(r chi.Router) {
		r.Get("/a/{id}", hello)
		r.Get("/b", hello)
	})
	checkRoutes(t, router)
	for path, want := range map[string]int{"/orders/1/": 429, "/orders/a%2Fb": 429, "/api/nowhere": 429, "/api/b": 200} {
		if got := status(router, path); got != want {
			t.Errorf("%s: %d, not %d", path, got, want)
		}
	}
	if one, two := status(router, "/api/a/1"), status(router, "/api/a/2"); one != 200 || two != 429 {
		t.Errorf("/api/a/1 and /api/a/2: %d and %d", one, two)
	}
}

// TestChiSubRouter checks that with Use on a sub-router, Route is the pattern of the mount, so that
// all routes of the sub-router share one budget.
func TestChiSubRouter(t *testing.T) {
	router := chi.NewRouter()
	router.Route("/api", func(r chi.Router) {
		r.Use(limitBy(httplimit.Route).Wrap)
		r.Get("/a", hello)
		r.Get("/b", hello)
	})
	if one, two := status(router, "/api/a"), status(router, "/api/b"); one != 200 || two != 429 {
		t.Errorf("%d and %d", one, two)
	}
}

// TestChiRealIP checks that chi's RealIP lets clients choose the address by which they are limited,
// and that without it they cannot.
func TestChiRealIP(t *testing.T) {
	for _, of := range []struct {
		use  []func(http.Handler) http.Handler
		want int
	}{{nil, 429}, {[]func(http.Handler) http.Handler{middleware.RealIP}, 200}} { //nolint:staticcheck // deprecated, as the page says
		router := chi.NewRouter()
		router.Use(append(of.use, limitBy(clients.Key).Wrap)...)
		router.Get("/", hello)
		status(router, "/", "X-Real-IP", "203.0.113.1")
		if got := status(router, "/", "X-Real-IP", "203.0.113.2"); got != of.want {
			t.Errorf("with %d middlewares before: %d, not %d", len(of.use), got, of.want)
		}
	}
}
