// Command fail2ban logs a line for each denied request, so that fail2ban can ban the address:
// go run ./examples/recipes/fail2ban
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

func main() {
	limiter, err := window.NewLocal(window.Config{Name: "login", Limits: []window.Limit{window.PerHour(1)}}) // or window.New
	if err != nil {
		log.Fatal(err)
	}
	var clients httplimit.Clients     // behind a proxy, use httplimit.ClientsBehind
	bans := log.New(os.Stdout, "", 0) // in production: its own file, with log.LstdFlags
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter,
		Key:     clients.Key,
		Outage:  httplimit.FailClosed,
		Denied: func(w http.ResponseWriter, r *http.Request, _ window.Decision) {
			if addr, err := clients.Addr(r); err == nil {
				bans.Printf("rate limit: denied %s", addr) // an address, and nothing else that a client can choose
			}
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	handler := limit.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	for range 2 {
		r, w := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
		r.RemoteAddr = "198.51.100.7:50000"
		handler.ServeHTTP(w, r)
		fmt.Println("status", w.Code)
	}
	// It prints:
	// status 200
	// rate limit: denied 198.51.100.7
	// status 429
}
