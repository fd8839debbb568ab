package recipes

import (
	"log"
	"net/http"
	"os"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// How do I log a line for each denied request, so that fail2ban can ban the address?
func Example_fail2ban() {
	limiter, err := window.NewLocal(window.Config{Name: "login", Limits: []window.Limit{window.PerHour(1)}}) // or window.New
	if err != nil {
		panic(err)
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
		panic(err)
	}
	handler := limit.Wrap(http.HandlerFunc(hello))

	visit(handler, "198.51.100.7")
	visit(handler, "198.51.100.7")
	// Output:
	// 198.51.100.7 200
	// rate limit: denied 198.51.100.7
	// 198.51.100.7 429
}
