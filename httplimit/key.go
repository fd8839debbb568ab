package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/slidegate/slidegate/internal/subnet"
)

// Key says who is limited, as the event for the limiter: requests of one Key share their limits. Where a request has none it is empty, and the request is
// refused with the status 400, as all such would share one budget. Any function will do; those of this package never give two kinds of clients
// one key, so that nobody can write an address into a field to use up somebody's budget.
type Key func(r *http.Request) string

// Address is the address that the connection comes from: an IPv4 address, or the /64 of an IPv6 one. Behind a proxy it is the proxy's.
func Address(r *http.Request) string {
	if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return subnet.Client(peer.Addr())
	}
	peer, err := netip.ParseAddr(r.RemoteAddr) // without a port, as some middleware writes it
	if err != nil {
		return ""
	}
	return subnet.Client(peer)
}

// AddressBehind is the address of the client behind proxies, each of which adds the address that it was called from at the end of
// X-Forwarded-For. Proxies are their addresses or networks, such as 10.0.0.0/24: name nothing else, as whoever calls from there can say whose request it is. The
// client is the last address in the field that is no proxy's. A request that comes from elsewhere is known by its own address, whatever it says. Each of the proxies must
// add to the field, or write it anew: one that passes it on as it came lets clients choose their key. Where the last entries are no addresses, as with a port,
// or there is no field, there is no key.
func AddressBehind(proxies ...string) (Key, error) {
	if len(proxies) == 0 {
		return nil, errors.New("slidegate: AddressBehind without proxies; name those that you run, or take Address where there are none")
	}
	networks := make([]string, len(proxies))
	for i, p := range proxies {
		prefix, err := netip.ParsePrefix(p)
		if address, single := netip.ParseAddr(p); single == nil && address.Zone() == "" {
			prefix, err = address.Prefix(address.BitLen())
		}
		if err != nil || prefix.Addr().Is4In6() || prefix.Bits() == 0 || prefix != prefix.Masked() {
			return nil, fmt.Errorf("slidegate: the proxy %q is no plain address or network; write one as 10.0.0.1 or 10.0.0.0/24", p)
		}
		networks[i] = prefix.String()
	}
	behind := middleware.ClientIPFromXFF(networks...)
	return func(r *http.Request) (key string) {
		behind(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if client := middleware.GetClientIPAddr(r.Context()); client.IsValid() {
				key = subnet.Client(client)
			}
		})).ServeHTTP(nil, r)
		return key
	}, nil
}

// Header is the value of a field of the request, such as X-Api-Key: the last, if there are several. For slidegate inspect the event is "header X-Api-Key VALUE". Check before that it is a key that you gave out; else a
// client has as many budgets as it thinks of values.
func Header(name string) Key {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) string {
		values := r.Header[name]
		if len(values) == 0 || values[len(values)-1] == "" {
			return ""
		}
		return "header " + name + " " + values[len(values)-1]
	}
}

// Cookie is the value of a cookie, such as that of a session: the first, if there are several. Like a field, it is the client's word. The event is "cookie NAME VALUE".
func Cookie(name string) Key {
	return func(r *http.Request) string {
		cookie, err := r.Cookie(name)
		if err != nil || cookie.Value == "" {
			return ""
		}
		return "cookie " + name + " " + cookie.Value
	}
}

// Route is the pattern of http.ServeMux that the request matched, such as "POST /login", for which the event is "route POST /login". It is known within the handlers of the mux: wrap these, and
// not the mux.
func Route(r *http.Request) string {
	if r.Pattern == "" {
		return ""
	}
	return "route " + r.Pattern
}

// And is both keys as one: requests share a limit if both are the same. Where one is empty, so is this. The event is the length of the first, and both, with
// spaces between: "12 route GET /x 198.51.100.7".
func (k Key) And(other Key) Key {
	if k == nil || other == nil {
		return nil // which New refuses
	}
	return func(r *http.Request) string {
		one, two := k(r), other(r)
		if one == "" || two == "" {
			return ""
		}
		return strconv.Itoa(len(one)) + " " + one + " " + two
	}
}

// Or is the first key, or where that is empty the other.
func (k Key) Or(other Key) Key {
	if k == nil || other == nil {
		return nil // which New refuses
	}
	return func(r *http.Request) string {
		if key := k(r); key != "" {
			return key
		}
		return other(r)
	}
}
