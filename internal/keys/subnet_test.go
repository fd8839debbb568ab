package keys

import (
	"net/netip"
	"strings"
	"testing"
)

func TestNetwork(t *testing.T) {
	for _, tt := range []struct {
		address string
		bits    int
		want    string
	}{
		{"192.0.2.1", 64, "192.0.2.1"},
		{"::ffff:192.0.2.1", 64, "192.0.2.1"},
		{"2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::/64"},
		{"2001:db8:1:2::", 64, "2001:db8:1:2::/64"},
		{"2001:db8:1:2ff::1", 56, "2001:db8:1:200::/56"},
		{"2001:db8::1", 128, "2001:db8::1/128"},
		{"fe80::1%eth0", 64, "fe80::/64"},
		{"::ffff:192.0.2.1%eth0", 64, "192.0.2.1"},
		{"64:ff9b::192.0.2.1", 64, "192.0.2.1"},
		{"64:ff9b::192.0.2.2", 64, "192.0.2.2"},
		{"64:ff9b::192.0.2.1%eth0", 48, "192.0.2.1"},
		{"64:ff9b::192.0.2.1", 128, "192.0.2.1"},
		{"64:ff9b::1:192.0.2.1", 64, "64:ff9b::/64"},   // another /96
		{"64:ff9b:1::192.0.2.1", 64, "64:ff9b:1::/64"}, // for local use
		{"2001:db8::192.0.2.1", 64, "2001:db8::/64"},   // possibly an operator's own prefix
		{"::ffff:0:192.0.2.1", 64, "::/64"},            // translated, but not by NAT64
	} {
		if got := Network(netip.MustParseAddr(tt.address), tt.bits); got != tt.want {
			t.Errorf("%s/%d is %s, not %s", tt.address, tt.bits, got, tt.want)
		}
		if got := ClientNetwork(netip.MustParseAddr(tt.address)); tt.bits == 64 && got != tt.want {
			t.Errorf("the client at %s is %s, not %s", tt.address, got, tt.want)
		}
	}
}

// FuzzOneClientOneText checks that two addresses have the same text only if they are the same IPv4
// address, or if their first bits are equal.
func FuzzOneClientOneText(f *testing.F) {
	f.Add([]byte{192, 0, 2, 1}, []byte{192, 0, 2, 2}, 64)
	f.Add(make([]byte, 16), make([]byte, 16), 64)
	f.Add([]byte("\x00\x64\xff\x9b\x00\x00\x00\x00\x00\x00\x00\x00\xc0\x00\x02\x01"), []byte{192, 0, 2, 1}, 64)
	f.Add([]byte("\x00\x64\xff\x9b\x00\x00\x00\x00\x00\x00\x00\x00\xc0\x00\x02\x01"), []byte("\x00\x64\xff\x9b\x00\x00\x00\x00\x00\x00\x00\x00\xc0\x00\x02\x02"), 64)
	f.Fuzz(func(t *testing.T, a, b []byte, bits int) {
		one, oneOK := netip.AddrFromSlice(a)
		two, twoOK := netip.AddrFromSlice(b)
		if !oneOK || !twoOK || bits < 1 || bits > 128 {
			t.Skip()
		}
		v, w := standsFor(one), ipv4In(two)
		same := v == w
		if v.Is6() && w.Is6() {
			prefix, err := v.Prefix(bits)
			same = err == nil && prefix.Contains(w)
		}
		if (Network(one, bits) == Network(two, bits)) != same {
			t.Errorf("%s and %s with %d bits: %s and %s", one, two, bits, Network(one, bits), Network(two, bits))
		}
	})
}

// standsFor returns the IPv4 address that is embedded in an IPv6 address. It returns any other
// address unchanged.
func standsFor(address netip.Addr) netip.Addr {
	if strings.HasPrefix(address.StringExpanded(), "0064:ff9b:0000:0000:0000:0000:") {
		return netip.AddrFrom4([4]byte(address.AsSlice()[12:]))
	}
	return address.Unmap()
}
