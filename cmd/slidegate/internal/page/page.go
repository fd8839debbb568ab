// Package page serves slidegate's live page. The page shows the state of an event or an account in
// rate limiters, and updates it as it changes.
//
// The page (files/index.html) takes the event to watch from its own URL, and opens a stream of
// server-sent events for it. All streams of the same event share a poller (watch.go), which polls
// Redis twice a second, however many browsers are watching.
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

// Config configures what a page shows and what its users may do.
type Config struct {
	Title      string   // of the page
	Named      bool     // users enter a limiter and its limits; if not set, the page is for a single limiter
	Accounts   bool     // users can look up accounts in login guards
	Challenged bool     // the login guards have challenges
	Links      []string // paths on the same server, to link at the end of the page

	Open     func(Query) (Poll, error)          // prepares to poll the event or account in the query
	Forget   func(context.Context, Query) error // nil means that the page has no Reset button
	Overview func() any                         // returns the overview of all events, to be encoded as JSON; nil means none
}

// Query names the event or account to watch.
type Query struct {
	Name     string // of the limiter or the guard
	Event    string // or the account, if Login is set; any bytes
	Limits   string // as in 5/1h,20/1d
	AR1      bool   // the limiter is from package ar1
	Pace     bool   // the limiter is from package pace
	Inflight bool   // the limiter is from package inflight
	Login    bool   // Name is the name of a login guard, and Event an account
	Address  string // the IP address from which the account is used, or empty
}

// Poll reads a state, which the page receives as JSON.
type Poll func(context.Context) (any, error)

//go:embed files
var files embed.FS

var index = template.Must(template.ParseFS(files, "files/index.html"))

// page is the handler that New returns.
type page struct {
	Config
	hub hub
}

// New returns a handler that serves the page and the files that it loads. Its paths start at the
// root of the server.
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

// Guard returns a handler that rejects requests from other sites with status 403. It also adds
// headers that keep a browser from loading or running anything from elsewhere.
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
		if reboundHost(r) {
			http.Error(w, fmt.Sprintf("Only this machine can open this page; open it as localhost, and not as %q.", r.Host), http.StatusForbidden)
			return
		}
		if crossSite(r) {
			http.Error(w, "Other sites cannot embed this page; open it by itself.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// crossSite reports whether a browser sends the request on behalf of a page from another site. That
// site could not read the response, but every stream that it opens would cause load on Redis.
// Following a link from another site is fine.
func crossSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Dest") != "document"
}

// reboundHost reports whether a request to a loopback address names a different host. Browsers send
// such requests in a DNS rebinding attack: a site makes its own name resolve to this machine, so
// that the browser treats the two as the same site.
func reboundHost(r *http.Request) bool {
	if local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr); !OnLoopback(local) {
		return false
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	_, err := netip.ParseAddr(host)
	return err != nil && host != "localhost"
}

// OnLoopback reports whether the given address can be reached only from this machine.
func OnLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// index serves the page itself.
func (p *page) index(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = index.Execute(w, map[string]any{"Page": p, "Query": p.queryOf(r), "Watching": r.URL.Query().Has("event")}) // the browser may be gone
}

// queryOf returns the query in the request's URL. The event is kept byte for byte, even if it is
// not valid UTF-8.
func (p *page) queryOf(r *http.Request) Query {
	v := r.URL.Query()
	if !p.Named {
		return Query{Event: v.Get("event")}
	}
	return Query{
		Name: v.Get("name"), Event: v.Get("event"), Limits: v.Get("limit"), AR1: v.Has("ar1"), Pace: v.Has("pace"),
		Inflight: v.Has("inflight"), Login: v.Has("login"), Address: v.Get("ip"),
	}
}

// Encode returns q as the query string of a URL.
func (q Query) Encode() string {
	v := url.Values{}
	for name, value := range map[string]string{"event": q.Event, "name": q.Name, "limit": q.Limits, "ip": q.Address} {
		if value != "" {
			v.Set(name, value)
		}
	}
	for name, on := range map[string]bool{"ar1": q.AR1, "pace": q.Pace, "inflight": q.Inflight, "login": q.Login} {
		if on {
			v.Set(name, "1")
		}
	}
	return v.Encode()
}

// update is a message of a stream: a state or an error.
type update struct {
	Shown string `json:"shown,omitempty"` // the event in printable form
	State any    `json:"state,omitempty"`
	Error string `json:"error,omitempty"`
}

// watch streams the state of an event or account.
func (p *page) watch(w http.ResponseWriter, r *http.Request) {
	q := p.queryOf(r)
	poll, err := p.Open(q)
	if err != nil {
		poll = func(context.Context) (any, error) { return nil, err }
	}
	p.hub.serve(w, r, q, func(ctx context.Context) []byte {
		u := update{Shown: logs.Shown(q.Event)}
		state, err := poll(ctx)
		if err != nil {
			u.Error = errorText(err)
		} else {
			u.State = state
		}
		return encoded(u)
	})
}

// errorText returns an error message without the library's prefix.
func errorText(err error) string { return strings.TrimPrefix(err.Error(), "slidegate: ") }

// overview streams the overview of all events.
func (p *page) overview(w http.ResponseWriter, r *http.Request) {
	p.hub.serve(w, r, "overview", func(context.Context) []byte { return encoded(update{State: p.Overview()}) })
}

// encoded returns u as JSON without line breaks.
func encoded(u update) []byte {
	text, err := json.Marshal(u)
	if err != nil {
		text, _ = json.Marshal(update{Error: err.Error()})
	}
	return text
}

// resetTimeout is how long a reset may take.
const resetTimeout = 10 * time.Second

// reset removes the counts of an event or account.
func (p *page) reset(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), resetTimeout)
	defer cancel()
	if err := p.Forget(ctx, p.queryOf(r)); err != nil {
		http.Error(w, errorText(err), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
