package webaudit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// target is the host to audit, with the IP address that was checked.
type target struct {
	url  *url.URL
	addr netip.AddrPort // of all connections
}

// parseURL parses the URL of the service.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		shown := text[strings.LastIndex(text, "@")+1:] // without the user and the password
		return nil, fmt.Errorf("%q is not the URL of a service; write it with its scheme, as in http://127.0.0.1:8080/login", shown)
	}
	if u.User != nil {
		return nil, errors.New("a URL with a user would send a password along in each request; use --header 'Authorization: …'")
	}
	if u.Path == "" {
		u.Path = "/"
	}
	u.RawQuery = strings.ReplaceAll(u.RawQuery, " ", "%20")
	return u, nil
}

// resolve looks up the host's IP address once, so later DNS changes have no effect. It returns an
// error for an address that is neither on this machine nor in a private network, unless own is set.
func resolve(ctx context.Context, u *url.URL, own bool) (t target, err error) {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil || len(addrs) == 0 {
		return t, fmt.Errorf("the host of %s cannot be found: %w", u, err)
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", portOf(u))
	if err != nil {
		return t, err
	}
	t = target{u, netip.AddrPortFrom(addrs[0].Unmap(), uint16(port))} //nolint:gosec // LookupPort returns no other
	switch a := t.addr.Addr(); {
	case a.IsUnspecified() || a.IsMulticast():
		return t, fmt.Errorf("%s is not the address of a single host", a)
	case !own && !a.IsLoopback() && !a.IsPrivate():
		return t, fmt.Errorf("%s is at %s, which is neither this machine nor a private network; audit only your own services, and add --own", u.Host, a)
	}
	return t, nil
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// neighbours returns two addresses of this machine in the same IPv6 /64 network, or zero addresses
// if there are none.
func neighbours(addrs []net.Addr) (a, b netip.Addr) {
	seen := map[netip.Prefix]netip.Addr{}
	for _, addr := range addrs {
		p, err := netip.ParsePrefix(addr.String())
		if err != nil || !p.Addr().Is6() || p.Addr().Is4In6() || !p.Addr().IsGlobalUnicast() {
			continue
		}
		net64 := netip.PrefixFrom(p.Addr(), 64).Masked()
		if other, found := seen[net64]; found {
			return other, p.Addr()
		}
		seen[net64] = p.Addr()
	}
	return a, b
}

// dial connects to the target. If from is invalid, it uses any local address.
func (t target) dial(ctx context.Context, from netip.Addr) (net.Conn, error) {
	d := net.Dialer{Timeout: answerTimeout}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	return d.DialContext(ctx, "tcp", t.addr.String())
}

// serverName returns the name that the server's certificate must have.
func (t target) serverName() string { return strings.TrimSuffix(t.url.Hostname(), ".") }
