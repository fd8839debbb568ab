package main

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/slidegate/slidegate/examples/internal/visits"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

func TestLimits(t *testing.T) { visits.Check(t, newHandler) }

// TestRealIP checks that RealIP of echo v5 trusts a client's header only with the extractor of v4,
// and that the middleware never trusts it.
func TestRealIP(t *testing.T) {
	for _, of := range []struct {
		extract echo.IPExtractor
		want    string
	}{{nil, "198.51.100.7"}, {echo.LegacyIPExtractor(), "203.0.113.1"}} {
		e := echo.New()
		e.IPExtractor = of.extract
		e.Use(limitBy("test", clients.Key, window.PerHour(1)))
		var got string
		e.GET("/", func(c *echo.Context) error { got = c.RealIP(); return hello(c) })
		visits.Status(t, e, "/", "X-Forwarded-For", "203.0.113.1")
		if second := visits.Status(t, e, "/", "X-Forwarded-For", "203.0.113.2"); got != of.want || second != 429 {
			t.Errorf("RealIP returns %s, not %s, and the second request gets %d", got, of.want, second)
		}
	}
}

// TestStatus checks that CountOnly sees the status of an error returned by a handler if the
// middleware wraps echo, but not if it is added with Use.
func TestStatus(t *testing.T) {
	newEcho := func() *echo.Echo {
		e := echo.New()
		e.GET("/", func(*echo.Context) error { return echo.ErrUnauthorized })
		return e
	}
	visits.CheckCountOnly(t, 429, func(limit *httplimit.Middleware) http.Handler { return limit.Wrap(newEcho()) })
	visits.CheckCountOnly(t, 401, func(limit *httplimit.Middleware) http.Handler {
		e := newEcho()
		e.Use(echo.WrapMiddleware(limit.Wrap))
		return e
	})
}
