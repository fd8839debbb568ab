package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/subnet"
)

// Clients finds the IP address of the client that sent a request. Key limits by it, and Addr returns it, as for login.Guard. The zero
// Clients takes the address that the connection comes from. Behind proxies, make one by ClientsBehind, ClientsByHops or ClientsIn.
type Clients struct {
	find   func(r *http.Request) (client netip.Addr, ok bool) // nil is peerOf
	remedy string                                             // what a proxy must do for find to succeed
}

// ClientAddr returns the IP address that the connection comes from. It is shorthand for Clients{}.Addr(r).
func ClientAddr(r *http.Request) (netip.Addr, error) { return Clients{}.Addr(r) }

// Addr returns the client's IP address, without a zone. An IPv4 address in IPv6 form is returned as that IPv4 address. The error says what
// a proxy must do: no default is safe, so do not serve the request.
func (c Clients) Addr(r *http.Request) (netip.Addr, error) {
	if client, ok := c.client(r); ok {
		return client, nil
	}
	remedy := c.remedy
	if remedy == "" {
		remedy = "listen on TCP, or read a header that your proxy sets"
	}
	return netip.Addr{}, fmt.Errorf("slidegate: a request from %q has no client address; %s", r.RemoteAddr, remedy)
}

// Key is a Key: the client's IPv4 address, or the /64 of its IPv6 address. It is "" where Addr returns an error.
func (c Clients) Key(r *http.Request) string {
	if client, ok := c.client(r); ok {
		return subnet.Client(client)
	}
	return ""
}

func (c Clients) client(r *http.Request) (client netip.Addr, ok bool) {
	find := c.find
	if find == nil {
		find = peerOf
	}
	client, ok = find(r)
	return client.Unmap().WithZone(""), ok
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

// ClientsBehind returns the Clients behind proxies that you name. Each proxy adds the address that it was called from at the end of
// X-Forwarded-For. The client is the last address in the header that is no proxy's. A request that comes from elsewhere is known by its own
// address, whatever the header says. Several lines of the header count as one. A zone, a port (as Azure Application Gateway adds) and
// brackets are ignored. There is no client if the header is missing, names only proxies, or has an entry that is no address after the
// client's.
//
// Proxies are addresses or networks, such as 10.0.0.0/24. Name only your own: a client that calls from one of them can choose its address.
// Each proxy must add to the header or write it anew. One that passes it on unchanged lets clients choose their address.
func ClientsBehind(proxies ...string) (Clients, error) {
	networks, err := parseNetworks(proxies)
	if err != nil {
		return Clients{}, err
	}
	return Clients{
		find:   func(r *http.Request) (netip.Addr, bool) { return clientBehind(networks, r) },
		remedy: "each proxy must add the address that it was called from to X-Forwarded-For",
	}, nil
}

// parseNetworks reads proxies, of which there must be at least one.
func parseNetworks(proxies []string) ([]netip.Prefix, error) {
	if len(proxies) == 0 {
		return nil, errors.New("slidegate: no proxy is named; name those that you run, or take Address where there are none")
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
	return networks, nil
}

// clientBehind returns the address closest to this server that is no proxy's, and whether there is one. It starts at the connection and
// goes leftward through X-Forwarded-For. It stops at an entry that is no address, because a client may have written all before it.
func clientBehind(proxies []netip.Prefix, r *http.Request) (client netip.Addr, ok bool) {
	chain := chainOf(r)
	client, ok = peerOf(r)
	for ok && within(proxies, client) {
		client, chain, ok = lastEntry(chain)
	}
	return client, ok
}

// chainOf returns X-Forwarded-For, all its lines as one.
func chainOf(r *http.Request) string { return strings.Join(r.Header["X-Forwarded-For"], ",") }

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

// ClientsByHops returns the Clients behind n entries of X-Forwarded-For that your proxies add: the client is the n-th from the right. A
// proxy such as nginx or an AWS load balancer adds one entry. A Google Cloud load balancer adds two, the client's address and its own, so n
// is 2 there. What stands further left is ignored, because a client may have written it. There is no client if the header has fewer entries,
// or the n-th is no address.
//
// It is safe only if no request reaches the server except through exactly those proxies: whoever connects directly, or past one of them,
// can choose its address. Where you know the addresses of the proxies, ClientsBehind is safer.
func ClientsByHops(n int) (Clients, error) {
	if n < 1 {
		return Clients{}, fmt.Errorf("slidegate: %d hops name no client; count the entries that your proxies add to X-Forwarded-For, or take Address where there are none", n)
	}
	return Clients{
		find:   func(r *http.Request) (netip.Addr, bool) { return entryFromRight(n, chainOf(r)) },
		remedy: fmt.Sprintf("the proxies must add %d entries to X-Forwarded-For, the first of them the client's address", n),
	}, nil
}

// entryFromRight returns the n-th entry of a chain from the right, and whether it is an address.
func entryFromRight(n int, chain string) (address netip.Addr, ok bool) {
	for range n {
		if chain == "" {
			return netip.Addr{}, false
		}
		address, chain, ok = lastEntry(chain)
	}
	return address, ok
}

// ClientsIn returns the Clients whose address a proxy or CDN writes into a header of its own: CF-Connecting-IP of Cloudflare, Fly-Client-IP
// of Fly, True-Client-IP, X-Azure-SocketIP of Azure Front Door, or X-Real-IP as nginx is often set up. The header holds one address in one
// line, perhaps with a port or in brackets. Otherwise there is no client.
//
// The header counts only in requests that come from one of the proxies, named as for ClientsBehind. Any other request is known by its own
// address. Every proxy that you name must set the header, and not pass on one that the client sent.
func ClientsIn(header string, proxies ...string) (Clients, error) {
	name, ok := headerName(header)
	if !ok {
		return Clients{}, fmt.Errorf("slidegate: %q cannot be a header with the client's address; write one that your proxy sets, such as CF-Connecting-IP", header)
	}
	networks, err := parseNetworks(proxies)
	if err != nil {
		return Clients{}, err
	}
	return Clients{
		find:   func(r *http.Request) (netip.Addr, bool) { return clientIn(name, networks, r) },
		remedy: "the proxy must set " + name + " to one address, in one line",
	}, nil
}

// clientIn returns the one address in a header, if a proxy sent the request, else the address that the connection comes from.
func clientIn(header string, proxies []netip.Prefix, r *http.Request) (client netip.Addr, ok bool) {
	client, ok = peerOf(r)
	if !ok || !within(proxies, client) {
		return client, ok
	}
	values := r.Header[header]
	if len(values) != 1 {
		return netip.Addr{}, false
	}
	return parseAddress(strings.Trim(values[0], " \t"))
}
