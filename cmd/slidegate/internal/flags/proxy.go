package flags

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/onevalue"
	"github.com/slidegate/slidegate/httplimit"
)

// Upstream is the URL of the server behind the proxy.
type Upstream struct{ *url.URL }

// Decode parses the flag.
func (to *Upstream) Decode(c *kong.DecodeContext) error {
	var text Text
	if to.URL != nil {
		return errTwice
	}
	if err := text.Decode(c); err != nil {
		return err
	}
	u, err := url.Parse(string(text))
	switch {
	case strings.ContainsAny(string(text), "@?#"): // any part may then contain a password
		return errors.New("its URL has a user, a query or a fragment, which are not passed on; write @ in a path as %40, and the URL as in http://127.0.0.1:8080")
	case err != nil || u.Hostname() == "" || len(u.Port()) > 5 || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q is not the URL of a server; write it with its scheme, as in http://127.0.0.1:8080", text)
	}
	to.URL = u
	return nil
}

// Who says to what a budget belongs, such as an IP address. It is the value of the proxy's flag
// --by, or the end of a route.
type Who struct {
	Text string        // the value as given
	Key  httplimit.Key // nil for an address, which depends on --behind
}

// Decode parses the flag.
func (w *Who) Decode(c *kong.DecodeContext) error {
	text, err := value(c, "one, as in address")
	if err != nil {
		return err
	}
	if w.Text != "" {
		return errTwice
	}
	return w.read(text)
}

func (w *Who) read(text string) error {
	w.Text = text
	kind, name, _ := strings.Cut(text, ":")
	switch {
	case text == "all":
		w.Key = func(*http.Request) string { return "all" }
	case kind == "header" && strings.EqualFold(name, "Host"):
		return fmt.Errorf("%q is not a field to limit by; write a --route for each host, as in 'api.example.com/ 5/1h by all'", text)
	case kind == "header":
		w.Key = onevalue.Header(name)
	case kind == "cookie":
		w.Key = onevalue.Cookie(name)
	}
	if w.Key == nil && text != "address" {
		return fmt.Errorf("%q does not name a client; write address, header:NAME, cookie:NAME or all", text)
	}
	return nil
}

// Routes holds the routes of all --route flags.
type Routes []Route

// Route is a request pattern with its own limits.
type Route struct {
	Pattern string
	Limits  Limits // empty means not limited
	By      Who
}

// Decode adds the route of one flag.
func (rs *Routes) Decode(c *kong.DecodeContext) error {
	text, err := value(c, "one, as in 'POST /login 1/5s,5/1h'")
	if err != nil {
		return err
	}
	var rt Route
	err = rt.read(text)
	*rs = append(*rs, rt)
	return err
}

// read parses a route. It consists of a pattern, which is a path or a method and a path, followed
// by limits or the word none, and optionally by WHO.
func (rt *Route) read(text string) (err error) {
	words := strings.Fields(text)
	n := 1
	if len(words) > 0 && !strings.Contains(words[0], "/") {
		n = 2 // a method
	}
	if rest := len(words) - n; rest != 1 && (rest != 3 || words[n+1] != "by") {
		return fmt.Errorf("%q is not a route; write a pattern, limits or none, and perhaps by WHO, as in 'POST /login 1/5s,5/1h by address'", text)
	}
	rt.Pattern = strings.Join(words[:n], " ")
	if limits := words[n]; limits != "none" {
		rt.Limits, err = ParseLimits(limits)
	}
	if err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	if len(words) > n+1 {
		return rt.By.read(words[n+2])
	}
	return nil
}

// Networks holds the trusted proxies of all --behind flags.
type Networks []netip.Prefix

// Decode adds the networks of one flag.
func (ns *Networks) Decode(c *kong.DecodeContext) error {
	return eachValue(c, "10.0.0.0/24", ns.add)
}

func (ns *Networks) add(text string) error {
	if _, err := httplimit.ClientsBehind(text); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "slidegate: "))
	}
	n, err := netip.ParsePrefix(text)
	if single, failed := netip.ParseAddr(text); failed == nil {
		n, err = single.Prefix(single.BitLen())
	}
	*ns = append(*ns, n)
	return err
}

// Outage says what a proxy does while Redis does not answer: local, open or closed. It is empty if
// the flag is not given.
type Outage httplimit.Outage

// Decode parses the flag.
func (o *Outage) Decode(c *kong.DecodeContext) error {
	text, err := value(c, "local, open or closed")
	if err != nil {
		return err
	}
	if *o != "" {
		return errTwice
	}
	if !slices.Contains([]string{"local", "open", "closed"}, text) {
		return fmt.Errorf("there is no %q; choose local, open or closed", text)
	}
	*o = Outage(text)
	return nil
}

// Timeout is the longest time for which a request waits for Redis.
type Timeout time.Duration

// Decode parses the flag.
func (t *Timeout) Decode(c *kong.DecodeContext) error {
	const example = "as in 500ms"
	text, err := value(c, "one, "+example)
	if err != nil {
		return err
	}
	if *t != 0 {
		return errTwice
	}
	parsed, err := time.ParseDuration(text)
	if err != nil || parsed < time.Millisecond || parsed > time.Minute {
		return fmt.Errorf("%q is not a time to wait for Redis; write one from 1ms to 1m, %s", text, example)
	}
	*t = Timeout(parsed)
	return nil
}
