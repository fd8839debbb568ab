package httplimit

import (
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/keyless"
)

// Key returns who is limited, as the event key for the limiter. Requests with the same key share
// their limits. A request with the key "" is refused with HTTP 400, because all such requests would
// share one budget.
//
// Any function can be a Key. It can be called several times for a request, because the middleware
// and Or call it again to find out why it returned "". The Keys of this package never return the
// same key for two kinds of clients. So nobody can write an address into a header to use up another
// client's budget. A Key made from an invalid name or a nil Key is nil, and New rejects it.
type Key func(r *http.Request) string

// Address returns the IP address that the connection comes from: an IPv4 address, or the /64 of an
// IPv6 address. Behind a proxy that is the proxy's address, so use AddressBehind or the Key of
// other Clients.
func Address(r *http.Request) string { return Clients{}.Key(r) }

// AddressBehind is shorthand for ClientsBehind(proxies...) and its Key.
func AddressBehind(proxies ...string) (Key, error) {
	clients, err := ClientsBehind(proxies...)
	if err != nil {
		return nil, err
	}
	return clients.Key, nil
}

// Header returns the Key that is the value of a header, such as X-Api-Key. The event key for
// slidegate inspect is "header X-Api-Key VALUE".
//
// A request with several lines of the header has no key, even with Or. Otherwise the limiter could
// count one value and the program verify another, and a client would get a new budget with each
// line that it adds. A list in one line is one value.
//
// First verify that the value is one that you issued. Otherwise a client has as many budgets as it
// can invent values. For a header that contains the client's IP address, use ClientsIn.
func Header(name string) Key {
	name, ok := headerName(name)
	if !ok {
		return nil // New refuses it
	}
	return func(r *http.Request) string {
		values := r.Header[name]
		switch {
		case len(values) > 1:
			return keyless.NoteSeveral(r.Context(), "the header "+name+" has several values")
		case len(values) == 0 || values[0] == "":
			return keyless.Note(r.Context(), "the header "+name+" is missing or empty")
		}
		return "header " + name + " " + values[0]
	}
}

// headerName returns the name of a header as net/http writes it, and whether http.Request.Header
// can hold it.
func headerName(name string) (canonical string, ok bool) {
	canonical = textproto.CanonicalMIMEHeaderKey(name)
	return canonical, isToken(name) && canonical != "Host"
}

// isToken reports whether a string can be the name of a header or a cookie (RFC 9110, 5.6.2).
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// Cookie returns the Key that is the value of a cookie, such as a session cookie. A browser can
// send several cookies with the same name, for different paths. The first one counts, as in
// http.Request.Cookie, so verify the first one. Like a header, a cookie can be invented by the
// client. The event key is "cookie NAME VALUE".
func Cookie(name string) Key {
	if !isToken(name) {
		return nil // New refuses it
	}
	return func(r *http.Request) string {
		cookie, err := r.Cookie(name)
		if err != nil || cookie.Value == "" {
			return keyless.Note(r.Context(), "the cookie "+name+" is missing or empty")
		}
		return "cookie " + name + " " + cookie.Value
	}
}

// Route returns the pattern of the route that the request matched, as in http.Request.Pattern, such
// as "POST /login" of http.ServeMux. The event key is then "route POST /login". A router sets the
// pattern when it calls a handler, so wrap the handlers inside the router. Around the router, or in
// chi's Use, use RouteBy, because Route finds no pattern there and returns "".
func Route(r *http.Request) string {
	if r.Pattern == "" {
		return keyless.Note(r.Context(), "Route found no pattern: wrap the handlers inside the router and not the router, or use RouteBy")
	}
	return "route " + r.Pattern
}

// RouteBy returns the Key that is the pattern of the route, for a middleware around a whole router.
// The event keys are those of Route. pattern queries the router, such as http.ServeMux:
//
//	httplimit.RouteBy(func(r *http.Request) string {
//		_, pattern := mux.Handler(r)
//		return pattern
//	})
//
// It must return the registered pattern, and never the path, because clients can invent paths. It
// returns "" if no route matches. All such requests share the event key "no route", and so do all
// CONNECT requests: for some of them, http.ServeMux returns a path that the client chose.
//
// For other routers see https://github.com/slidegate/slidegate/blob/main/docs/frameworks.md.
func RouteBy(pattern func(*http.Request) string) Key {
	if pattern == nil {
		return nil // New refuses it
	}
	return func(r *http.Request) string {
		if route := pattern(r); route != "" && r.Method != http.MethodConnect {
			return "route " + route
		}
		return "no route"
	}
}

// And returns a Key that combines k and other: requests share a limit if both keys are the same. If
// either is "", so is the result. The event key is the length of the first key and both keys,
// separated by spaces: "12 route GET /x 198.51.100.7".
func (k Key) And(other Key) Key {
	if k == nil || other == nil {
		return nil // New refuses it
	}
	return func(r *http.Request) string {
		one, two := k(r), other(r)
		if one == "" || two == "" {
			return ""
		}
		return strconv.Itoa(len(one)) + " " + one + " " + two
	}
}

// Or returns a Key that is k or, if k is "", other. If k is "" because a Header has several values,
// so is the result. Otherwise a client could add a line to get the budget of the other key.
func (k Key) Or(other Key) Key {
	if k == nil || other == nil {
		return nil // New refuses it
	}
	return func(r *http.Request) string {
		if key := k(r); key != "" || k.explain(r).Several {
			return key
		}
		return other(r)
	}
}

// explain calls the Key again to find out why it returns "".
func (k Key) explain(r *http.Request) *keyless.Reasons {
	ctx, reasons := keyless.Collect(r.Context())
	k(r.WithContext(ctx))
	return reasons
}
