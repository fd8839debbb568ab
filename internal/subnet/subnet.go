// Package subnet says which addresses count as one client.
package subnet

import "net/netip"

// Client is what one client has: an IPv4 address, or the /64 of an IPv6 one, as whoever has an address there mostly has its /64. The address is valid.
func Client(address netip.Addr) string { return Of(address, 64) }

// Of is the network of an IPv6 address, such as 2001:db8:1:2::/64, without a zone, or an IPv4 address as a whole, also if it is mapped to
// IPv6. bits are from 1 to 128, and the address is valid.
func Of(address netip.Addr, bits int) string {
	if address = address.Unmap(); address.Is4() {
		return address.String()
	}
	return netip.PrefixFrom(address.WithZone(""), bits).Masked().String()
}
