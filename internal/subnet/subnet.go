// Package subnet maps an IP address to the network that counts as one client.
package subnet

import "net/netip"

// Client returns the network that counts as one client. It is an IPv4 address, or the /64 of an
// IPv6 address, because a client with one address of a /64 usually has all of it. The address must
// be valid.
func Client(address netip.Addr) string { return Of(address, 64) }

// Of returns the network of an IPv6 address, such as 2001:db8:1:2::/64, without a zone. It returns
// an IPv4 address as a whole, even if it is mapped to IPv6, or translated by NAT64. The address
// must be valid, and bits from 1 to 128.
func Of(address netip.Addr, bits int) string {
	if address = ipv4In(address.WithZone("")); address.Is4() {
		return address.String()
	}
	return netip.PrefixFrom(address, bits).Masked().String()
}

// nat64 is the well-known prefix of NAT64 (RFC 6052). Its last 32 bits are a client's IPv4 address.
// An operator's own prefix is not known here. The prefix for local use, 64:ff9b:1::/48 (RFC 8215),
// does not say which bits are the IPv4 address. Under both, an address counts like any IPv6
// address.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// ipv4In returns the IPv4 address that an IPv6 address stands for, or any other address unchanged.
// RFC 6052 forbids private IPv4 addresses behind the prefix. They count as well, because otherwise
// all of them would be one client.
func ipv4In(address netip.Addr) netip.Addr {
	if !nat64.Contains(address) {
		return address.Unmap()
	}
	bytes := address.As16()
	return netip.AddrFrom4([4]byte(bytes[12:]))
}
