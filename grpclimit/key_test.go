package grpclimit_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/slidegate/slidegate/grpclimit"
)

// TestPeer checks that the key is the IPv4 address or the /64 of the IPv6 address, and that
// connections without an IP address have no key.
func TestPeer(t *testing.T) {
	tcp := func(address string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)) }
	for _, of := range []struct {
		addr net.Addr
		want string
	}{
		{tcp("192.0.2.1:50000"), "192.0.2.1"},
		{tcp("[::ffff:192.0.2.1]:50000"), "192.0.2.1"},
		{tcp("[2001:db8:1:2:3:4:5:6]:50000"), "2001:db8:1:2::/64"},
		{tcp("[fe80::1%eth0]:50000"), "fe80::/64"},
		{&net.UnixAddr{Name: "@", Net: "unix"}, ""},
		{&net.UnixAddr{Name: "192.0.2.1:50000", Net: "unix"}, ""},
		{&net.IPAddr{IP: net.IPv4(192, 0, 2, 1)}, ""},
		{nil, ""},
	} {
		if got := grpclimit.Peer(peer.NewContext(t.Context(), &peer.Peer{Addr: of.addr}), "/a"); got != of.want {
			t.Errorf("%v: %q, not %q", of.addr, got, of.want)
		}
	}
	if got := grpclimit.Peer(t.Context(), "/a"); got != "" {
		t.Errorf("no peer: %q", got)
	}
}

// TestMetadata checks that a single value makes a key, and that an empty value or several values do
// not.
func TestMetadata(t *testing.T) {
	for _, of := range []struct {
		values []string
		want   string
	}{
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"a"}, "metadata api-key a"},
		{[]string{"a, b"}, "metadata api-key a, b"},
		{[]string{"a", "b"}, ""},
		{[]string{"a", "a"}, ""},
		{[]string{"", "a"}, ""},
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.MD{"api-key": of.values})
		for _, name := range []string{"api-key", "API-Key"} {
			if got := grpclimit.Metadata(name)(ctx, "/a"); got != of.want {
				t.Errorf("%q: %q, not %q", of.values, got, of.want)
			}
		}
	}
	if got := grpclimit.Metadata("api-key")(t.Context(), "/a"); got != "" {
		t.Errorf("no metadata: %q", got)
	}
}

// FuzzNoOverlap checks that two clients have the same combined key only if both parts are the same,
// that a combined key never equals a key of another kind, and that no value's key looks like an IP
// address.
func FuzzNoOverlap(f *testing.F) {
	f.Add("a", "/b", "a", "/b")
	f.Add("a", "/b method /c", "a method /b", "/c")
	f.Add("192.0.2.1", "/1 metadata x", "192.0.2.1", "")
	f.Fuzz(func(t *testing.T, value, method, otherValue, otherMethod string) {
		key := grpclimit.Metadata("x")
		with := func(value string) context.Context {
			return metadata.NewIncomingContext(t.Context(), metadata.Pairs("x", value))
		}
		one, other := key.And(grpclimit.Method)(with(value), method), key.And(grpclimit.Method)(with(otherValue), otherMethod)
		if same := value == otherValue && method == otherMethod; one != "" && (one == other) != same {
			t.Errorf("%q and %q", one, other)
		}
		alone, called := key(with(otherValue), ""), grpclimit.Method(t.Context(), otherMethod)
		if one != "" && (one == alone || one == called) || alone == called {
			t.Errorf("%q, %q and %q", one, alone, called)
		}
		for _, text := range []string{one, alone, called} {
			if _, err := netip.ParseAddr(text); err == nil {
				t.Errorf("%q is an address", text)
			}
			if _, err := netip.ParsePrefix(text); err == nil {
				t.Errorf("%q is a network", text)
			}
		}
	})
}
