package httplimit

import (
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// Key returns who is limited, as the event for the limiter: requests of one Key share their limits. A request with the key "" is refused
// with the status 400, because all such requests would share one budget.
//
// Any function will do. Those of this package never give two kinds of clients one key, so nobody can write an address into a header to use
// up another client's budget. One that is given no name or no Key is nil, and New refuses it.
type Key func(r *http.Request) string

// Address returns the IP address that the connection comes from: an IPv4 address, or the /64 of an IPv6 address. Behind a proxy it is the
// proxy's: take AddressBehind, or the Key of other Clients.
func Address(r *http.Request) string { return Clients{}.Key(r) }

// AddressBehind is shorthand for the Key of ClientsBehind.
func AddressBehind(proxies ...string) (Key, error) {
	clients, err := ClientsBehind(proxies...)
	if err != nil {
		return nil, err
	}
	return clients.Key, nil
}

// Header returns the Key that is the value of a header, such as X-Api-Key. If a request has several, the last counts. The event for
// slidegate inspect is "header X-Api-Key VALUE".
//
// Check first that the value is one you gave out. A client has as many budgets as it can invent values. For a header that holds the
// client's IP address, take ClientsIn.
func Header(name string) Key {
	name, ok := headerName(name)
	if !ok {
		return nil // which New refuses
	}
	return func(r *http.Request) string {
		values := r.Header[name]
		if len(values) == 0 || values[len(values)-1] == "" {
			return ""
		}
		return "header " + name + " " + values[len(values)-1]
	}
}

// headerName returns the name of a header as net/http writes it, and whether http.Request.Header can hold it.
func headerName(name string) (canonical string, ok bool) {
	canonical = textproto.CanonicalMIMEHeaderKey(name)
	return canonical, isToken(name) && canonical != "Host"
}

// isToken reports whether a text can be the name of a header or a cookie (RFC 9110, 5.6.2).
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// Cookie returns the Key that is the value of a cookie, such as that of a session. If a request has several, the first counts. Like a
// header, it is the client's word. The event is "cookie NAME VALUE".
func Cookie(name string) Key {
	if !isToken(name) {
		return nil // which New refuses
	}
	return func(r *http.Request) string {
		cookie, err := r.Cookie(name)
		if err != nil || cookie.Value == "" {
			return ""
		}
		return "cookie " + name + " " + cookie.Value
	}
}

// Route returns the pattern of http.ServeMux that the request matched, such as "POST /login". The event is then "route POST /login". Only
// the handlers of the mux know the pattern: wrap them, and not the mux.
func Route(r *http.Request) string {
	if r.Pattern == "" {
		return ""
	}
	return "route " + r.Pattern
}

// And returns both keys as one: requests share a limit if both keys are the same. If either is "", so is the result. The event is the
// length of the first key, then both, with spaces between: "12 route GET /x 198.51.100.7".
func (k Key) And(other Key) Key {
	if k == nil || other == nil {
		return nil // which New refuses
	}
	return func(r *http.Request) string {
		one, two := k(r), other(r)
		if one == "" || two == "" {
			return ""
		}
		return strconv.Itoa(len(one)) + " " + one + " " + two
	}
}

// Or returns the first key, or if that is "", the other.
func (k Key) Or(other Key) Key {
	if k == nil || other == nil {
		return nil // which New refuses
	}
	return func(r *http.Request) string {
		if key := k(r); key != "" {
			return key
		}
		return other(r)
	}
}
