package keys

import "net/netip"

// ClientNetwork returns the network that counts as one client: an IPv4 address, or the /64 of an IPv6
// address, because a client that has one address in a /64 usually has all of them. The address must
// be valid.
func ClientNetwork(address netip.Addr) string { return Network(address, 64) }

// Network returns the network of an IPv6 address, such as 2001:db8:1:2::/64, without a zone. For an IPv4
// address, it returns the address itself, even if the address is mapped to IPv6 or translated by
// NAT64. The address must be valid, and bits must be from 1 to 128.
func Network(address netip.Addr, bits int) string {
	if address = ipv4In(address.WithZone("")); address.Is4() {
		return address.String()
	}
	return netip.PrefixFrom(address, bits).Masked().String()
}

// nat64 is the well-known prefix of NAT64 (RFC 6052). The last 32 bits of an address are the
// client's IPv4 address. Operators can also use prefixes of their own, which are unknown here, or
// the prefix for local use, 64:ff9b:1::/48 (RFC 8215), which does not define where the IPv4 address
// is. An address with such a prefix counts like any IPv6 address.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// ipv4In returns the IPv4 address that is embedded in an IPv6 address. It returns any other address
// unchanged. RFC 6052 forbids private IPv4 addresses after the prefix. They are extracted all the
// same: otherwise all of them would count as one client.
func ipv4In(address netip.Addr) netip.Addr {
	if !nat64.Contains(address) {
		return address.Unmap()
	}
	bytes := address.As16()
	return netip.AddrFrom4([4]byte(bytes[12:]))
}
