package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// How do I rate limit a server by IP address in one line?
func ExampleByAddress() {
	limiter, err := window.NewLocal(window.Config{Name: "api", Limits: []window.Limit{window.PerHour(1)}}) // or window.New
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "hello") })
	handler := httplimit.ByAddress(limiter, httplimit.Clients{}, httplimit.FailOpen)(mux) // for http.ListenAndServe

	for _, address := range []string{"198.51.100.7", "198.51.100.7", "203.0.113.1"} {
		r, w := httptest.NewRequest(http.MethodGet, "/hello", http.NoBody), httptest.NewRecorder()
		r.RemoteAddr = address + ":50000"
		handler.ServeHTTP(w, r)
		fmt.Println(address, w.Code)
	}
	// Output:
	// 198.51.100.7 200
	// 198.51.100.7 429
	// 203.0.113.1 200
}
