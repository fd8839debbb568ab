package logs

import (
	"errors"
	"net/netip"
	"strings"
	"time"
)

// alb reads the access logs of AWS Application Load Balancers. For example, this is one line:
//
//	https 2025-03-04T05:06:07.186641Z app/web/50dc6c495c0c9188 192.0.2.1:2817 10.0.0.1:80
//	    0.086 0.048 0.037 200 200 0 57 "GET https://example.org:443/a HTTP/1.1" "curl/8.5.0" …
//
// The client does not control any field before its own address.
type alb struct{}

var errALB = errors.New("it does not begin like https 2025-03-04T05:06:07.186641Z app/web/50dc6c495c0c9188 192.0.2.1:2817")

func asALB(line string, _ Options, _ bool) format {
	return ifRead(alb{}, line)
}

var albFields = []string{"address", "path", "agent"}

func (alb) fields() []string        { return albFields }
func (alb) byDefault(string) string { return "address" }

func (alb) read(line, field string) (Attempt, error) {
	at, client, rest, ok := cutALB(line)
	if !ok {
		return Attempt{}, errALB
	}
	a := Attempt{At: at, Units: 1, Times: 1}
	_, request, _ := strings.Cut(rest, ` "`)
	switch field {
	case "address":
		a.Event = client.Unmap().String()
	case "path":
		a.Event = webPath(request)
	case "agent":
		_, rest := cutQuoted(request)
		agent, _ := cutQuoted(strings.TrimPrefix(rest, ` "`))
		a.Event = withoutDash(agent)
	}
	return a, nil
}

// cutALB splits a line after the client's address.
func cutALB(line string) (at time.Time, client netip.Addr, rest string, ok bool) {
	kind, rest, _ := strings.Cut(line, " ")
	stamp, rest, _ := strings.Cut(rest, " ")
	balancer, rest, _ := strings.Cut(rest, " ")
	address, rest, _ := strings.Cut(rest, " ")
	at, dated := parseRFC3339(stamp)
	client, err := parseClient(address)
	return at, client, rest, dated && err == nil && isWord(kind) && strings.Contains(balancer, "/")
}

// parseClient parses an address with a port. The load balancers write IPv6 addresses without
// brackets.
func parseClient(s string) (netip.Addr, error) {
	colon := strings.LastIndexByte(s, ':')
	if colon < 0 || !isNumber(s[colon+1:]) {
		return netip.Addr{}, errALB
	}
	return netip.ParseAddr(strings.Trim(s[:colon], "[]"))
}
