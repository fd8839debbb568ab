package proxy

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/page"
)

// Admin returns the handler for operators. It serves Page, /healthz, /metrics and /over. Page and
// /over show who is limited, so other sites in a browser on this machine cannot read them.
func (p *Proxy) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", p.healthz)
	mux.Handle("GET /over", page.Guard(http.HandlerFunc(p.serveOver)))
	if p.Page != nil {
		mux.Handle("/", p.Page)
	}
	return mux
}

// health is the response of /healthz.
type health struct {
	Status string `json:"status"` // ok, or draining with the status 503
	Redis  string `json:"redis"`  // none, connecting, up, or out by the last requests
}

func (p *Proxy) healthz(w http.ResponseWriter, _ *http.Request) {
	h, status := health{Status: "ok", Redis: p.redisState()}, http.StatusOK
	if p.draining.Load() {
		h.Status, status = "draining", http.StatusServiceUnavailable
	}
	writeJSON(w, status, h)
}

// redisState returns what /healthz reports about Redis.
func (p *Proxy) redisState() string {
	switch {
	case p.cfg.Redis == nil:
		return "none"
	case !p.connected():
		return "connecting"
	case slices.ContainsFunc(p.budgets, func(b *budget) bool { return b.outages.Load() > 0 }):
		return "out"
	}
	return "up"
}

// denials is the response of /over.
type denials struct {
	Shadow bool           `json:"shadow,omitempty"` // the requests only would have been denied
	Denied int64          `json:"denied"`           // denied requests so far
	Events int            `json:"events"`           // events denied in the last hour; at most 1000
	Most   []deniedReport `json:"most"`             // the events with the most denials, at most 20
}

// deniedReport reports how far an event is over its limit.
type deniedReport struct {
	Event      string    `json:"event"`            // as for slidegate inspect
	Denied     int64     `json:"denied"`           // requests since Since
	Unsure     int64     `json:"unsure,omitempty"` // the most of them that can belong to other events
	Limit      string    `json:"limit"`            // the limit that denied the last request
	Times      float64   `json:"times_over"`       // as returned by deniedEvent.times
	Since      time.Time `json:"since"`
	Last       time.Time `json:"last"`
	RetryAfter float64   `json:"retry_after_s"` // seconds from the last denial until a request is allowed
}

func (p *Proxy) serveOver(w http.ResponseWriter, _ *http.Request) {
	p.topDenied.forget(time.Now())
	d := p.topDenied.denials()
	d.Shadow = p.cfg.Shadow
	writeJSON(w, http.StatusOK, d)
}

func (o *topDenied) denials() denials {
	top, total, events := o.most()
	d := denials{Denied: total, Events: events, Most: make([]deniedReport, len(top))}
	for i, e := range top {
		d.Most[i] = e.report()
	}
	return d
}

func (e deniedEvent) report() deniedReport {
	return deniedReport{
		Event: e.event, Denied: e.denied, Unsure: e.unsure, Limit: e.usage.Limit.Label(), Times: math.Floor(e.times()*100) / 100,
		Since: e.since.UTC(), Last: e.last.UTC(), RetryAfter: e.usage.RetryAfter.Seconds(),
	}
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	_ = enc.Encode(body) // the client may be gone
}
