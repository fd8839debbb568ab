package httplimit

import "net/http"

// ByAddress returns middleware that limits requests by the client's IP address. It is shorthand for
// New and Wrap with clients.Key, for programs that need no other fields of Config:
//
//	http.ListenAndServe(addr, httplimit.ByAddress(limiter, httplimit.Clients{}, httplimit.FailOpen)(mux))
//
// The zero Clients uses the connection's address. Behind proxies, use ClientsBehind, ClientsByHops
// or ClientsIn. All handlers that the middleware wraps share the limits.
//
// ByAddress panics where New would return an error: if limiter is nil, or if outage is neither
// FailOpen nor FailClosed.
func ByAddress(limiter Limiter, clients Clients, outage Outage) func(http.Handler) http.Handler {
	m, err := New(Config{Limiter: limiter, Key: clients.Key, Outage: outage})
	if err != nil {
		panic(err.Error())
	}
	return m.Wrap
}
