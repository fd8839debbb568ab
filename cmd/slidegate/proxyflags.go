package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/proxy"
	"github.com/slidegate/slidegate/httplimit"
)

// upstream is the server behind the proxy.
type upstream struct{ *url.URL }

// Decode reads the flag.
func (to *upstream) Decode(c *kong.DecodeContext) error {
	var text given
	if to.URL != nil {
		return errTwice
	}
	if err := text.Decode(c); err != nil {
		return err
	}
	u, err := url.Parse(string(text))
	switch {
	case err == nil && (u.User != nil || u.RawQuery != "" || u.Fragment != ""):
		return errors.New("its URL has a user, a query or a fragment, which are not passed on; write it as in http://127.0.0.1:8080")
	case err != nil || u.Hostname() == "" || len(u.Port()) > 5 || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q is no URL of a server; write it with its scheme, as in http://127.0.0.1:8080", text)
	}
	to.URL = u
	return nil
}

// leadsTo reports whether the server is the one that listens there. It finds out by a socket for UDP, which sends nothing, but knows both its ends.
func (to upstream) leadsTo(ctx context.Context, listener net.Listener) bool {
	port := cmp.Or(to.Port(), map[string]string{"http": "80", "https": "443"}[to.Scheme])
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "udp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return false // no such server yet
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	own, far, near := listener.Addr().(*net.TCPAddr), conn.RemoteAddr().(*net.UDPAddr), conn.LocalAddr().(*net.UDPAddr)
	here := far.IP.IsLoopback() || far.IP.Equal(near.IP)
	return here && far.Port == own.Port && (own.IP.IsUnspecified() || own.IP.Equal(far.IP))
}

// who is limited.
type who struct {
	text string
	key  httplimit.Key // nil for an address, which depends on --behind
}

// Decode reads the flag.
func (w *who) Decode(c *kong.DecodeContext) error {
	if isMissing(c) {
		return errors.New("its value is missing; write one, as in address")
	}
	if w.text != "" {
		return errTwice
	}
	return w.read(c.Scan.Pop().String())
}

func (w *who) read(text string) error {
	w.text = text
	kind, name, _ := strings.Cut(text, ":")
	switch {
	case text == "address":
	case text == "all":
		w.key = func(*http.Request) string { return "all" }
	case kind == "header" && strings.EqualFold(name, "Host"):
		return fmt.Errorf("%q is no field to limit by; write a --route for each host, as in 'api.example.com/ 5/1h by all'", text)
	case kind == "header" && httplimit.Header(name) != nil:
		w.key = only(httplimit.Header(name), func(r *http.Request) int { return len(r.Header.Values(name)) })
	case kind == "cookie" && httplimit.Cookie(name) != nil:
		w.key = only(httplimit.Cookie(name), func(r *http.Request) int { return len(r.CookiesNamed(name)) })
	default:
		return fmt.Errorf("%q names nobody; write address, header:NAME, cookie:NAME or all", text)
	}
	return nil
}

// only is a key for requests that have one value to limit by. Of several, the server could go by another than the limit.
func only(key httplimit.Key, values func(*http.Request) int) httplimit.Key {
	return func(r *http.Request) string {
		if values(r) > 1 {
			return ""
		}
		return key(r)
	}
}

// routes are those of all --route flags.
type routes []route

type route struct {
	pattern string
	limits  limits // none: not limited
	by      who
}

// Decode adds the route of one flag.
func (rs *routes) Decode(c *kong.DecodeContext) error {
	if isMissing(c) {
		return errors.New("its value is missing; write one, as in 'POST /login 1/5s,5/1h'")
	}
	var rt route
	err := rt.read(c.Scan.Pop().String())
	*rs = append(*rs, rt)
	return err
}

// read takes a route apart: a pattern, which is a path or a method and a path, then limits or none, then perhaps by WHO.
func (rt *route) read(text string) error {
	words := strings.Fields(text)
	n := 1
	if len(words) > 0 && !strings.Contains(words[0], "/") {
		n = 2 // a method
	}
	if rest := len(words) - n; rest != 1 && (rest != 3 || words[n+1] != "by") {
		return fmt.Errorf("%q is no route; write a pattern, limits or none, and perhaps by WHO, as in 'POST /login 1/5s,5/1h by address'", text)
	}
	rt.pattern = strings.Join(words[:n], " ")
	if err := rt.limited(words[n]); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	if len(words) > n+1 {
		return rt.by.read(words[n+2])
	}
	return nil
}

func (rt *route) limited(text string) error {
	if text == "none" {
		return nil
	}
	for limit := range strings.SplitSeq(text, ",") {
		if err := rt.limits.add(limit); err != nil {
			return err
		}
	}
	return nil
}

// networks are the proxies of all --behind flags.
type networks []netip.Prefix

// Decode adds those of one flag.
func (ns *networks) Decode(c *kong.DecodeContext) error {
	return eachValue(c, "10.0.0.0/24", ns.add)
}

func (ns *networks) add(text string) error {
	if _, err := httplimit.AddressBehind(text); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "slidegate: "))
	}
	n, err := netip.ParsePrefix(text)
	if single, failed := netip.ParseAddr(text); failed == nil {
		n, err = single.Prefix(single.BitLen())
	}
	*ns = append(*ns, n)
	return err
}

// outage is what to do while Redis does not answer.
type outage struct{ proxy.Outage }

// Decode reads the flag.
func (o *outage) Decode(c *kong.DecodeContext) error {
	if isMissing(c) {
		return errors.New("its value is missing; write local, open or closed")
	}
	if o.Outage != "" {
		return errTwice
	}
	o.Outage = proxy.Outage(c.Scan.Pop().String())
	if o.Outage != proxy.Local && o.Outage != proxy.Open && o.Outage != proxy.Closed {
		return fmt.Errorf("there is no %q; choose local, open or closed", o.Outage)
	}
	return nil
}

// askTime is how long Redis may take.
type askTime time.Duration

// Decode reads the flag.
func (p *askTime) Decode(c *kong.DecodeContext) error {
	if isMissing(c) {
		return errors.New("its value is missing; write one, as in 500ms")
	}
	if *p != 0 {
		return errTwice
	}
	text := c.Scan.Pop().String()
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond || d > time.Minute {
		return fmt.Errorf("%q is no time to wait for Redis; write one from 1ms to 1m, as in 500ms", text)
	}
	*p = askTime(d)
	return nil
}
