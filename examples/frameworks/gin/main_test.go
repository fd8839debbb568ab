package main

import (
	"net/http"
	"os"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/slidegate/slidegate/examples/internal/visits"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode) // silences gin
	os.Exit(m.Run())
}

func TestLimits(t *testing.T) { visits.Check(t, newHandler) }

// TestClientIP checks that gin's ClientIP trusts a client's header by default, while the middleware
// does not.
func TestClientIP(t *testing.T) {
	engine := gin.New()
	engine.Use(ginLimit(limitBy("test", clients.Key, window.PerHour(1))))
	var got string
	engine.GET("/", func(c *gin.Context) { got = c.ClientIP(); hello(c) })
	visits.Status(t, engine, "/", "X-Forwarded-For", "203.0.113.1")
	if second := visits.Status(t, engine, "/", "X-Forwarded-For", "203.0.113.2"); got != "203.0.113.1" || second != 429 {
		t.Errorf("ClientIP returns %s, and the second request gets %d", got, second)
	}
}

// TestStatus checks that CountOnly sees the status if the middleware wraps the engine.
func TestStatus(t *testing.T) {
	engine := gin.New()
	engine.GET("/", func(c *gin.Context) { c.Status(http.StatusUnauthorized) })
	visits.CheckCountOnly(t, 429, func(limit *httplimit.Middleware) http.Handler { return limit.Wrap(engine) })
}
