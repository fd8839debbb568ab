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

// Clients finds the IP address of the client that sent a request. Use its Key to limit by address,
// and Addr to get the address, as for login.Guard. The zero Clients takes the address of the
// connection. Behind proxies, make one with ClientsBehind, ClientsByHops or ClientsIn.
type Clients struct {
	find   func(r *http.Request) (client netip.Addr, ok bool) // nil means peerOf
	remedy string                                             // what a proxy must do for find to succeed
}

// ClientAddr returns the IP address that the connection comes from. It is shorthand for
// Clients{}.Addr(r).
func ClientAddr(r *http.Request) (netip.Addr, error) { return Clients{}.Addr(r) }

// Addr returns the client's IP address, without a zone. An IPv4 address in IPv6 form is returned as
// IPv4. The error says what a proxy must do. Do not serve the request after an error, because no
// default is safe.
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

// Key returns the client's IPv4 address, or the /64 of its IPv6 address. An IPv6 address of NAT64,
// in 64:ff9b::/96, counts as the IPv4 address in it. Key returns "" if Addr returns an error. Use it
// as Config.Key.
func (c Clients) Key(r *http.Request) string {
	if client, ok := c.client(r); ok {
		return subnet.Client(client)
	}
	return ""
}

// client returns the client's address, and whether there is one.
func (c Clients) client(r *http.Request) (client netip.Addr, ok bool) {
	find := c.find
	if find == nil {
		find = peerOf
	}
	client, ok = find(r)
	return client.Unmap().WithZone(""), ok
}

// peerOf returns the address that the connection comes from, and whether there is one. Some
// middleware writes it without a port.
func peerOf(r *http.Request) (peer netip.Addr, ok bool) {
	return parseAddress(r.RemoteAddr)
}

// parseAddress parses an address alone, an address with a port, or an IPv6 address in brackets.
func parseAddress(text string) (address netip.Addr, ok bool) {
	if both, err := netip.ParseAddrPort(text); err == nil {
		return both.Addr(), true
	}
	inner, opened := strings.CutPrefix(text, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	address, err := netip.ParseAddr(inner)
	return address, err == nil && opened == closed && (!opened || address.Is6())
}

// ClientsBehind returns the Clients behind proxies that you name, such as 10.0.0.1 or 10.0.0.0/24.
// Each proxy appends the address that called it to X-Forwarded-For. The client is the last address
// in the header that is not a proxy's. A request from any other address is identified by that
// address, whatever the header says.
//
// Several lines of the header count as one. Zones, ports (as Azure Application Gateway adds) and
// brackets are ignored. There is no client if the header is missing, names only proxies, or has an
// entry after the client's that is not an address.
//
// Name only your own proxies: a client that calls from one of their addresses can choose its
// address. Each proxy must append to the header or replace it. A proxy that passes it on unchanged
// lets clients choose their address.
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

// parseNetworks parses addresses and networks of proxies. At least one is required.
func parseNetworks(proxies []string) ([]netip.Prefix, error) {
	if len(proxies) == 0 {
		return nil, errors.New("slidegate: no proxy is named; name those that you run, or use Address if there are none")
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

// clientBehind returns the address closest to this server that is not a proxy's, and whether there
// is one. It starts at the connection and goes left through X-Forwarded-For. It stops at an entry
// that is not an address, because a client may have written everything before it.
func clientBehind(proxies []netip.Prefix, r *http.Request) (client netip.Addr, ok bool) {
	chain := chainOf(r)
	client, ok = peerOf(r)
	for ok && within(proxies, client) {
		client, chain, ok = lastEntry(chain)
	}
	return client, ok
}

// chainOf returns X-Forwarded-For, with all its lines joined.
func chainOf(r *http.Request) string { return strings.Join(r.Header["X-Forwarded-For"], ",") }

// lastEntry returns the last entry of a chain, what is before it, and whether the entry is an
// address. It skips empty entries.
func lastEntry(chain string) (address netip.Addr, before string, ok bool) {
	chain = strings.TrimRight(chain, ", \t")
	at := strings.LastIndexByte(chain, ',')
	address, ok = parseAddress(strings.TrimLeft(chain[at+1:], " \t"))
	return address, chain[:max(at, 0)], ok
}

// within reports whether one of the networks contains the address. It first removes a zone and an
// IPv6 form, because a Prefix contains no such addresses.
func within(networks []netip.Prefix, address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(address) })
}

// ClientsByHops returns the Clients behind proxies that add n entries to X-Forwarded-For: the
// client is the n-th entry from the right. A proxy such as nginx or an AWS load balancer adds one
// entry. A Google Cloud load balancer adds two, the client's address and its own, so use n = 2
// there. Entries further left are ignored, because a client may have written them. There is no
// client if the header has fewer than n entries, or the n-th is not an address.
//
// It is safe only if every request passes through exactly those proxies. A client that connects
// directly, or past one of them, can choose its address. If you know the addresses of the proxies,
// ClientsBehind is safer.
func ClientsByHops(n int) (Clients, error) {
	if n < 1 {
		return Clients{}, fmt.Errorf("slidegate: %d hops name no client; count the entries that your proxies add to X-Forwarded-For, or use Address if there are none", n)
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

// ClientsIn returns the Clients whose address a proxy or CDN writes into a header of its own.
// Cloudflare sets CF-Connecting-IP, Fly sets Fly-Client-IP, and Azure Front Door sets
// X-Azure-SocketIP. Others are True-Client-IP, and X-Real-IP as nginx is often configured. The
// header must have one address in one line, which may have a port or brackets. Otherwise there is
// no client.
//
// The header counts only in requests from the named proxies: see ClientsBehind for how to name
// them. Any other request is identified by its own address. Every named proxy must set the header,
// and must not pass on one that the client sent.
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

// clientIn returns the one address in a header if a proxy sent the request. Otherwise it returns
// the address of the connection.
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
