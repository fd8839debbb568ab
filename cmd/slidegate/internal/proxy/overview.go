package proxy

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/page"
	"github.com/slidegate/slidegate/mostdenied"
	"github.com/slidegate/slidegate/window"
)

// overview holds the content of the operators' page.
type overview struct {
	At      time.Time       `json:"at"`
	Redis   string          `json:"redis"` // as in /healthz
	Shadow  bool            `json:"shadow"`
	Minutes [60]tally       `json:"minutes"` // oldest first
	Routes  []traffic       `json:"routes"`  // in the last hour
	Most    []overviewEvent `json:"most"`    // denied events, as in /over
	Outages []outage        `json:"outages"` // newest first
}

// traffic counts the requests of a route.
type traffic struct {
	Pattern string `json:"pattern"` // empty for ambiguous requests
	Limits  string `json:"limits"`
	tally
}

// overviewEvent represents a denied event with a link to it.
type overviewEvent struct {
	mostdenied.Entry
	Shown string `json:"shown"`          // the event in printable form
	Link  string `json:"link,omitempty"` // the query string that shows the event; empty if the event is hidden
}

// Overview describes the last hour of this instance. The page encodes the result as JSON.
func (p *Proxy) Overview() any {
	now := time.Now()
	minutes, routes := p.metrics.hour.sums(now)
	o := overview{
		At: now.UTC(), Redis: p.redisState(), Shadow: p.cfg.Shadow, Minutes: minutes,
		Routes: []traffic{}, Most: []overviewEvent{}, Outages: p.history.newestFirst(),
	}
	for _, rt := range p.cfg.Routes {
		o.Routes = append(o.Routes, traffic{rt.Pattern, texts(rt.Limits), routes[rt.Pattern]})
	}
	if t, some := routes[""]; some {
		o.Routes = append(o.Routes, traffic{tally: t})
	}
	for _, e := range p.denied.Report().Most {
		o.Most = append(o.Most, overviewEvent{e, logs.Shown(e.Event), p.link(e)})
	}
	return o
}

// link returns the query string that shows the event of e, or "" if only a hash of the event is
// known.
func (*Proxy) link(e mostdenied.Entry) string {
	if e.Hashed {
		return ""
	}
	return page.Query{Event: e.Event}.Encode()
}

// Limiter returns the limiter that decides on the given event. An event begins with its route's
// pattern. If no route with limits has that pattern, Limiter returns nil.
func (p *Proxy) Limiter(event string) *window.Limiter {
	var l *window.Limiter
	longest := -1
	for _, b := range p.budgets {
		if strings.HasPrefix(event, b.Pattern+" ") && len(b.Pattern) > longest {
			l, longest = b.limiter, len(b.Pattern)
		}
	}
	return l
}

// texts formats limits as text, separated by commas.
func texts(limits []window.Limit) string {
	all := make([]string, len(limits))
	for i, l := range limits {
		all[i] = l.String()
	}
	return strings.Join(all, ", ")
}

// mostOutages is how many outages history keeps across all routes.
const mostOutages = 20

// outage represents a period in which Redis, or a part of a cluster, did not answer a route's
// requests.
type outage struct {
	Route string     `json:"route"`
	Began time.Time  `json:"began"`
	Ended *time.Time `json:"ended,omitempty"` // nil while the outage continues
}

// history holds the most recent outages, oldest first.
type history struct {
	mu      sync.Mutex
	outages []outage
}

func (h *history) began(route string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.outages = append(h.outages, outage{Route: route, Began: now.UTC()})
	h.outages = h.outages[max(0, len(h.outages)-mostOutages):]
}

// ended records that a route's last outage has ended.
func (h *history) ended(route string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(h.outages) - 1; i >= 0; i-- {
		if o := &h.outages[i]; o.Route == route {
			end := now.UTC()
			o.Ended = &end
			return
		}
	}
}

// newestFirst returns the outages in the order in which the page shows them.
func (h *history) newestFirst() []outage {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := append([]outage{}, h.outages...)
	slices.Reverse(all)
	return all
}
