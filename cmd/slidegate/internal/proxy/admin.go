package proxy

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/page"
	"github.com/slidegate/slidegate/mostdenied"
)

// Admin returns the handler for operators. It serves Page, /healthz, /metrics and /over. Page and
// /over show who is being limited, so other sites must not be able to read them through a browser
// on this machine.
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
	Status string `json:"status"` // ok, or draining with HTTP status 503
	Redis  string `json:"redis"`  // none, connecting, up or out, as of the last requests
}

func (p *Proxy) healthz(w http.ResponseWriter, _ *http.Request) {
	h, status := health{Status: "ok", Redis: p.redisState()}, http.StatusOK
	if p.draining.Load() {
		h.Status, status = "draining", http.StatusServiceUnavailable
	}
	writeJSON(w, status, h)
}

// redisState returns the state of Redis for /healthz.
func (p *Proxy) redisState() string {
	switch {
	case p.cfg.Redis == nil:
		return "none"
	case !p.connected():
		return "connecting"
	case slices.ContainsFunc(p.budgets, func(b *budget) bool { return b.out.Load() }):
		return "out"
	}
	return "up"
}

// denials is the response of /over.
type denials struct {
	Shadow bool `json:"shadow,omitempty"` // the requests would have been denied, but were forwarded
	mostdenied.Report
}

func (p *Proxy) serveOver(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, denials{p.cfg.Shadow, p.denied.Report()})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	_ = enc.Encode(body) // the client may be gone
}
