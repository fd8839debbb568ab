// Package page serves the live page of slidegate. It shows what limiters count for an event or an
// account, as that changes.
//
// A browser takes this way: the page (files/index.html) reads from its own address what to watch,
// and opens a stream of server-sent events for it. All streams of one event share a poller
// (watch.go), so that Redis is asked twice a second, however many people look.
package page

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
)

// Config says what a page shows, and what its users may do.
type Config struct {
	Title      string   // of the page
	Named      bool     // users name the limiter and its limits; else the page is about one limiter
	Accounts   bool     // users can ask about accounts of login guards
	Challenged bool     // these guards have challenges
	Links      []string // paths of the same server, for the end of the page

	Open     func(Query) (Look, error)          // prepares to look at an event or an account
	Forget   func(context.Context, Query) error // nil: there is no Reset
	Overview func() any                         // what is shown of all events, as JSON; nil: nothing
}

// Query says what to look at.
type Query struct {
	Name    string // of the limiter or the guard
	Event   string // or an account; any bytes
	Limits  string // as in 5/1h,20/1d
	Levels  bool   // the limiter is one of ar1
	Login   bool   // Name is that of a login guard, and Event an account
	Address string // that the account is used from, or empty
}

// Look returns a state, which the page gets as JSON.
type Look func(context.Context) (any, error)

//go:embed files
var files embed.FS

var index = template.Must(template.ParseFS(files, "files/index.html"))

// page is the handler of New.
type page struct {
	Config
	hub hub
}

// New returns the handler of the page and of what it loads. It stands at the root of a server.
func New(cfg Config) http.Handler {
	p := &page{Config: cfg}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.index)
	for _, name := range []string{"page.css", "page.js", "draw.js", "icon.svg"} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, "files/"+name) })
	}
	mux.HandleFunc("GET /watch", p.watch)
	if cfg.Overview != nil {
		mux.HandleFunc("GET /overview", p.overview)
	}
	if cfg.Forget != nil {
		mux.HandleFunc("POST /reset", p.reset)
	}
	return Guard(http.NewCrossOriginProtection().Handler(mux))
}

// Guard returns a handler that refuses requests of other sites. It adds the headers that keep a
// browser from loading or running anything else.
func Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy":      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":       "nosniff",
			"Referrer-Policy":              "no-referrer",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control":                "no-cache",
		} {
			w.Header().Set(name, value)
		}
		if misled(r) {
			http.Error(w, fmt.Sprintf("This address is for this machine alone; open it as localhost, and not as %q.", r.Host), http.StatusForbidden)
			return
		}
		if embedded(r) {
			http.Error(w, "This page is not for use inside other sites; open it by itself.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// embedded reports whether a browser loads this for the page of another site. It could not read the
// answer, but each stream that it opens costs Redis. A link from another site is fine.
func embedded(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Dest") != "document"
}

// misled reports whether a request to a loopback address names another host. A browser sends such a
// request if the site that it shows has its own name lead to this machine (DNS rebinding): to the
// browser, both are then one site.
func misled(r *http.Request) bool {
	if local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr); !OnLoopback(local) {
		return false
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	_, err := netip.ParseAddr(host)
	return err != nil && host != "localhost"
}

// OnLoopback reports whether only this machine reaches an address.
func OnLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// index serves the page itself.
func (p *page) index(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = index.Execute(w, map[string]any{"Page": p, "Query": p.queryOf(r), "Watching": r.URL.Query().Has("event")}) // the browser may be gone
}

// queryOf returns what the address of a request asks for. It keeps each byte of the event, also
// those that are no UTF-8.
func (p *page) queryOf(r *http.Request) Query {
	v := r.URL.Query()
	if !p.Named {
		return Query{Event: v.Get("event")}
	}
	return Query{
		Name: v.Get("name"), Event: v.Get("event"), Limits: v.Get("limit"), Levels: v.Has("ar1"),
		Login: v.Has("login"), Address: v.Get("ip"),
	}
}

// Encode returns the query as the part of an address after the question mark.
func (q Query) Encode() string {
	v := url.Values{}
	for name, value := range map[string]string{"event": q.Event, "name": q.Name, "limit": q.Limits, "ip": q.Address} {
		if value != "" {
			v.Set(name, value)
		}
	}
	for name, on := range map[string]bool{"ar1": q.Levels, "login": q.Login} {
		if on {
			v.Set(name, "1")
		}
	}
	return v.Encode()
}

// update is what a stream sends: a state, or why there is none.
type update struct {
	Shown string `json:"shown,omitempty"` // the event as it can be printed
	State any    `json:"state,omitempty"`
	Error string `json:"error,omitempty"`
}

// watch streams the state of an event.
func (p *page) watch(w http.ResponseWriter, r *http.Request) {
	q := p.queryOf(r)
	look, err := p.Open(q)
	if err != nil {
		look = func(context.Context) (any, error) { return nil, err }
	}
	p.hub.serve(w, r, q, func(ctx context.Context) []byte {
		u := update{Shown: logs.Shown(q.Event)}
		state, err := look(ctx)
		if err != nil {
			u.Error = plain(err)
		} else {
			u.State = state
		}
		return encoded(u)
	})
}

// plain returns the text of an error without the name that those of the library begin with.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "slidegate: ") }

// overview streams what is shown of all events.
func (p *page) overview(w http.ResponseWriter, r *http.Request) {
	p.hub.serve(w, r, "overview", func(context.Context) []byte { return encoded(update{State: p.Overview()}) })
}

// encoded returns an update as JSON, which has no line breaks.
func encoded(u update) []byte {
	text, err := json.Marshal(u)
	if err != nil {
		text, _ = json.Marshal(update{Error: err.Error()})
	}
	return text
}

// forgetTime is how long a Reset may take.
const forgetTime = 10 * time.Second

// reset forgets what is counted for an event.
func (p *page) reset(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), forgetTime)
	defer cancel()
	if err := p.Forget(ctx, p.queryOf(r)); err != nil {
		http.Error(w, plain(err), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
