package frameworks

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v5"

	"github.com/slidegate/slidegate/httplimit"
)

// TestAround checks that a middleware around a router limits all requests, even those that match no
// route.
func TestAround(t *testing.T) {
	_, service := newPingServiceHandler()
	for name, router := range map[string]http.Handler{"chi": chi.NewRouter(), "gin": gin.New(), "echo": echo.New(), "Connect": service} {
		limiter := once()
		limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: clients.Key, Outage: httplimit.FailOpen})
		if err != nil {
			panic(err)
		}
		handler := limit.Wrap(router) // for http.ListenAndServe
		if one, two := status(handler, "/nowhere"), status(handler, "/nowhere"); one != 404 || two != 429 {
			t.Errorf("%s: %d, then %d", name, one, two)
		}
	}
}
