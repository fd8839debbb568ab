package httplimit

import (
	"context"
	"log/slog"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/slidegate/slidegate/internal/adapter"
)

// Key returns the event key of a request, which identifies who is limited. Requests with the same
// key share their limits. A request whose key is "" is refused with HTTP 400, because all such
// requests would share one budget.
//
// Any function can be a Key; for IP addresses use the Key of a Clients. A Key may be called twice
// for a request, because the middleware calls it again to find out why it returned "". Keys from
// different functions of this package never overlap, so no client can put an address into a header
// to use up the budget of that address. A Key that is made from an invalid name or a nil Key is
// nil, and New rejects it.
type Key func(r *http.Request) string

// Header returns a Key that reads the value of the named header, such as X-Api-Key. The event key
// is "header NAME VALUE", for example "header X-Api-Key VALUE". Use it for slidegate inspect.
//
// If a request has several lines of the header, it has no key. Otherwise the limiter could count
// one value while the program verifies another, and a client would get a new budget with each line
// that it adds. A list in one line is one value.
//
// Verify first that you issued the value. Otherwise a client gets as many budgets as it can invent
// values. For a header that contains the client's IP address, use ClientsIn.
func Header(name string) Key {
	name, ok := headerName(name)
	if !ok {
		return nil // New refuses it
	}
	return func(r *http.Request) string {
		values := r.Header[name]
		switch {
		case len(values) > 1:
			return adapter.NoteKeyless(r.Context(), "the header "+name+" has several values")
		case len(values) == 0 || values[0] == "":
			return adapter.NoteKeyless(r.Context(), "the header "+name+" is missing or empty")
		}
		return "header " + name + " " + values[0]
	}
}

// headerName returns the header name as net/http writes it, and whether http.Request.Header can
// contain it.
func headerName(name string) (canonical string, ok bool) {
	canonical = textproto.CanonicalMIMEHeaderKey(name)
	return canonical, isToken(name) && canonical != "Host"
}

// isToken reports whether name is a valid header or cookie name (RFC 9110, 5.6.2).
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// Cookie returns a Key that reads the value of the named cookie, such as a session cookie. A
// browser can send several cookies with the same name, for different paths. Cookie uses the first
// one, as http.Request.Cookie does, so verify that one. As with a header, a client can invent the
// value. The event key is "cookie NAME VALUE".
func Cookie(name string) Key {
	if !isToken(name) {
		return nil // New refuses it
	}
	return func(r *http.Request) string {
		cookie, err := r.Cookie(name)
		if err != nil || cookie.Value == "" {
			return adapter.NoteKeyless(r.Context(), "the cookie "+name+" is missing or empty")
		}
		return "cookie " + name + " " + cookie.Value
	}
}

// Route is a Key that identifies the route that the request matched, by http.Request.Pattern. For
// example, if http.ServeMux matched "POST /login", the event key is "route POST /login". A router
// sets the pattern when it calls a handler, so wrap the handlers inside the router. In middleware
// around the router, or in chi's Use, use RouteBy instead: Route finds no pattern there and returns
// "".
func Route(r *http.Request) string {
	if r.Pattern == "" {
		return adapter.NoteKeyless(r.Context(), "Route found no pattern: wrap the handlers inside the router and not the router, or use RouteBy")
	}
	return "route " + r.Pattern
}

// RouteBy returns a Key that identifies the route, for middleware around a whole router. The event
// keys are the same as those of Route. The function pattern asks the router for the route's
// pattern, for example an http.ServeMux:
//
//	httplimit.RouteBy(func(r *http.Request) string {
//		_, pattern := mux.Handler(r)
//		return pattern
//	})
//
// The function must return the registered pattern, and never the path, because clients can invent
// paths. It must return "" if no route matches. All such requests share the event key "no route".
// So do all CONNECT requests, because for some of them http.ServeMux returns a path that the client
// chose.
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

// And returns a Key that combines k and other: requests share their limits only if both keys match.
// If either key is "", the combined key is "". The event key consists of the first key's length and
// both keys, separated by spaces: "12 route GET /x 198.51.100.7".
func (k Key) And(other Key) Key {
	if k == nil || other == nil {
		return nil // New refuses it
	}
	return func(r *http.Request) string { return adapter.JoinKeys(k(r), other(r)) }
}

// logKeyless logs the first request without a key. It calls k again to find out why k returned "".
func (k Key) logKeyless(first *adapter.Keyless, log *slog.Logger, r *http.Request) {
	first.Log(r.Context(), log, "requests", func(ctx context.Context) { k(r.WithContext(ctx)) })
}
