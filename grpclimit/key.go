package grpclimit

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/slidegate/slidegate/internal/keys"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/slidegate/slidegate/internal/adapter"
)

// Key returns the event key of a call. Calls with the same key share the limits. The method is the
// full method name, such as "/orders.Orders/Place". A call whose key is "" fails with
// InvalidArgument, because all such calls would share one budget. For the first such call, the
// interceptor calls the Key again to find out why it returned "". Keys from different functions of
// this package never overlap.
type Key func(ctx context.Context, method string) string

// Peer is a Key for servers. It returns the IP address that the connection comes from: an IPv4
// address, or the /64 of an IPv6 address. A NAT64 address, in 64:ff9b::/96, counts as the IPv4
// address embedded in it. Behind a proxy, the address is the proxy's. If the connection has no IP
// address, Peer returns "".
func Peer(ctx context.Context, _ string) string {
	const none = "the connection is not from an IP address"
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil || p.Addr.Network() == "unix" { // a client can name its Unix socket like an IP address
		return adapter.NoteKeyless(ctx, none)
	}
	both, err := netip.ParseAddrPort(p.Addr.String())
	if err != nil {
		return adapter.NoteKeyless(ctx, none)
	}
	return keys.ClientNetwork(both.Addr())
}

// Method is a Key for servers and clients. It returns the method, such as "method
// /orders.Orders/Place".
func Method(_ context.Context, method string) string { return "method " + method }

// Metadata returns a Key that reads the value of name in the metadata that a server receives. The
// event key is "metadata NAME VALUE", with the name in lower case. Verify the value first:
// otherwise a client gets a new budget with each value that it invents.
//
// A call in which name has several values has no key. Otherwise the limiter could count one value
// while the service verifies another. A list in one value is one value.
func Metadata(name string) Key {
	if name == "" {
		return nil // which New refuses
	}
	name = strings.ToLower(name) // as grpc does
	return func(ctx context.Context, _ string) string {
		values := metadata.ValueFromIncomingContext(ctx, name)
		switch {
		case len(values) > 1:
			return adapter.NoteKeyless(ctx, "the metadata value "+name+" occurs several times")
		case len(values) == 0 || values[0] == "":
			return adapter.NoteKeyless(ctx, "the metadata value "+name+" is missing or empty")
		}
		return "metadata " + name + " " + values[0]
	}
}

// And returns a Key that combines k and other: calls share the limits only if both keys match. If
// either key is "", the combined key is "". The event key consists of the first key's length and
// both keys, separated by spaces, such as "27 method /orders.Orders/Place 198.51.100.7".
func (k Key) And(other Key) Key {
	if k == nil || other == nil {
		return nil // which New refuses
	}
	return func(ctx context.Context, method string) string {
		return adapter.JoinKeys(k(ctx, method), other(ctx, method))
	}
}

// logKeyless logs the first call without a key. It calls k again to find out why k returned "".
func (k Key) logKeyless(ctx context.Context, first *adapter.Keyless, log *slog.Logger, method string) {
	first.Log(ctx, log, "calls", func(ctx context.Context) { k(ctx, method) })
}
