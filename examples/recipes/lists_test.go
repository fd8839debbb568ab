package recipes

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// visit sends a request from an address, and prints the status.
func visit(h http.Handler, address string) {
	r, w := httptest.NewRequest(http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
	r.RemoteAddr = address + ":50000"
	h.ServeHTTP(w, r)
	fmt.Println(address, w.Code)
}

// hello is a handler.
func hello(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "hello") }

// How do I exempt some networks from a limit?
func Example_allowList() {
	limiter, err := window.NewLocal(window.Config{Name: "api", Limits: []window.Limit{window.PerHour(1)}}) // or window.New
	if err != nil {
		panic(err)
	}
	var clients httplimit.Clients // behind a proxy, use httplimit.ClientsBehind
	unlimited := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:17::/48")}
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter,
		Key:     clients.Key,
		Outage:  httplimit.FailOpen,
		Skip: func(r *http.Request) bool {
			addr, err := clients.Addr(r)
			return err == nil && slices.ContainsFunc(unlimited, func(p netip.Prefix) bool { return p.Contains(addr) })
		},
	})
	if err != nil {
		panic(err)
	}
	handler := limit.Wrap(http.HandlerFunc(hello))

	for _, address := range []string{"10.1.2.3", "10.1.2.3", "198.51.100.7", "198.51.100.7"} {
		visit(handler, address)
	}
	// Output:
	// 10.1.2.3 200
	// 10.1.2.3 200
	// 198.51.100.7 200
	// 198.51.100.7 429
}

// How do I give partners more than others?
func Example_partners() {
	limiter, err := window.NewLocal(window.Config{Name: "api", Limits: []window.Limit{window.PerHour(1)}}) // or window.New
	if err != nil {
		panic(err)
	}
	more, err := limiter.With(window.PerHour(2))
	if err != nil {
		panic(err)
	}
	var clients httplimit.Clients
	partners := netip.MustParsePrefix("192.0.2.0/24")
	limit, err := httplimit.New(httplimit.Config{
		Key:    clients.Key,
		Outage: httplimit.FailOpen,
		Choose: func(r *http.Request) (httplimit.Limiter, error) {
			if addr, err := clients.Addr(r); err == nil && partners.Contains(addr) {
				return more, nil
			}
			return limiter, nil
		},
	})
	if err != nil {
		panic(err)
	}
	handler := limit.Wrap(http.HandlerFunc(hello))

	for _, address := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "198.51.100.7", "198.51.100.7"} {
		visit(handler, address)
	}
	// Output:
	// 192.0.2.1 200
	// 192.0.2.1 200
	// 192.0.2.1 429
	// 198.51.100.7 200
	// 198.51.100.7 429
}
