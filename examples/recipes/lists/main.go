// Command lists exempts a network from a limit, and gives another network more:
// go run ./examples/recipes/lists
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// newAllowList returns a middleware that does not limit some networks.
func newAllowList(limiter *window.Limiter) (*httplimit.Middleware, error) {
	var clients httplimit.Clients // behind a proxy, use httplimit.ClientsBehind
	unlimited := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:17::/48")}
	return httplimit.New(httplimit.Config{
		Limiter: limiter,
		Key:     clients.Key,
		Outage:  httplimit.FailOpen,
		Skip: func(r *http.Request) bool {
			addr, err := clients.Addr(r)
			return err == nil && slices.ContainsFunc(unlimited, func(p netip.Prefix) bool { return p.Contains(addr) })
		},
	})
}

// newPartners returns a middleware that gives partners more than others.
func newPartners(limiter *window.Limiter) (*httplimit.Middleware, error) {
	more, err := limiter.With(window.PerHour(2))
	if err != nil {
		return nil, err
	}
	var clients httplimit.Clients
	partners := netip.MustParsePrefix("192.0.2.0/24")
	return httplimit.New(httplimit.Config{
		Key:    clients.Key,
		Outage: httplimit.FailOpen,
		Choose: func(r *http.Request) (httplimit.Limiter, error) {
			if addr, err := clients.Addr(r); err == nil && partners.Contains(addr) {
				return more, nil
			}
			return limiter, nil
		},
	})
}

// visit sends a request from each address through a middleware, and prints the status.
func visit(newLimit func(*window.Limiter) (*httplimit.Middleware, error), addresses ...string) {
	limiter, err := window.NewLocal(window.Config{Name: "api", Limits: []window.Limit{window.PerHour(1)}}) // or window.New
	if err != nil {
		log.Fatal(err)
	}
	limit, err := newLimit(limiter)
	if err != nil {
		log.Fatal(err)
	}
	handler := limit.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, address := range addresses {
		r, w := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
		r.RemoteAddr = address + ":50000"
		handler.ServeHTTP(w, r)
		fmt.Println(address, w.Code)
	}
}

func main() {
	visit(newAllowList, "10.1.2.3", "10.1.2.3", "198.51.100.7", "198.51.100.7")
	visit(newPartners, "192.0.2.1", "192.0.2.1", "192.0.2.1", "198.51.100.7", "198.51.100.7")
	// It prints:
	// 10.1.2.3 200
	// 10.1.2.3 200
	// 198.51.100.7 200
	// 198.51.100.7 429
	// 192.0.2.1 200
	// 192.0.2.1 200
	// 192.0.2.1 429
	// 198.51.100.7 200
	// 198.51.100.7 429
}
