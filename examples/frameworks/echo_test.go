package frameworks

import (
	"context"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/slidegate/slidegate/httplimit"
)

// helloEcho is a handler.
func helloEcho(c *echo.Context) error { return c.String(http.StatusOK, "hello") }

// How do I limit an echo server by IP address?
func Example_echo() {
	limit := limitBy(clients.Key)
	e := echo.New()
	e.Use(echo.WrapMiddleware(limit.Wrap))
	e.GET("/orders/:id", helloEcho)

	show(e, "/orders/1")
	show(e, "/orders/2")
	// Output:
	// GET /orders/1 200
	// GET /orders/2 429
}

// How do I limit each echo route separately?
func Example_echoRoute() {
	limiter := once()
	route := httplimit.RouteBy(func(r *http.Request) string { return r.Pattern }) // which echo sets before Use
	limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: route.And(clients.Key), Outage: httplimit.FailOpen})
	if err != nil {
		panic(err)
	}
	e := echo.New()
	e.Use(echo.WrapMiddleware(limit.Wrap))
	e.GET("/orders/:id", helloEcho)
	e.GET("/prices", helloEcho)

	show(e, "/orders/1")
	show(e, "/orders/2")
	show(e, "/prices")
	show(e, "/nowhere")
	// Output:
	// GET /orders/1 200
	// GET /orders/2 429
	// GET /prices 200
	// GET /nowhere 404
}

// authenticateEcho puts the user's name into the context of the request, where user looks for it.
// It would not find a value set with c.Set.
func authenticateEcho(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		name := nameOf(c.Request())
		if name == "" {
			return echo.ErrUnauthorized
		}
		c.SetRequest(c.Request().WithContext(context.WithValue(c.Request().Context(), userKey{}, name)))
		return next(c)
	}
}

// How do I limit each user of an echo server?
func Example_echoUser() {
	limiter := once()
	limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: user, Outage: httplimit.FailOpen})
	if err != nil {
		panic(err)
	}
	e := echo.New()
	e.Use(authenticateEcho, echo.WrapMiddleware(limit.Wrap)) // in this order
	e.GET("/orders/:id", helloEcho)

	show(e, "/orders/1", "X-Test-User", "alice")
	show(e, "/orders/2", "X-Test-User", "alice")
	show(e, "/orders/1", "X-Test-User", "bob")
	show(e, "/orders/1")
	// Output:
	// GET /orders/1 200
	// GET /orders/2 429
	// GET /orders/1 200
	// GET /orders/1 401
}

// TestEchoRoute checks the keys of echo routes.
func TestEchoRoute(t *testing.T) {
	e := echo.New()
	e.Use(echo.WrapMiddleware(limitBy(httplimit.RouteBy(func(r *http.Request) string { return r.Pattern })).Wrap))
	e.GET("/orders/:id", helloEcho)
	e.GET("/prices", helloEcho)
	checkRoutes(t, e)
}

// TestEchoRealIP checks that RealIP of echo v5 trusts a client's header only with the extractor of
// v4, and that the middleware never trusts it.
func TestEchoRealIP(t *testing.T) {
	for _, of := range []struct {
		extract echo.IPExtractor
		want    string
	}{{nil, "198.51.100.7"}, {echo.LegacyIPExtractor(), "203.0.113.1"}} {
		e := echo.New()
		e.IPExtractor = of.extract
		e.Use(echo.WrapMiddleware(limitBy(clients.Key).Wrap))
		var got string
		e.GET("/", func(c *echo.Context) error { got = c.RealIP(); return nil })
		status(e, "/", "X-Forwarded-For", "203.0.113.1")
		if second := status(e, "/", "X-Forwarded-For", "203.0.113.2"); got != of.want || second != 429 {
			t.Errorf("RealIP returns %s, not %s, and the second request gets %d", got, of.want, second)
		}
	}
}

// TestEchoPanic checks that echo's Recover responds to a panic, and that the request is counted.
func TestEchoPanic(t *testing.T) {
	e := echo.New()
	e.Use(middleware.Recover(), echo.WrapMiddleware(limitBy(clients.Key).Wrap))
	e.GET("/", func(*echo.Context) error { panic("a mistake") })
	if one, two := status(e, "/"), status(e, "/"); one != 500 || two != 429 {
		t.Errorf("%d, then %d", one, two)
	}
}

// TestEchoStatus checks that CountOnly sees the status of an error returned by a handler if the
// middleware wraps echo, but not if it is added with Use.
func TestEchoStatus(t *testing.T) {
	e := func() *echo.Echo {
		e := echo.New()
		e.GET("/", func(*echo.Context) error { return echo.ErrUnauthorized })
		return e
	}
	checkCountOnly(t, func(limit *httplimit.Middleware) http.Handler { return limit.Wrap(e()) }, 429)
	checkCountOnly(t, func(limit *httplimit.Middleware) http.Handler {
		under := e()
		under.Use(echo.WrapMiddleware(limit.Wrap))
		return under
	}, 401)
}
