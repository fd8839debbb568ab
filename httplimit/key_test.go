package httplimit_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/httplimit"
)

// clientIP is a header into which a proxy writes the client's address.
const clientIP = "CF-Connecting-IP"

// withClientIP adds lines of the header clientIP to r.
func withClientIP(r *http.Request, lines ...string) *http.Request {
	r.Header["Cf-Connecting-Ip"] = lines
	return r
}

// TestZeroClients checks the key of the zero Clients for each form of RemoteAddr.
func TestZeroClients(t *testing.T) {
	for peer, want := range map[string]string{
		"198.51.100.7:50000":           "198.51.100.7",
		"[::ffff:198.51.100.7]:50000":  "198.51.100.7", // the same client, on a socket for both kinds of addresses
		"[2001:db8:1:2:3:4:5:6]:50000": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:50000":         "fe80::/64",
		"@":                            "", // a Unix socket
		"":                             "",
		"198.51.100.7":                 "198.51.100.7", // as some middleware sets it
		"example.com:80":               "",
	} {
		if got := address(from(peer, "203.0.113.1")); got != want {
			t.Errorf("%s: %q, not %q", peer, got, want)
		}
	}
}

// TestClientsBehind checks which client ClientsBehind finds behind proxies, for honest and forged
// headers.
func TestClientsBehind(t *testing.T) {
	key := must(httplimit.ClientsBehind(proxies...)).Key
	for _, of := range []struct {
		name, peer string
		lines      []string
		want       string
	}{
		{"one proxy", "10.0.0.1:1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"two proxies", "10.0.0.1:1", []string{"198.51.100.7, 192.0.2.10"}, "198.51.100.7"},
		{"two proxies, a line each", "10.0.0.1:1", []string{"198.51.100.7", "192.0.2.10"}, "198.51.100.7"},
		{"a client that invented an entry", "10.0.0.1:1", []string{"203.0.113.1, 198.51.100.7"}, "198.51.100.7"},
		{"one that sent its own line", "10.0.0.1:1", []string{"203.0.113.1", "198.51.100.7"}, "198.51.100.7"},
		{"one that invented a proxy", "10.0.0.1:1", []string{"203.0.113.1, 10.0.0.9, 198.51.100.7"}, "198.51.100.7"},
		{"one that sent garbage", "10.0.0.1:1", []string{"garbage, ,,\x00, 198.51.100.7"}, "198.51.100.7"},
		{"one that connects directly", "198.51.100.7:1", []string{"203.0.113.1"}, "198.51.100.7"},
		{"one that connects directly, over IPv6", "[2001:db8:1:2::9]:1", []string{"203.0.113.1"}, "2001:db8:1:2::/64"},
		{"IPv4 in IPv6 form", "10.0.0.1:1", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		{"a peer in IPv6 form", "[::ffff:10.0.0.1]:1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"a proxy in IPv6 form in the chain", "10.0.0.1:1", []string{"198.51.100.7, ::ffff:192.0.2.10"}, "198.51.100.7"},
		{"a peer in IPv6 form that is not a proxy", "[::ffff:198.51.100.7]:1", []string{"203.0.113.1"}, "198.51.100.7"},
		{"a proxy with a zone", "10.0.0.1:1", []string{"198.51.100.7, 2001:db8:ffff::1%eth0"}, "198.51.100.7"},
		{"a client with IPv6", "[2001:db8:ffff::1]:1", []string{"2001:db8:1:2:3::4"}, "2001:db8:1:2::/64"},
		{"a proxy that adds ports", "10.0.0.1:1", []string{"198.51.100.7:50000"}, "198.51.100.7"},
		{"a proxy that adds ports, to IPv6", "10.0.0.1:1", []string{"[2001:db8:1:2::4]:50000"}, "2001:db8:1:2::/64"},
		{"proxies that add ports", "10.0.0.1:1", []string{"203.0.113.1, 198.51.100.7:50000", "192.0.2.10:443,[2001:db8:ffff::2]:443"}, "198.51.100.7"},
		{"an invalid port", "10.0.0.1:1", []string{"198.51.100.7:70000"}, ""},
		{"a missing port", "10.0.0.1:1", []string{"198.51.100.7:"}, ""},
		{"garbage at the end", "10.0.0.1:1", []string{"198.51.100.7, unknown"}, ""},
		{"garbage in the last line", "10.0.0.1:1", []string{"198.51.100.7", "unknown"}, ""},
		{"a proxy that adds nothing", "10.0.0.1:1", nil, ""},
		{"garbage between proxies", "10.0.0.1:1", []string{"198.51.100.7, unknown, 192.0.2.10"}, ""},
		{"only proxies", "10.0.0.1:1", []string{"10.0.0.2"}, ""},
		{"empty entries", "10.0.0.1:1", []string{" , 198.51.100.7 ,\t,", "", " 192.0.2.10 ,"}, "198.51.100.7"},
		{"only empty entries", "10.0.0.1:1", []string{"", ", ,"}, ""},
		{"a client with a zone", "10.0.0.1:1", []string{"fe80::1%eth0"}, "fe80::/64"},
		{"IPv4 in IPv6 form, with a zone", "10.0.0.1:1", []string{"198.51.100.7, ::ffff:192.0.2.10%eth0"}, "198.51.100.7"},
		{"a peer with a zone", "[2001:db8:ffff::1%eth0]:1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"a peer with a zone that is not a proxy", "[fe80::1%eth0]:1", []string{"198.51.100.7"}, "fe80::/64"},
		{"a peer without a port", "10.0.0.1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"an address in brackets", "10.0.0.1:1", []string{"[2001:db8:1:2::4]"}, "2001:db8:1:2::/64"},
		{"IPv4 in brackets", "10.0.0.1:1", []string{"[198.51.100.7]"}, ""},
		{"a bracket that does not close", "10.0.0.1:1", []string{"[2001:db8:1:2::4"}, ""},
		{"a bracket that does not open", "10.0.0.1:1", []string{"2001:db8:1:2::4]"}, ""},
		{"an address with leading zeros", "10.0.0.1:1", []string{"198.51.100.007"}, ""},
		{"a Unix socket", "@", []string{"198.51.100.7"}, ""},
	} {
		if got := key(from(of.peer, of.lines...)); got != of.want {
			t.Errorf("%s: %q, not %q", of.name, got, of.want)
		}
	}
}

// TestClientsByHops checks which client ClientsByHops finds for various numbers of hops, and for
// honest and forged headers.
func TestClientsByHops(t *testing.T) {
	for _, of := range []struct {
		name  string
		hops  int
		lines []string
		want  string
	}{
		{"one entry", 1, []string{"198.51.100.7"}, "198.51.100.7"},
		{"what the client wrote", 1, []string{"203.0.113.1, 198.51.100.7"}, "198.51.100.7"},
		{"what it wrote in lines", 1, []string{"203.0.113.1", "garbage", "198.51.100.7"}, "198.51.100.7"},
		{"two entries", 2, []string{"203.0.113.1, 198.51.100.7, 192.0.2.10"}, "198.51.100.7"},
		{"two entries, a line each", 2, []string{"203.0.113.1", "198.51.100.7", "192.0.2.10"}, "198.51.100.7"},
		{"a proxy without an address after the client", 2, []string{"198.51.100.7, unknown"}, "198.51.100.7"},
		{"a port and brackets", 3, []string{"[2001:db8:1:2::4]:50000, a, b"}, "2001:db8:1:2::/64"},
		{"IPv4 in IPv6 form, with a zone", 1, []string{"::ffff:198.51.100.7%eth0"}, "198.51.100.7"},
		{"empty entries", 2, []string{"203.0.113.1,, 198.51.100.7 ,\t", " ,192.0.2.10,"}, "198.51.100.7"},
		{"too few entries", 2, []string{"198.51.100.7"}, ""},
		{"too few, with empty ones", 2, []string{", ,198.51.100.7,"}, ""},
		{"no header", 1, nil, ""},
		{"an empty one", 1, []string{""}, ""},
		{"garbage in the entry", 1, []string{"198.51.100.7, unknown"}, ""},
		{"more hops than anyone has", 1 << 30, []string{"198.51.100.7"}, ""},
	} {
		if got := must(httplimit.ClientsByHops(of.hops)).Key(from("10.0.0.1:1", of.lines...)); got != of.want {
			t.Errorf("%s: %q, not %q", of.name, got, of.want)
		}
	}
}

// TestClientsIn checks the client that a proxy writes into a header.
func TestClientsIn(t *testing.T) {
	clients := must(httplimit.ClientsIn("cf-connecting-ip", proxies...))
	for _, of := range []struct {
		name, peer string
		lines      []string
		want       string
	}{
		{"the proxy names the client", "10.0.0.1:1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"a client with IPv6", "10.0.0.1:1", []string{"2001:db8:1:2:3::4"}, "2001:db8:1:2::/64"},
		{"IPv4 in IPv6 form", "[::ffff:10.0.0.1]:1", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		{"a zone", "10.0.0.1:1", []string{"fe80::1%eth0"}, "fe80::/64"},
		{"a port", "10.0.0.1:1", []string{"198.51.100.7:50000"}, "198.51.100.7"},
		{"brackets", "10.0.0.1:1", []string{"[2001:db8:1:2::4]"}, "2001:db8:1:2::/64"},
		{"spaces around it", "10.0.0.1:1", []string{" \t198.51.100.7 "}, "198.51.100.7"},
		{"a proxy's own address", "10.0.0.1:1", []string{"10.0.0.2"}, "10.0.0.2"}, // a health check
		{"several lines", "10.0.0.1:1", []string{"203.0.113.1", "198.51.100.7"}, ""},
		{"the same twice", "10.0.0.1:1", []string{"198.51.100.7", "198.51.100.7"}, ""},
		{"a list", "10.0.0.1:1", []string{"203.0.113.1, 198.51.100.7"}, ""},
		{"garbage", "10.0.0.1:1", []string{"unknown"}, ""},
		{"an empty line", "10.0.0.1:1", []string{""}, ""},
		{"no line", "10.0.0.1:1", nil, ""},
		{"a client that connects directly", "198.51.100.7:1", []string{"203.0.113.1"}, "198.51.100.7"},
		{"the same without the header", "[2001:db8:1:2::9]:1", nil, "2001:db8:1:2::/64"},
		{"a Unix socket", "@", []string{"198.51.100.7"}, ""},
	} {
		if got := clients.Key(withClientIP(from(of.peer, "203.0.113.1"), of.lines...)); got != of.want {
			t.Errorf("%s: %q, not %q", of.name, got, of.want)
		}
	}
}

// TestAddr checks that Addr returns full addresses, and errors that state what the proxies
// must do.
func TestAddr(t *testing.T) {
	behind, hops, in := must(httplimit.ClientsBehind(proxies...)), must(httplimit.ClientsByHops(2)), must(httplimit.ClientsIn(clientIP, proxies...))
	for _, of := range []struct {
		name string
		addr func(*http.Request) (netip.Addr, error)
		r    *http.Request
		want string
	}{
		{"the connection", httplimit.Clients{}.Addr, from("[2001:db8:1:2::9]:1"), "2001:db8:1:2::9"},
		{"its IPv4 address in IPv6 form", httplimit.Clients{}.Addr, from("[::ffff:198.51.100.7]:1"), "198.51.100.7"},
		{"its address with a zone", httplimit.Clients{}.Addr, from("[fe80::1%eth0]:1"), "fe80::1"},
		{"behind networks", behind.Addr, from("10.0.0.1:1", "2001:db8:1:2::9"), "2001:db8:1:2::9"},
		{"behind hops", hops.Addr, from("10.0.0.1:1", "198.51.100.7:80, 10.0.0.2"), "198.51.100.7"},
		{"in a header", in.Addr, withClientIP(from("10.0.0.1:1"), "198.51.100.7"), "198.51.100.7"},
		{"none at all", httplimit.Clients{}.Addr, from("@"), `slidegate: a request from "@" has no client address: the connection is not from an IP address; listen on TCP, or read a header that your proxy sets`},
		{"none behind networks", behind.Addr, from("10.0.0.1:1"), `slidegate: a request from "10.0.0.1:1" has no client address: X-Forwarded-For is missing; each proxy must add the address that it was called from to X-Forwarded-For`},
		{"none behind hops", hops.Addr, from("10.0.0.1:1", "198.51.100.7"), `slidegate: a request from "10.0.0.1:1" has no client address: X-Forwarded-For has too few entries; the proxies must add 2 entries to X-Forwarded-For, the first of them the client's address`},
		{"none in a header", in.Addr, from("10.0.0.1:1"), `slidegate: a request from "10.0.0.1:1" has no client address: Cf-Connecting-Ip is missing; the proxy must set Cf-Connecting-Ip to one address, in one line`},
	} {
		got, err := of.addr(of.r)
		if err != nil && (got != netip.Addr{} || err.Error() != of.want) || err == nil && got.String() != of.want {
			t.Errorf("%s: %v, %v", of.name, got, err)
		}
	}
}

// TestSpoof checks that an attacker who forges X-Forwarded-For is allowed three requests, like any
// other client, and that the victim is still allowed three.
func TestSpoof(t *testing.T) {
	const victim = "203.0.113.1"
	behind := must(httplimit.ClientsBehind(proxies...)).Key
	hops := must(httplimit.ClientsByHops(2)).Key
	in := must(httplimit.ClientsIn(clientIP, proxies...)).Key
	for _, of := range []struct {
		name             string
		key              httplimit.Key
		attacker, honest func(claim string) *http.Request
	}{
		{
			"ClientsBehind, through the proxy", behind,
			func(claim string) *http.Request { return from("10.0.0.1:1", claim+", 198.51.100.7") },
			func(string) *http.Request { return from("10.0.0.1:1", victim) },
		},
		{
			"ClientsByHops", hops,
			func(claim string) *http.Request {
				return from("10.0.0.1:1", claim+","+claim+",198.51.100.7,192.0.2.10")
			},
			func(string) *http.Request { return from("10.0.0.1:1", victim+",192.0.2.10") },
		},
		{
			"ClientsIn, through the proxy", in,
			func(claim string) *http.Request { return withClientIP(from("10.0.0.1:1", claim), "198.51.100.7") },
			func(string) *http.Request { return withClientIP(from("10.0.0.1:1"), victim) },
		},
	} {
		h := middleware(httplimit.Config{Limiter: inMemory(nil, "3/1h"), Key: of.key}).Wrap(fine)
		count := func(as func(string) *http.Request) (allowed int) {
			for i := range 50 {
				for _, claim := range []string{victim, fmt.Sprintf("203.0.113.%d", i), "10.0.0.1", "::ffff:" + victim, victim + ":80", "garbage"} {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, as(claim))
					if w.Code == http.StatusOK {
						allowed++
					}
				}
			}
			return allowed
		}
		if attacker, honest := count(of.attacker), count(of.honest); attacker != 3 || honest != 3 {
			t.Errorf("%s: the attacker gets %d, the neighbour %d", of.name, attacker, honest)
		}
	}
}

// TestHeaderCookieRoute checks the keys of Header, Cookie, Route and And.
func TestHeaderCookieRoute(t *testing.T) {
	r := from("198.51.100.7:1")
	r.Header["X-Api-Key"], r.Header["X-List"], r.Header["X-Empty"] = []string{"mine"}, []string{"a, b"}, []string{""}
	r.Header["X-Twice"], r.Header["X-Same"], r.Header["X-Half"] = []string{"first", "last"}, []string{"a", "a"}, []string{"", "last"}
	r.Header["Cookie"] = []string{"session=s1; session=s2"}
	r.Pattern = "POST /login"
	header, cookie, none := httplimit.Header("x-api-key"), httplimit.Cookie("session"), httplimit.Header("X-Other")
	for _, of := range []struct {
		name, got, want string
	}{
		{"Header", header(r), "header X-Api-Key mine"},
		{"Header with a list in one line", httplimit.Header("X-List")(r), "header X-List a, b"},
		{"Header twice", httplimit.Header("X-Twice")(r), ""},
		{"Header twice, with the same value", httplimit.Header("X-Same")(r), ""},
		{"Header twice, once without a value", httplimit.Header("X-Half")(r), ""},
		{"Header without a value", httplimit.Header("X-Empty")(r), ""},
		{"missing Header", none(r), ""},
		{"Cookie twice", cookie(r), "cookie session s1"}, // as http.Request.Cookie does
		{"missing Cookie", httplimit.Cookie("other")(r), ""},
		{"Route", httplimit.Route(r), "route POST /login"},
		{"Route outside of a mux", httplimit.Route(from("198.51.100.7:1")), ""},
		{"And", header.And(httplimit.Route)(r), "21 header X-Api-Key mine route POST /login"},
		{"And with nothing", header.And(none)(r), ""},
		{"And of nothing", none.And(header)(r), ""},
	} {
		if of.got != of.want {
			t.Errorf("%s: %q, not %q", of.name, of.got, of.want)
		}
	}
}

// routeIn returns a function that returns the pattern that mux finds for a request.
func routeIn(mux *http.ServeMux) func(*http.Request) string {
	return func(r *http.Request) string {
		_, pattern := mux.Handler(r)
		return pattern
	}
}

// TestRouteBy checks the keys around a mux: every request has a key, and no client can choose its
// own.
func TestRouteBy(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", fine)
	mux.Handle("/users/{id}/", fine)
	key := httplimit.RouteBy(routeIn(mux))
	for _, of := range []struct{ method, path, want string }{
		{"GET", "/orders/1", "route GET /orders/{id}"},
		{"HEAD", "/orders/2", "route GET /orders/{id}"},
		{"POST", "/orders/1", "no route"},
		{"GET", "/nowhere", "no route"},
		{"GET", "/users/17", "route /users/{id}/"}, // redirected to /users/17/
		{"GET", "//users/17/", "route /users/{id}/"},
		{"CONNECT", "/users/17", "no route"}, // the mux returns /users/17/
	} {
		if got := key(httptest.NewRequest(of.method, "http://example.com"+of.path, http.NoBody)); got != of.want {
			t.Errorf("%s %s: %q, not %q", of.method, of.path, got, of.want)
		}
	}
}

// FuzzNobodyElsesKey checks that a client's key is that of its own address, whatever the client
// sends to the proxy.
func FuzzNobodyElsesKey(f *testing.F) {
	f.Add([]byte{198, 51, 100, 7}, "203.0.113.1", "10.0.0.9, ::ffff:203.0.113.1")
	f.Add([]byte("0123456789abcdef"), "garbage,,", "203.0.113.1:80")
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xcb\x00\x71\x01"), "", ",")
	f.Add([]byte("\x00\x64\xff\x9b\x00\x00\x00\x00\x00\x00\x00\x00\xcb\x00\x71\x01"), "", "")
	behind, in := must(httplimit.ClientsBehind(proxies...)).Key, must(httplimit.ClientsIn(clientIP, proxies...))
	hop, hops := must(httplimit.ClientsByHops(1)), must(httplimit.ClientsByHops(2))
	f.Fuzz(func(t *testing.T, client []byte, claim, more string) {
		a, ok := netip.AddrFromSlice(client)
		if !ok || isProxy(a.String()) {
			t.Skip()
		}
		want := address(from(netip.AddrPortFrom(a, 1).String(), claim))
		for _, key := range []string{
			behind(from("10.0.0.1:1", claim+","+a.String())),
			behind(from("10.0.0.1:1", claim, more, a.String())),
			behind(from("10.0.0.1:1", claim, more+","+a.String()+", 192.0.2.10")),
			behind(from(netip.AddrPortFrom(a, 1).String(), claim, more)),
			hop.Key(from("10.0.0.1:1", claim, more+","+a.String())),
			hops.Key(from("10.0.0.1:1", claim+","+more, a.String()+", 192.0.2.10")),
			in.Key(withClientIP(from("10.0.0.1:1", claim, more), a.String())),
			in.Key(withClientIP(from(netip.AddrPortFrom(a, 1).String(), claim), more)),
		} {
			if key != want || key == "" {
				t.Errorf("%s has the key %q, not %q", a, key, want)
			}
		}
	})
}

// FuzzNothingLeftOfAStranger checks that the key does not depend on anything to the left of the
// last entry that is not a proxy's address.
func FuzzNothingLeftOfAStranger(f *testing.F) {
	f.Add("10.0.0.1:1", "203.0.113.1, 10.0.0.9", "198.51.100.7", "192.0.2.10")
	f.Add("198.51.100.7:1", "203.0.113.1", "10.0.0.1", "")
	f.Add("[2001:db8:ffff::1%25eth0]:1", "::ffff:10.0.0.1", "unknown", ", ,")
	f.Add("10.0.0.1:1", "203.0.113.1", "198.51.100.7:80", "10.0.0.1\n10.0.0.2")
	behind := must(httplimit.ClientsBehind(proxies...)).Key
	f.Fuzz(func(t *testing.T, peer, left, entry, right string) {
		key, own := behind(from(peer, left, entry, right)), address(from(peer))
		if (own == "" || !isProxy(peer)) && key != own {
			t.Errorf("from %q: %q, though no proxy calls", peer, key)
		}
		for part := range strings.SplitSeq(entry+","+right, ",") {
			if part = strings.Trim(part, " \t"); part != "" && !isProxy(part) {
				if without := behind(from(peer, entry, right)); key != without {
					t.Errorf("%q before %q: %q, but without it %q", left, entry+","+right, key, without)
				}
				return
			}
		}
	})
}

// FuzzNothingLeftOfTheHops checks that the key does not depend on anything to the left of the
// entries that the proxies added.
func FuzzNothingLeftOfTheHops(f *testing.F) {
	f.Add("203.0.113.1", "198.51.100.7", "192.0.2.10", "10.0.0.2")
	f.Add("203.0.113.1, ,", "[2001:db8::1]:80", "unknown", "::1%eth0")
	f.Add("\x00\n,", "198.51.100.7:70000", "a b", "-")
	f.Fuzz(func(t *testing.T, left, a, b, c string) {
		added := []string{a, b, c}
		for i, entry := range added {
			if added[i] = strings.Trim(entry, " \t"); added[i] == "" || strings.Contains(entry, ",") {
				t.Skip()
			}
		}
		for n := 1; n <= len(added); n++ {
			clients := must(httplimit.ClientsByHops(n))
			entries := strings.Join(added[len(added)-n:], ",")
			key, without := clients.Key(from("10.0.0.1:1", left, entries)), clients.Key(from("10.0.0.1:1", entries))
			if own := address(from(added[len(added)-n])); key != without || key != own {
				t.Errorf("%d hops, %q before %q: %q, without it %q, want %q", n, left, entries, key, without, own)
			}
		}
	})
}

// FuzzOneAddressInOneLine checks that the header is used only if a proxy sent it, and only if it
// consists of one address.
func FuzzOneAddressInOneLine(f *testing.F) {
	f.Add("10.0.0.1:1", "198.51.100.7", "")
	f.Add("10.0.0.1:1", "203.0.113.1, 198.51.100.7", "198.51.100.7")
	f.Add("198.51.100.7:1", "203.0.113.1", "203.0.113.1")
	f.Add("[2001:db8:ffff::1%25eth0]:1", "[2001:db8:1:2::4]:80", "unknown")
	f.Add("[64:ff9b::10.0.0.1]:1", "203.0.113.1", "") // not a proxy, although its IPv4 address is one
	in := must(httplimit.ClientsIn(clientIP, proxies...))
	f.Fuzz(func(t *testing.T, peer, line, more string) {
		own, want := address(from(peer)), address(from(strings.Trim(line, " \t")))
		proxied := own != "" && isProxy(peer)
		if !proxied {
			want = own
		}
		if key := in.Key(withClientIP(from(peer, more), line)); key != want {
			t.Errorf("from %q, %q: %q, not %q", peer, line, key, want)
		}
		if key := in.Key(withClientIP(from(peer), line, more)); proxied && key != "" {
			t.Errorf("from %q, %q and %q: %q", peer, line, more, key)
		}
	})
}

// FuzzRouteIsThePattern checks that, whatever path a client sends, the key is the pattern that the
// mux finds, both with Route inside the mux and with RouteBy around it.
func FuzzRouteIsThePattern(f *testing.F) {
	f.Add("/a/1", "GET")
	f.Add("/a/../b", "GET")
	f.Add("/route POST /login", "POST")
	f.Add("//a//1", "\x00")
	f.Add("/c/1", "CONNECT")
	mux, keys := http.NewServeMux(), []string{"no route"}
	var within string
	for _, pattern := range []string{"GET /a/{id}", "/b", "/c/{id}/"} {
		keys = append(keys, "route "+pattern)
		mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) {
			if within = httplimit.Route(r); within != "route "+pattern {
				panic(within)
			}
		})
	}
	around := httplimit.RouteBy(routeIn(mux))
	f.Fuzz(func(t *testing.T, path, method string) {
		r := from("198.51.100.7:1")
		r.URL.Path, r.Method = path, method
		key := around(r)
		within = ""
		mux.ServeHTTP(httptest.NewRecorder(), r)
		if !slices.Contains(keys, key) || within != "" && key != within && method != http.MethodConnect {
			t.Errorf("%q around the mux, %q within it", key, within)
		}
	})
}

// isProxy reports whether an entry is the address of a proxy, which can have a port or brackets.
func isProxy(entry string) bool {
	if host, _, err := net.SplitHostPort(entry); err == nil {
		entry = host
	}
	entry = strings.Trim(entry, "[]")
	address, err := netip.ParseAddr(entry)
	address = address.Unmap().WithZone("")
	return err == nil && slices.ContainsFunc(proxies, func(p string) bool {
		network, err := netip.ParsePrefix(p)
		return p == address.String() || err == nil && network.Contains(address)
	})
}

// FuzzKeysStayApart checks that two requests have the same key if and only if everything that the
// key depends on is equal.
func FuzzKeysStayApart(f *testing.F) {
	f.Add("a", "b", "a", "c", uint8(7), uint8(7))
	f.Add("a", "b cookie c d", "a cookie c b", "d", uint8(7), uint8(7))
	f.Add("198.51.100.7", "198.51.100.7", "", "", uint8(7), uint8(7))
	header, cookie := httplimit.Header("X-Key"), httplimit.Cookie("c")
	f.Fuzz(func(t *testing.T, h1, c1, h2, c2 string, a1, a2 uint8) {
		one, two := keyedRequest(h1, c1, a1), keyedRequest(h2, c2, a2)
		h, c, a := header(one) == header(two), cookie(one) == cookie(two), address(one) == address(two)
		check := func(name string, k httplimit.Key, same bool) {
			if x, y := k(one), k(two); x != "" && y != "" && (x == y) != same {
				t.Errorf("%s: %q and %q", name, x, y)
			}
		}
		check("header", header, h1 == h2)
		check("header and cookie", header.And(cookie), h && c)
		check("all", header.And(cookie).And(address), h && c && a)
		check("all, otherwise", header.And(cookie.And(address)), h && c && a)
	})
}

// keyedRequest returns a request with the given header value, cookie value, and last byte of the
// address.
func keyedRequest(header, cookie string, last uint8) *http.Request {
	r := from(fmt.Sprintf("198.51.100.%d:1", last))
	r.Header["X-Key"], r.Header["Cookie"] = []string{header}, []string{"c=" + cookie}
	return r
}
