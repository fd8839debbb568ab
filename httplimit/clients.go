package httplimit

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/keys"

	"github.com/slidegate/slidegate/internal/adapter"
)

// Clients finds the IP address of the client that sent a request. Use Key to limit requests by
// address, and Addr to get the address itself, for example for login.Guard. The zero Clients uses
// the connection's address, which behind a proxy is the proxy's. Behind proxies, create a Clients
// with ClientsBehind, ClientsByHops or ClientsIn.
type Clients struct {
	find   func(r *http.Request) (client netip.Addr, err error) // nil means peerOf
	remedy string                                               // for errors: what the proxies must do for find to succeed
}

// Addr returns the client's IP address, without a zone. An IPv4 address in IPv6 form is returned as
// IPv4. The error states what the request lacks, and what the proxies must do to provide it. If
// Addr returns an error, do not serve the request: no default address is safe.
func (c Clients) Addr(r *http.Request) (netip.Addr, error) {
	client, err := c.client(r)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("slidegate: %w", err)
	}
	return client, nil
}

// Key returns the client's IPv4 address, or the /64 of its IPv6 address. A NAT64 address, in
// 64:ff9b::/96, counts as the IPv4 address embedded in it. Key returns "" if Addr returns an error.
// Use it as Config.Key.
func (c Clients) Key(r *http.Request) string {
	client, err := c.client(r)
	if err != nil {
		return adapter.NoteKeyless(r.Context(), err.Error())
	}
	return keys.ClientNetwork(client)
}

// client returns the client's address, or an error that explains why the address is unknown.
func (c Clients) client(r *http.Request) (netip.Addr, error) {
	find := c.find
	if find == nil {
		find = peerOf
	}
	client, err := find(r)
	if err != nil {
		remedy := cmp.Or(c.remedy, "listen on TCP, or read a header that your proxy sets")
		return netip.Addr{}, fmt.Errorf("a request from %q has no client address: %w; %s", r.RemoteAddr, err, remedy)
	}
	return client, nil
}

var (
	errNoPeer     = errors.New("the connection is not from an IP address")
	errNoChain    = errors.New("X-Forwarded-For is missing")
	errShortChain = errors.New("X-Forwarded-For has too few entries")
	errNoAddress  = errors.New("an entry of X-Forwarded-For is not an IP address")
)

// peerOf returns the address that the connection comes from. Some middleware sets RemoteAddr to an
// address without a port.
func peerOf(r *http.Request) (netip.Addr, error) {
	peer, ok := parseAddress(r.RemoteAddr)
	if !ok {
		return netip.Addr{}, errNoPeer
	}
	return peer, nil
}

// parseAddress parses a bare address, an address with a port, or an IPv6 address in brackets. It
// removes the zone and unmaps an IPv4-mapped address, because a Prefix never contains addresses in
// those forms.
func parseAddress(text string) (address netip.Addr, ok bool) {
	if both, err := netip.ParseAddrPort(text); err == nil {
		return both.Addr().Unmap().WithZone(""), true
	}
	inner, opened := strings.CutPrefix(text, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	address, err := netip.ParseAddr(inner)
	return address.Unmap().WithZone(""), err == nil && opened == closed && (!opened || address.Is6())
}

// ClientsBehind returns a Clients for a server behind the given proxies, such as 10.0.0.1 or
// 10.0.0.0/24. Each proxy appends the address of its own caller to X-Forwarded-For. The client is
// the last address in the header that does not belong to a proxy. A request that does not come from
// a proxy is identified by the address of its connection, whatever the header says.
//
// Several lines of the header count as one. Zones, brackets and ports (which Azure Application
// Gateway adds) are ignored. The client is unknown if the header is missing, if it lists only
// proxies, or if an entry that is not an address follows the client's.
//
// List only your own proxies: a client that connects from one of the given addresses can claim any
// address. Each proxy must append to the header or replace it. A proxy that passes the header on
// unchanged lets clients claim any address.
func ClientsBehind(proxies ...string) (Clients, error) {
	networks, err := parseNetworks(proxies)
	if err != nil {
		return Clients{}, err
	}
	return Clients{
		find:   func(r *http.Request) (netip.Addr, error) { return clientBehind(networks, r) },
		remedy: "each proxy must add the address that it was called from to X-Forwarded-For",
	}, nil
}

// parseNetworks parses the addresses and networks in proxies. It returns an error if there are
// none.
func parseNetworks(proxies []string) ([]netip.Prefix, error) {
	if len(proxies) == 0 {
		return nil, errors.New("slidegate: no proxy is named; name those that you run, or use the zero Clients if there are none")
	}
	networks := make([]netip.Prefix, len(proxies))
	for i, p := range proxies {
		prefix, err := netip.ParsePrefix(p)
		if address, single := netip.ParseAddr(p); single == nil && address.Zone() == "" {
			prefix, err = address.Prefix(address.BitLen())
		}
		if err != nil || prefix.Addr().Is4In6() || prefix.Bits() == 0 || prefix != prefix.Masked() {
			return nil, fmt.Errorf("slidegate: the proxy %q is not a plain address or network; write one as 10.0.0.1 or 10.0.0.0/24", p)
		}
		networks[i] = prefix
	}
	return networks, nil
}

// clientBehind returns the address closest to this server that is not a proxy's. It starts with the
// connection's address, and then reads X-Forwarded-For from right to left. It stops at an entry
// that is not an address, because a client may have written that entry and everything to its left.
func clientBehind(proxies []netip.Prefix, r *http.Request) (client netip.Addr, err error) {
	client, err = peerOf(r)
	if err != nil || !within(proxies, client) {
		return client, err
	}
	chain, err := chainOf(r)
	for err == nil && within(proxies, client) {
		client, chain, err = lastEntry(chain)
	}
	return client, err
}

// chainOf returns the X-Forwarded-For header, with its lines joined.
func chainOf(r *http.Request) (string, error) {
	lines := r.Header["X-Forwarded-For"]
	if len(lines) == 0 {
		return "", errNoChain
	}
	return strings.Join(lines, ","), nil
}

// lastEntry returns the last entry of chain, and the part of chain before it. It skips empty
// entries. It returns an error if there is no entry left, or if the entry is not an address.
func lastEntry(chain string) (address netip.Addr, before string, err error) {
	chain = strings.TrimRight(chain, ", \t")
	if chain == "" {
		return address, "", errShortChain
	}
	at := strings.LastIndexByte(chain, ',')
	address, ok := parseAddress(strings.TrimLeft(chain[at+1:], " \t"))
	if !ok {
		err = errNoAddress
	}
	return address, chain[:max(at, 0)], err
}

// within reports whether one of the networks contains address.
func within(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(address) })
}

