// Package proxy is a reverse proxy that limits requests by httplimit: each route has limits of its own, and instances that share a Redis share their budgets.
//
// A request takes this way: ServeHTTP finds its route, the middleware of the route asks the route's budget, and if that admits it, the request goes on to the server.
package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// Config says what is limited, and where requests go.
type Config struct {
	To      *url.URL           // the server; its path goes before those of requests
	Routes  []Route            // no two with the same Pattern; requests that match none are not limited
	Behind  []netip.Prefix     // proxies in front of this one, whose X-Forwarded-For, -Host and -Proto the server gets
	Name    string             // of the limiters, in their keys
	Secret  []byte             // hides events, in keys and in what is told of them
	Redis   *window.Connection // holds the budgets; nil: they are in memory
	Timeout time.Duration      // longest wait for Redis, for one request
	Outage  Outage             // what to do while Redis does not answer
	Shadow  bool               // every request reaches the server; what the limits would refuse is only counted and reported
	Log     *slog.Logger
}

// Route is a set of requests that have a budget of their own.
type Route struct {
	Pattern string         // as of http.ServeMux; a request is of the most specific one that it matches
	Limits  []window.Limit // none: not limited
	Key     httplimit.Key  // who is limited
}

// Outage is what becomes of requests while Redis does not answer.
type Outage string

// What to do in an outage.
const (
	Local  Outage = "local"  // each instance decides in its memory
	Open   Outage = "open"   // they are admitted
	Closed Outage = "closed" // they are refused, with the status 503
)

// Proxy limits requests, and hands on those that it admits. It is safe for concurrent use.
type Proxy struct {
	Page http.Handler // what Admin serves at /, beside its own paths; nil: nothing. Set it before Serve

	cfg     Config
	mux     *http.ServeMux          // finds patterns; it serves nothing
	routes  map[string]http.Handler // by pattern
	servers map[string]http.Handler // the same without limits
	budgets []*budget               // of the routes with limits
	metrics *metrics
	over    *over
	history history
	quiet   *window.Limiter // how often each error is told of

	draining atomic.Bool // no more requests are taken

	grace time.Duration // for requests that are under way at the end
}

// New checks the configuration, and returns a proxy. Until Config.Redis has connected, the proxy does
// what Outage says.
func New(cfg Config) (p *Proxy, err error) {
	p = &Proxy{cfg: cfg, mux: http.NewServeMux(), routes: map[string]http.Handler{}, servers: map[string]http.Handler{}, over: newOver(), grace: 30 * time.Second}
	p.metrics = newMetrics(cfg.Shadow, p.connected)
	if p.quiet, err = window.NewLocal(window.Config{Name: "log", Limits: []window.Limit{window.Every(time.Second)}}); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(cfg.Routes, func(rt Route) bool { return rt.Pattern == rest }) {
		p.cfg.Routes = append(slices.Clip(cfg.Routes), Route{Pattern: rest})
	}
	forward := newTransport()
	for _, rt := range p.cfg.Routes {
		if err := p.add(rt, p.forwarder(rt.Pattern, forward)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// rest is the pattern of requests that match no other.
const rest = "/"

// add makes a route of the requests to a server.
func (p *Proxy) add(rt Route, server http.Handler) error {
	if err := p.register(rt.Pattern); err != nil {
		return err
	}
	p.metrics.begin(rt, p.cfg.Redis != nil)
	p.servers[rt.Pattern] = server
	if len(rt.Limits) == 0 {
		p.routes[rt.Pattern] = p.unlimited(rt.Pattern, server)
		return nil
	}
	b, err := p.newBudget(rt)
	if err != nil {
		return err
	}
	limit, err := httplimit.New(httplimit.Config{Limiter: b, Key: b.key, Outage: p.cfg.Outage.ofHTTP(), Shadow: p.cfg.Shadow, Log: p.cfg.Log.With("route", rt.Pattern)})
	if err != nil {
		return err
	}
	p.budgets = append(p.budgets, b)
	p.routes[rt.Pattern] = limit.Wrap(server)
	return nil
}

// unlimited counts requests, and hands them on.
func (p *Proxy) unlimited(pattern string, server http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.metrics.count(pattern, admitted, byNobody)
		server.ServeHTTP(w, r)
	})
}

// ofHTTP is what the middleware does where not even memory decides.
func (o Outage) ofHTTP() httplimit.Outage {
	if o == Open {
		return httplimit.Open
	}
	return httplimit.Closed
}

// connected reports whether there was a connection to Redis.
func (p *Proxy) connected() bool { return p.cfg.Redis != nil && p.cfg.Redis.Wait(ended) == nil }

// ended is a context that has ended: to ask a Connection without waiting.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// ServeHTTP hands a request on, or refuses it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		http.Error(w, "This is no proxy for CONNECT.", http.StatusMethodNotAllowed)
		return
	}
	pattern, ok := p.route(r)
	if ok {
		p.routes[pattern].ServeHTTP(w, r)
		return
	}
	p.ambiguous(w, r, pattern)
}

// ambiguous refuses a request that can be read in two ways. In Shadow it reaches the server, unless its path leaves that of --to.
func (p *Proxy) ambiguous(w http.ResponseWriter, r *http.Request, pattern string) {
	p.metrics.count("", ambiguous, byNobody)
	if server := p.servers[pattern]; p.cfg.Shadow && server != nil {
		server.ServeHTTP(w, r)
		return
	}
	http.Error(w, "The request can be read in two ways; write its path without needless slashes, dots and percent signs, and its method in capitals.", http.StatusBadRequest)
}
