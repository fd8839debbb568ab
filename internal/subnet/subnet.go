// Package subnet maps an IP address to the network that counts as one client.
package subnet

import "net/netip"

// Client returns the network that counts as one client. It is an IPv4 address, or the /64 of an
// IPv6 address, because a client with one address of a /64 usually has all of it. The address must
// be valid.
func Client(address netip.Addr) string { return Of(address, 64) }

// Of returns the network of an IPv6 address, such as 2001:db8:1:2::/64, without a zone. It returns
// an IPv4 address as a whole, even if it is mapped to IPv6. The address must be valid, and bits
// from 1 to 128.
func Of(address netip.Addr, bits int) string {
	if address = address.Unmap(); address.Is4() {
		return address.String()
	}
	return netip.PrefixFrom(address.WithZone(""), bits).Masked().String()
}
