package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/subnet"
)

// Key says who is limited, as the event for the limiter: requests of one Key share their limits. Where a request has none it is empty, and the request is
// refused with the status 400, as all such would share one budget. Any function will do; those of this package never give two kinds of clients
// one key, so that nobody can write an address into a field to use up somebody's budget.
type Key func(r *http.Request) string

// Address returns the address that the connection comes from: an IPv4 address, or the /64 of an IPv6 address. Behind a proxy it is the proxy's.
func Address(r *http.Request) string {
	peer, ok := peerOf(r)
	if !ok {
		return ""
	}
	return subnet.Client(peer)
}

// peerOf returns the address that the connection comes from, and whether there is one. Some middleware writes it without a port.
func peerOf(r *http.Request) (peer netip.Addr, ok bool) {
	return parseAddress(r.RemoteAddr)
}

// parseAddress reads an address alone, with a port, or an IPv6 address in brackets.
func parseAddress(text string) (address netip.Addr, ok bool) {
	if both, err := netip.ParseAddrPort(text); err == nil {
		return both.Addr(), true
	}
	inner, opened := strings.CutPrefix(text, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	address, err := netip.ParseAddr(inner)
	return address, err == nil && opened == closed && (!opened || address.Is6())
}

// AddressBehind returns the Key of clients behind proxies. Each proxy adds the address that it was called from at the end of X-Forwarded-For.
// The client is the last address in the field that is no proxy's. A request that comes from elsewhere is known by its own address, whatever
// the field says. Several lines of the field count as one. An IPv4 address in IPv6 form is that IPv4 address, and a zone, a port (as Azure Application
// Gateway adds) and brackets are ignored. Where the field is missing, names only proxies, or has an entry that is no address after the client's,
// there is no key.
//
// Proxies are addresses or networks, such as 10.0.0.0/24. Name only your own: a client that calls from one of them can choose its key. Each
// proxy must add to the field or write it anew. One that passes it on unchanged lets clients choose their key.
func AddressBehind(proxies ...string) (Key, error) {
	if len(proxies) == 0 {
		return nil, errors.New("slidegate: AddressBehind without proxies; name those that you run, or take Address where there are none")
	}
	networks := make([]netip.Prefix, len(proxies))
	for i, p := range proxies {
		prefix, err := netip.ParsePrefix(p)
		if address, single := netip.ParseAddr(p); single == nil && address.Zone() == "" {
			prefix, err = address.Prefix(address.BitLen())
		}
		if err != nil || prefix.Addr().Is4In6() || prefix.Bits() == 0 || prefix != prefix.Masked() {
			return nil, fmt.Errorf("slidegate: the proxy %q is no plain address or network; write one as 10.0.0.1 or 10.0.0.0/24", p)
		}
		networks[i] = prefix
	}
	return func(r *http.Request) string {
		if client, ok := clientBehind(networks, r); ok {
			return subnet.Client(client)
		}
		return ""
	}, nil
}

// clientBehind returns the address closest to this server that is no proxy's, and whether there is one. It starts at the connection and
// goes leftward through X-Forwarded-For. It stops at an entry that is no address, because a client may have written all before it.
func clientBehind(proxies []netip.Prefix, r *http.Request) (client netip.Addr, ok bool) {
	chain := strings.Join(r.Header["X-Forwarded-For"], ",")
	client, ok = peerOf(r)
	for ok && within(proxies, client) {
		client, chain, ok = lastEntry(chain)
	}
	return client, ok
}

// lastEntry returns the last entry of a chain and what stands before it, and whether the entry is an address. It skips empty entries.
func lastEntry(chain string) (address netip.Addr, before string, ok bool) {
	chain = strings.TrimRight(chain, ", \t")
	at := strings.LastIndexByte(chain, ',')
	address, ok = parseAddress(strings.TrimLeft(chain[at+1:], " \t"))
	return address, chain[:max(at, 0)], ok
}

// within reports whether one of the networks contains the address. A Prefix contains neither an address with a zone nor one in another form.
func within(networks []netip.Prefix, address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(address) })
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
