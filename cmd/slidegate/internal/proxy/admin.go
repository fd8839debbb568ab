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

// Admin serves Page, /healthz, /metrics and /over, for operators. Page and /over show who is limited,
// so sites that a browser of this machine visits cannot read them.
func (p *Proxy) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", p.healthz)
	mux.Handle("GET /over", page.Guard(http.HandlerFunc(p.tellOver)))
	if p.Page != nil {
		mux.Handle("/", p.Page)
	}
	return mux
}

// health is the answer of /healthz.
type health struct {
	Status string `json:"status"` // ok, or draining with the status 503
	Redis  string `json:"redis"`  // none, connecting, up or out; the last requests saw whether it is out
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

// denials is the answer of /over.
type denials struct {
	Shadow bool       `json:"shadow,omitempty"` // the requests would have been denied, and reached the server
	Denied int64      `json:"denied"`           // requests so far
	Events int        `json:"events"`           // that were denied in the last hour; at most 1000
	Most   []judgment `json:"most"`             // those with the most denials, at most 20
}

// judgment is how far an event is over its limit.
type judgment struct {
	Event      string    `json:"event"`            // as for slidegate inspect
	Denied     int64     `json:"denied"`           // requests since Since
	Unsure     int64     `json:"unsure,omitempty"` // of these, at most so many are of other events
	Limit      string    `json:"limit"`            // the one that denied the last of them
	Times      float64   `json:"times_over"`       // denials as a multiple of what the limit admits in that time, or in one of its windows
	Since      time.Time `json:"since"`
	Last       time.Time `json:"last"`
	RetryAfter float64   `json:"retry_after_s"` // seconds from the last denial to when it would be admitted
}

func (p *Proxy) tellOver(w http.ResponseWriter, _ *http.Request) {
	p.over.forget(time.Now())
	d := p.over.denials()
	d.Shadow = p.cfg.Shadow
	writeJSON(w, http.StatusOK, d)
}

func (o *over) denials() denials {
	top, total, events := o.most()
	d := denials{Denied: total, Events: events, Most: make([]judgment, len(top))}
	for i, e := range top {
		d.Most[i] = e.judgment()
	}
	return d
}

func (e offender) judgment() judgment {
	return judgment{
		Event: e.event, Denied: e.denied, Unsure: e.unsure, Limit: e.usage.Limit.String(), Times: math.Floor(e.times()*100) / 100,
		Since: e.since.UTC(), Last: e.last.UTC(), RetryAfter: e.usage.RetryAfter.Seconds(),
	}
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	_ = enc.Encode(body) // whoever asked may be gone
}
