package frameworks

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/slidegate/slidegate/httplimit"
)

// helloGin is a handler.
func helloGin(c *gin.Context) { c.String(http.StatusOK, "hello") }

// How do I limit a gin engine by IP address? Wrap it.
func Example_gin() {
	limit := limitBy(clients.Key)
	engine := gin.New()
	engine.GET("/orders/:id", helloGin)
	handler := limit.Wrap(engine) // for http.ListenAndServe

	show(handler, "/orders/1")
	show(handler, "/orders/2")
	// Output:
	// GET /orders/1 200
	// GET /orders/2 429
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

// How do I limit each gin route separately?
func Example_ginRoute() {
	limiter := once()
	route := httplimit.RouteBy(func(r *http.Request) string { return r.Pattern }) // which ginLimit sets
	limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: route.And(clients.Key), Outage: httplimit.FailOpen})
	if err != nil {
		panic(err)
	}
	engine := gin.New()
	engine.Use(gin.Recovery(), ginLimit(limit))
	engine.GET("/orders/:id", helloGin)
	engine.GET("/prices", helloGin)

	show(engine, "/orders/1")
	show(engine, "/orders/2")
	show(engine, "/prices")
	show(engine, "/nowhere")
	// Output:
	// GET /orders/1 200
	// GET /orders/2 429
	// GET /prices 200
	// GET /nowhere 404
}

// authenticateGin puts the user's name into the context of the request, where user looks for it. It
// would not find a value set with c.Set.
func authenticateGin(c *gin.Context) {
	name := nameOf(c.Request)
	if name == "" {
		c.AbortWithStatus(http.StatusUnauthorized)
		return
	}
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), userKey{}, name))
}

// How do I limit each user of a gin engine?
func Example_ginUser() {
	limiter := once()
	limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: user, Outage: httplimit.FailOpen})
	if err != nil {
		panic(err)
	}
	engine := gin.New()
	engine.Use(gin.Recovery(), authenticateGin, ginLimit(limit)) // in this order
	engine.GET("/orders/:id", helloGin)

	show(engine, "/orders/1", "X-Test-User", "alice")
	show(engine, "/orders/2", "X-Test-User", "alice")
	show(engine, "/orders/1", "X-Test-User", "bob")
	show(engine, "/orders/1")
	// Output:
	// GET /orders/1 200
	// GET /orders/2 429
	// GET /orders/1 200
	// GET /orders/1 401
}

// TestGinRoute checks the keys of gin routes, and that a denied request never reaches a handler.
func TestGinRoute(t *testing.T) {
	engine, served := gin.New(), 0
	engine.Use(ginLimit(limitBy(httplimit.RouteBy(func(r *http.Request) string { return r.Pattern }))))
	count := func(c *gin.Context) { served++; helloGin(c) }
	engine.GET("/orders/:id", count)
	engine.GET("/prices", count)
	checkRoutes(t, engine)
	if served != 2 {
		t.Errorf("the handlers served %d requests, want 2", served)
	}
}

// TestGinClientIP checks that gin's ClientIP trusts a client's header by default, while the
// middleware does not.
func TestGinClientIP(t *testing.T) {
	engine := gin.New()
	engine.Use(ginLimit(limitBy(clients.Key)))
	var got string
	engine.GET("/", func(c *gin.Context) { got = c.ClientIP() })
	status(engine, "/", "X-Forwarded-For", "203.0.113.1")
	if second := status(engine, "/", "X-Forwarded-For", "203.0.113.2"); got != "203.0.113.1" || second != 429 {
		t.Errorf("ClientIP returns %s, and the second request gets %d", got, second)
	}
}

// TestGinPanic checks that gin.Recovery responds to a panic, and that the request is counted.
func TestGinPanic(t *testing.T) {
	engine := gin.New()
	engine.Use(gin.RecoveryWithWriter(httptest.NewRecorder().Body), ginLimit(limitBy(clients.Key)))
	engine.GET("/", func(*gin.Context) { panic("a mistake") })
	if one, two := status(engine, "/"), status(engine, "/"); one != 500 || two != 429 {
		t.Errorf("%d, then %d", one, two)
	}
}

// TestGinStatus checks that CountOnly sees the status if the middleware wraps the engine.
func TestGinStatus(t *testing.T) {
	engine := gin.New()
	engine.GET("/", func(c *gin.Context) { c.Status(http.StatusUnauthorized) })
	checkCountOnly(t, func(limit *httplimit.Middleware) http.Handler { return limit.Wrap(engine) }, 429)
}
