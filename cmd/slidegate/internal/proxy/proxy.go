// Package proxy is a rate-limiting reverse proxy based on package httplimit. Each route has its own
// limits, and instances that use the same Redis share their budgets.
//
// ServeHTTP finds the route of a request. The route's middleware consults the route's budget. If
// the budget allows the request, the proxy forwards it to the server.
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
	"github.com/slidegate/slidegate/mostdenied"
	"github.com/slidegate/slidegate/window"
)

// Config configures a Proxy.
type Config struct {
	To      *url.URL           // the server; its path is prepended to the paths of requests
	Routes  []Route            // each with a different Pattern; requests that match none are not limited
	Behind  []netip.Prefix     // trusted proxies, whose X-Forwarded-For, -Host and -Proto are passed to the server
	Name    string             // of the limiters, as used in their keys
	Secret  []byte             // hides events in keys, logs and pages
	Redis   *window.Connection // stores the budgets; nil means in memory
	Timeout time.Duration      // how long a request may wait for Redis
	Outage  httplimit.Outage   // what to do while Redis does not answer: Local, httplimit.FailOpen or httplimit.FailClosed
	Shadow  bool               // every request reaches the server; denials are only counted and logged
	Log     *slog.Logger
}

// Route is a set of requests that have their own limits.
type Route struct {
	Pattern string         // as in http.ServeMux; the most specific pattern that matches a request applies
	Limits  []window.Limit // empty means not limited
	Key     httplimit.Key  // who is limited
}

// Local is a value for Config.Outage, in addition to httplimit.FailOpen and httplimit.FailClosed.
// It makes each instance decide in its own memory.
const Local httplimit.Outage = "local"

// Proxy limits requests and forwards those that it allows. It is safe for concurrent use.
type Proxy struct {
	Page http.Handler // Admin serves it at /, in addition to its own paths; nil means none; set it before calling Serve

	cfg        Config
	mux        *http.ServeMux          // only finds patterns; it serves nothing
	routes     map[string]http.Handler // keyed by pattern
	forwarders map[string]http.Handler // the same, but without limits
	budgets    []*budget               // of those routes that have limits
	metrics    *metrics
	denied     *mostdenied.List
	history    history
	logLimiter *window.Limiter // limits how often each error is logged

	draining atomic.Bool // the proxy no longer accepts requests

	grace time.Duration // for requests in progress at shutdown
}

// New validates cfg and returns a proxy. Until Config.Redis has connected, the proxy behaves as in
// an outage.
func New(cfg Config) (p *Proxy, err error) {
	p = &Proxy{
		cfg: cfg, mux: http.NewServeMux(), denied: mostdenied.New(), grace: 30 * time.Second,
		routes: map[string]http.Handler{}, forwarders: map[string]http.Handler{},
	}
	p.metrics = newMetrics(cfg.Shadow, p.connected)
	if p.logLimiter, err = window.NewLocal(window.Config{Name: "log", Limits: []window.Limit{window.Every(time.Second)}}); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(cfg.Routes, func(rt Route) bool { return rt.Pattern == catchAll }) {
		p.cfg.Routes = append(slices.Clip(cfg.Routes), Route{Pattern: catchAll})
	}
	forward := newTransport()
	for _, rt := range p.cfg.Routes {
		if err := p.add(rt, p.forwarder(rt.Pattern, forward)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// catchAll is the pattern for requests that match no other pattern.
const catchAll = "/"

// add adds a route whose requests are forwarded to server.
func (p *Proxy) add(rt Route, server http.Handler) error {
	if err := p.register(rt.Pattern); err != nil {
		return err
	}
	p.metrics.initRoute(rt, p.cfg.Redis != nil)
	p.forwarders[rt.Pattern] = server
	if len(rt.Limits) == 0 {
		p.routes[rt.Pattern] = p.unlimited(rt.Pattern, server)
		return nil
	}
	b, err := p.newBudget(rt)
	if err != nil {
		return err
	}
	limit, err := httplimit.New(httplimit.Config{
		Limiter: b, Key: b.key, Outage: p.cfg.middlewareOutage(), Shadow: p.cfg.Shadow, Log: p.cfg.Log.With("route", rt.Pattern),
	})
	if err != nil {
		return err
	}
	p.budgets = append(p.budgets, b)
	p.routes[rt.Pattern] = limit.Wrap(server)
	return nil
}

// unlimited returns a handler that counts requests and forwards them.
func (p *Proxy) unlimited(pattern string, server http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.metrics.count(pattern, allowed, byNobody)
		server.ServeHTTP(w, r)
	})
}

// middlewareOutage returns what the middleware does if not even memory can decide.
func (cfg Config) middlewareOutage() httplimit.Outage {
	if cfg.Outage == httplimit.FailOpen {
		return httplimit.FailOpen
	}
	return httplimit.FailClosed
}

// connected reports whether Redis has been connected.
func (p *Proxy) connected() bool { return p.cfg.Redis != nil && p.cfg.Redis.Wait(canceled) == nil }

// canceled is a context that is already done. It serves to query a Connection without waiting.
var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// ServeHTTP forwards the request or refuses it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		http.Error(w, "This proxy does not support CONNECT.", http.StatusMethodNotAllowed)
		return
	}
	pattern, ok := p.route(r)
	if ok {
		p.routes[pattern].ServeHTTP(w, r)
		return
	}
	p.ambiguous(w, r, pattern)
}

// ambiguous refuses a request that servers can interpret in two ways. In shadow mode, it forwards
// the request, unless that would leave the path of --to.
func (p *Proxy) ambiguous(w http.ResponseWriter, r *http.Request, pattern string) {
	p.metrics.count("", ambiguous, byNobody)
	if server := p.forwarders[pattern]; p.cfg.Shadow && server != nil {
		server.ServeHTTP(w, r)
		return
	}
	http.Error(w, "The request can be read in two ways; write its path without needless slashes, dots, semicolons and percent signs, and its method in capitals.", http.StatusBadRequest)
}
