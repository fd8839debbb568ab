package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/slidegate/slidegate/window"
)

// The outcomes of requests, used as labels. Each request has exactly one. In shadow mode, it is the
// outcome that the request would have without shadow mode.
const (
	allowed   = "allowed"
	denied    = "denied"    // over a limit: 429
	refused   = "refused"   // no decision was possible: 503
	noKey     = "keyless"   // the request has no key, so the client is unknown: 400
	ambiguous = "ambiguous" // servers can read its path or method in two ways: 400
	gone      = "gone"      // the client disconnected before a decision was made
)

// The values of the label "by", which says who decided.
const (
	byRedis  = "redis"
	byMemory = "memory"
	byNobody = "nobody"
)

// metrics holds what /metrics exports.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	denials   *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	outages   *prometheus.CounterVec
	undecided *prometheus.CounterVec
	failures  *prometheus.CounterVec

	hour hourlyTally // for the page
}

// newMetrics returns metrics without routes. At each scrape, they call connected, which reports
// whether Redis has ever been connected.
func newMetrics(inShadow bool, connected func() bool) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "slidegate", Name: name, Help: help}, labels)
	}
	m := &metrics{
		registry:  prometheus.NewRegistry(),
		requests:  counter("requests_total", "Requests, each counted once, except CONNECT and OPTIONS *, by outcome (allowed, denied, refused, keyless, ambiguous, gone), and who decided (redis, memory, nobody).", "route", "decision", "by"),
		denials:   counter("denials_total", "Denied requests by the limit that denied them; several limits can deny the same request.", "route", "limit"),
		outages:   counter("outages_total", "How often Redis, or a part of a cluster, stopped answering, as the budget of a route saw it.", "route"),
		undecided: counter("redis_failures_total", "Requests on which Redis did not decide, by reason, such as timeout or noperm.", "route", "error_type"),
		failures:  counter("server_failures_total", "Allowed requests that the server did not answer: 502.", "route"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "slidegate", Name: "redis_seconds", Help: "Time from the call to Redis to its reply (allowed, denied) or its failure (outage, uncertain). A denial without Redis takes microseconds.",
			Buckets: []float64{.00005, .0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
		}, []string{"route", "answer"}),
	}
	connectedGauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slidegate", Name: "redis_connected", Help: "1 once there was a connection to Redis.",
	}, func() float64 {
		if connected() {
			return 1
		}
		return 0
	})
	shadow := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "slidegate", Name: "shadow", Help: "1 with --shadow: every request reaches the server, and the other metrics count what would have happened to it."})
	if inShadow {
		shadow.Set(1)
	}
	m.registry.MustRegister(shadow, m.requests, m.denials, m.seconds, m.outages, m.undecided, m.failures, connectedGauge,
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsGC)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	return m
}

// initRoute creates the metrics of a route, so that /metrics shows them even before the first
// request.
func (m *metrics) initRoute(rt Route, shared bool) {
	m.failures.WithLabelValues(rt.Pattern)
	if len(rt.Limits) == 0 {
		m.requests.WithLabelValues(rt.Pattern, allowed, byNobody)
		return
	}
	by := byMemory
	if shared {
		by = byRedis
		m.outages.WithLabelValues(rt.Pattern)
		m.undecided.WithLabelValues(rt.Pattern, string(window.ReasonTimeout)) // the most frequent reason
		m.seconds.WithLabelValues(rt.Pattern, string(window.KindAllowed))
		m.seconds.WithLabelValues(rt.Pattern, string(window.KindDenied))
	}
	m.requests.WithLabelValues(rt.Pattern, allowed, by)
	m.requests.WithLabelValues(rt.Pattern, denied, by)
	for _, l := range rt.Limits {
		m.denials.WithLabelValues(rt.Pattern, l.Label())
	}
}

// registerOutages registers a route's gauge of outages. now returns 1 in an outage, and 0 otherwise.
func (m *metrics) registerOutages(pattern string, now func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slidegate", Name: "outages", ConstLabels: prometheus.Labels{"route": pattern},
		Help: "1 while Redis, or a part of a cluster, does not answer, and until the first connection; otherwise 0.",
	}, now))
}

// count counts a request.
func (m *metrics) count(pattern, decision, by string) {
	m.requests.WithLabelValues(pattern, decision, by).Inc()
	m.hour.add(pattern, decision, time.Now())
}

// deny counts each limit that denied a request.
func (m *metrics) deny(pattern string, d window.Decision) {
	for _, u := range d.Usage {
		if u.RetryAfter > 0 {
			m.denials.WithLabelValues(pattern, u.Limit.Label()).Inc()
		}
	}
}

// observe counts outages, and records how long Redis took.
func (m *metrics) observe(pattern string, o window.Observation) {
	switch o.Kind {
	case window.KindOutageBegan:
		m.outages.WithLabelValues(pattern).Inc()
	case window.KindAllowed, window.KindDenied, window.KindOutage, window.KindUncertain:
		m.seconds.WithLabelValues(pattern, string(o.Kind)).Observe(o.Took.Seconds())
	case window.KindOutageEnded, window.KindRefused, window.KindPeeked, window.KindOverridesUnread, window.KindOverridesRead: // does not concern Redis
	}
}

// countFailure counts a request on which Redis did not decide. It does so even before the first
// connection, which may fail because of a wrong password.
func (m *metrics) countFailure(pattern string, o window.Observation) {
	if reason := window.ReasonOf(o.Err); reason != "" && o.Units > 0 {
		m.undecided.WithLabelValues(pattern, string(reason)).Inc()
	}
}
