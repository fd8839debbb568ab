// Command gin limits the requests to a gin engine: by IP address, by route and by user.
//
//	go run ./examples/frameworks/gin
//	curl -i localhost:8080/orders/1
//	curl -i localhost:8080/account -H 'X-Test-User: alice'
package main

import (
	"context"
	"log"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

var clients httplimit.Clients // the address of the connection; behind a load balancer, use httplimit.ClientsBehind

// limitBy returns a middleware that limits each key.
func limitBy(name string, key httplimit.Key, limit window.Limit) *httplimit.Middleware {
	limiter, err := window.NewLocal(window.Config{Name: name, Limits: []window.Limit{limit}}) // or window.New
	if err != nil {
		log.Fatal(err)
	}
	middleware, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: key, Outage: httplimit.FailOpen})
	if err != nil {
		log.Fatal(err)
	}
	return middleware
}

// ginLimit returns limit as gin middleware.
func ginLimit(limit *httplimit.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Request.Pattern = c.FullPath() // for RouteBy; "" if no route matches
		allowed := false
		next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { allowed = true })
		limit.Wrap(next).ServeHTTP(c.Writer, c.Request)
		if !allowed {
			c.Abort()
		}
	}
}

// userKey is the context key of the user's name.
type userKey struct{}

// authenticateGin puts the user's name into the context of the request, where user looks for it. It
// would not find a value set with c.Set. A real program would verify a session or a token.
func authenticateGin(c *gin.Context) {
	name := c.GetHeader("X-Test-User")
	if name == "" {
		c.AbortWithStatus(http.StatusUnauthorized)
		return
	}
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), userKey{}, name))
}

// user returns the Key of the user that authenticateGin has verified.
func user(r *http.Request) string {
	name, _ := r.Context().Value(userKey{}).(string)
	if name == "" {
		return "" // HTTP 400: authenticateGin has not run
	}
	return "user " + name
}

func hello(c *gin.Context) { c.String(http.StatusOK, "hello") }

func newHandler() http.Handler {
	route := httplimit.RouteBy(func(r *http.Request) string { return r.Pattern }) // which ginLimit sets
	routes := limitBy("routes", route.And(clients.Key), window.PerMinute(10))
	engine := gin.New()
	engine.Use(gin.Recovery(), ginLimit(routes))
	engine.GET("/orders/:id", hello)
	engine.GET("/prices", hello)

	users := limitBy("users", user, window.PerMinute(3))
	engine.GET("/account", authenticateGin, ginLimit(users), hello) // in this order

	addresses := limitBy("addresses", clients.Key, window.PerMinute(20))
	return addresses.Wrap(engine) // for http.ListenAndServe
}

func main() {
	log.Fatal(http.ListenAndServe("localhost:8080", newHandler()))
}
