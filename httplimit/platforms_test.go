package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/slidegate/slidegate/httplimit"
)

// The pages on which the platforms document the headers that they set.
const (
	applicationGateway = "https://learn.microsoft.com/azure/application-gateway/how-application-gateway-works"
	frontDoor          = "https://learn.microsoft.com/azure/frontdoor/front-door-http-headers-protocol"
	awsALB             = "https://docs.aws.amazon.com/elasticloadbalancing/latest/application/x-forwarded-headers.html"
	cloudflare         = "https://developers.cloudflare.com/fundamentals/reference/http-headers/"
	fly                = "https://fly.io/docs/networking/request-headers/"
	googleCloud        = "https://cloud.google.com/load-balancing/docs/https#x-forwarded-for_header"
	nginx              = "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#var_proxy_add_x_forwarded_for"
)

// TestPlatforms checks that the client is the address that connected to the platform, whatever
// headers it sent. 203.0.113.66 is forged.
func TestPlatforms(t *testing.T) {
	behind := must(httplimit.ClientsBehind(proxies...))
	one, two := must(httplimit.ClientsByHops(1)), must(httplimit.ClientsByHops(2))
	in := func(header string) httplimit.Clients { return must(httplimit.ClientsIn(header, proxies...)) }
	const forged, xff = "203.0.113.66", "X-Forwarded-For"
	for _, of := range []struct {
		name, source string
		clients      httplimit.Clients
		header       http.Header
		want         string
	}{
		{"Application Gateway adds IP:port", applicationGateway, behind, http.Header{xff: {"198.51.100.7:50000"}}, "198.51.100.7"},
		{"the same, forged", applicationGateway, behind, http.Header{xff: {forged + ", 198.51.100.7:50000"}}, "198.51.100.7"},
		{"the same, by hops", applicationGateway, one, http.Header{xff: {forged + ":80, 198.51.100.7:50000"}}, "198.51.100.7"},
		{"Front Door adds the socket's address", frontDoor, one, http.Header{xff: {"198.51.100.7"}}, "198.51.100.7"},
		{"the same, forged", frontDoor, one, http.Header{xff: {forged + ", 198.51.100.7"}}, "198.51.100.7"},
		{"X-Azure-SocketIP, while X-Azure-ClientIP is forged", frontDoor, in("X-Azure-SocketIP"), http.Header{"X-Azure-Clientip": {forged}, "X-Azure-Socketip": {"198.51.100.7"}}, "198.51.100.7"},
		{"ALB", awsALB, behind, http.Header{xff: {"203.0.113.7"}}, "203.0.113.7"},
		{"ALB appends", awsALB, behind, http.Header{xff: {"127.0.0.4, 127.0.0.8, 127.0.0.1"}}, "127.0.0.1"},
		{"the same, by hops", awsALB, one, http.Header{xff: {"127.0.0.4, 127.0.0.8, 127.0.0.1"}}, "127.0.0.1"},
		{"ALB with a client port", awsALB, behind, http.Header{xff: {"12.34.56.78:8080"}}, "12.34.56.78"},
		{"the same over IPv6", awsALB, one, http.Header{xff: {forged + ", [2001:db8:85a3:8d3:1319:8a2e:370:7348]:8080"}}, "2001:db8:85a3:8d3::/64"},
		{"ALB that removes the header", awsALB, one, nil, ""},
		{"Cloudflare", cloudflare, in("CF-Connecting-IP"), http.Header{"Cf-Connecting-Ip": {"198.51.100.7"}, xff: {forged + ",198.51.100.7"}}, "198.51.100.7"},
		{"the same over IPv6", cloudflare, in("CF-Connecting-IP"), http.Header{"Cf-Connecting-Ip": {"2001:db8:1:2:3:4:5:6"}}, "2001:db8:1:2::/64"},
		{"the same, by hops", cloudflare, one, http.Header{xff: {"203.0.113.1,198.51.100.101,198.51.100.102"}}, "198.51.100.102"},
		{"True-Client-IP", cloudflare, in("True-Client-IP"), http.Header{"True-Client-Ip": {"203.0.113.1"}}, "203.0.113.1"},
		{"a second line of it, forged", cloudflare, in("True-Client-IP"), http.Header{"True-Client-Ip": {forged, "203.0.113.1"}}, ""},
		{"Fly", fly, in("Fly-Client-IP"), http.Header{"Fly-Client-Ip": {"77.97.0.98"}, xff: {forged + ", 77.97.0.98, 77.83.142.33"}}, "77.97.0.98"},
		{"Fly adds the app's address last", fly, two, http.Header{xff: {"77.97.0.98, 77.83.142.33"}}, "77.97.0.98"},
		{"the same, forged", fly, two, http.Header{xff: {forged + ", 77.97.0.98, 77.83.142.33"}}, "77.97.0.98"},
		{"Google adds the client's address and its own", googleCloud, two, http.Header{xff: {"198.51.100.7,192.0.2.10"}}, "198.51.100.7"},
		{"the same, forged, and it may contain anything", googleCloud, two, http.Header{xff: {forged + ", a b,198.51.100.7,192.0.2.10"}}, "198.51.100.7"},
		{"the same, by networks", googleCloud, behind, http.Header{xff: {forged + ",198.51.100.7,192.0.2.10"}}, "198.51.100.7"},
		{"nginx appends", nginx, one, http.Header{xff: {forged + ", 198.51.100.7"}}, "198.51.100.7"},
		{"nginx behind nginx", nginx, two, http.Header{xff: {forged + ", 198.51.100.7, 10.0.0.2"}}, "198.51.100.7"},
		{"nginx that sets X-Real-IP", nginx, in("X-Real-IP"), http.Header{"X-Real-Ip": {"198.51.100.7"}}, "198.51.100.7"},
	} {
		r := from("10.0.0.1:1")
		if of.header != nil {
			r.Header = of.header
		}
		if got := of.clients.Key(r); got != of.want {
			t.Errorf("%s: %q, not %q; %s", of.name, got, of.want, of.source)
		}
	}
}
