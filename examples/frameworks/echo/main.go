// Command echo limits the requests to an echo server: by IP address, by route and by user.
//
//	go run ./examples/frameworks/echo
//	curl -i localhost:8080/orders/1
//	curl -i localhost:8080/account -H 'X-Test-User: alice'
package main

import (
	"context"
	"log"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

var clients httplimit.Clients // the address of the connection; behind a load balancer, use httplimit.ClientsBehind

// limitBy returns an echo middleware that limits each key.
func limitBy(name string, key httplimit.Key, limit window.Limit) echo.MiddlewareFunc {
	limiter, err := window.NewLocal(window.Config{Name: name, Limits: []window.Limit{limit}}) // or window.New
	if err != nil {
		log.Fatal(err)
	}
	middleware, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: key, Outage: httplimit.FailOpen})
	if err != nil {
		log.Fatal(err)
	}
	return echo.WrapMiddleware(middleware.Wrap)
}

// userKey is the context key of the user's name.
type userKey struct{}

// authenticateEcho puts the user's name into the context of the request, where user looks for it.
// It would not find a value set with c.Set. A real program would verify a session or a token.
func authenticateEcho(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		name := c.Request().Header.Get("X-Test-User")
		if name == "" {
			return echo.ErrUnauthorized
		}
		c.SetRequest(c.Request().WithContext(context.WithValue(c.Request().Context(), userKey{}, name)))
		return next(c)
	}
}

// user returns the Key of the user that authenticateEcho has verified.
func user(r *http.Request) string {
	name, _ := r.Context().Value(userKey{}).(string)
	if name == "" {
		return "" // HTTP 400: authenticateEcho has not run
	}
	return "user " + name
}

func hello(c *echo.Context) error { return c.String(http.StatusOK, "hello") }

func newHandler() http.Handler {
	route := httplimit.RouteBy(func(r *http.Request) string { return r.Pattern }) // which echo sets before Use
	e := echo.New()
	e.Use(limitBy("addresses", clients.Key, window.PerMinute(20)))
	e.Use(limitBy("routes", route.And(clients.Key), window.PerMinute(10)))
	e.GET("/orders/:id", hello)
	e.GET("/prices", hello)

	users := limitBy("users", user, window.PerMinute(3))
	e.GET("/account", hello, authenticateEcho, users) // in this order
	return e
}

func main() {
	log.Fatal(http.ListenAndServe("localhost:8080", newHandler()))
}
