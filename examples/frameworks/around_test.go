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
		handler := httplimit.ByAddress(limiter, httplimit.Clients{}, httplimit.FailOpen)(router) // for http.ListenAndServe
		if one, two := status(handler, "/nowhere"), status(handler, "/nowhere"); one != 404 || two != 429 {
			t.Errorf("%s: %d, then %d", name, one, two)
		}
	}
}