// ClientsByHops returns a Clients for a server behind proxies that together add n entries to
// X-Forwarded-For: the client is the n-th entry from the right. A proxy such as nginx or an AWS
// load balancer adds one entry. A Google Cloud load balancer adds two, the client's address and its
// own, so use n = 2 there. Entries further left are ignored, because a client may have written
// them. The client is unknown if the header has fewer than n entries, or if the n-th entry is not
// an address.
//
// ClientsByHops is safe only if every request passes through exactly those proxies. A client that
// can bypass any of them can claim any address. If you know the addresses of the proxies,
// ClientsBehind is safer.
func ClientsByHops(n int) (Clients, error) {
	if n < 1 {
		return Clients{}, fmt.Errorf("slidegate: %d hops cannot identify a client; count the entries that your proxies add to X-Forwarded-For, or use the zero Clients if there are none", n)
	}
	return Clients{
		find:   func(r *http.Request) (netip.Addr, error) { return clientByHops(n, r) },
		remedy: fmt.Sprintf("the proxies must add %d entries to X-Forwarded-For, the first of them the client's address", n),
	}, nil
}

// clientByHops returns the n-th entry of X-Forwarded-For, counted from the right.
func clientByHops(n int, r *http.Request) (client netip.Addr, err error) {
	chain, err := chainOf(r)
	if err != nil {
		return client, err
	}
	for range n {
		if client, chain, err = lastEntry(chain); errors.Is(err, errShortChain) {
			break
		}
	}
	return client, err
}

// ClientsIn returns a Clients for a server behind a proxy or CDN that writes the client's address
// into a header of its own. Cloudflare sets CF-Connecting-IP, Fly sets Fly-Client-IP, and Azure
// Front Door sets X-Azure-SocketIP. Other such headers are True-Client-IP, and X-Real-IP, which
// nginx is often configured to set. The header must consist of one line with one address, which may
// have a port or brackets. Otherwise the client is unknown.
//
// The header is read only in requests from the given proxies, which are written as for
// ClientsBehind. Any other request is identified by the address of its connection. Every proxy must
// set the header itself, and must not pass on a value that the client sent.
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
		find:   func(r *http.Request) (netip.Addr, error) { return clientIn(name, networks, r) },
		remedy: "the proxy must set " + name + " to one address, in one line",
	}, nil
}

// clientIn returns the address in the given header if a proxy sent the request. Otherwise it
// returns the connection's address.
func clientIn(header string, proxies []netip.Prefix, r *http.Request) (client netip.Addr, err error) {
	client, err = peerOf(r)
	if err != nil || !within(proxies, client) {
		return client, err
	}
	values := r.Header[header]
	switch {
	case len(values) == 0:
		return client, errors.New(header + " is missing")
	case len(values) > 1:
		return client, errors.New(header + " has several lines")
	}
	client, ok := parseAddress(strings.Trim(values[0], " \t"))
	if !ok {
		err = errors.New(header + " is not one IP address")
	}
	return client, err
}
