package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// How do I give each route its own budget for each client, with one middleware around the whole
// mux?
func ExampleRouteBy() {
	mux := http.NewServeMux()
	for _, pattern := range []string{"GET /orders/{id}", "GET /prices"} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "fine") })
	}
	route := httplimit.RouteBy(func(r *http.Request) string {
		_, pattern := mux.Handler(r)
		return pattern
	})
	limiter, err := window.NewLocal(window.Config{Name: "routes", Limits: []window.Limit{window.PerHour(1)}}) // or window.New
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: route.And(httplimit.Clients{}.Key), Outage: httplimit.FailOpen})
	if err != nil {
		panic(err)
	}
	handler := limit.Wrap(mux) // for http.ListenAndServe

	for _, path := range []string{"/orders/1", "/orders/2", "/prices", "/nowhere", "/elsewhere"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		fmt.Println(path, w.Code)
	}
	// Output:
	// /orders/1 200
	// /orders/2 429
	// /prices 200
	// /nowhere 404
	// /elsewhere 429
}
