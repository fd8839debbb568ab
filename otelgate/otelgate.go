// Package otelgate exports OpenTelemetry metrics and traces of Slidegate's distributed rate
// limiters. It records metrics of all decisions, and adds an event for each decision to the
// caller's span. It works with the limiters of packages window, ar1, pace and inflight, and the
// login guard of package login.
//
//	observe, err := otelgate.New(otel.GetMeterProvider())
//	if err != nil {
//		return err
//	}
//	conn := window.Dial("redis://127.0.0.1:6379")
//	limiter, err := window.New(conn, window.Config{
//		Name: "api", Limits: []window.Limit{window.PerHour(100)}, Observe: observe,
//	})
//
// The metrics count allowed and denied requests, Redis outages and uses of the fallback. They also
// measure the latency of decisions and of Redis, and batch sizes. InFlight adds metrics of how many
// units a process holds in limiters of package inflight, and how many calls wait for units. Metrics
// and span events name the limiter, but never the event key. So cardinality stays low, and they do
// not identify users.
//
// docs/monitoring.md lists all metrics and attributes. It also describes a Grafana dashboard and
// Prometheus alerts.
package otelgate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/window"
)

// New returns a function to set as Config.Observe in packages window, ar1, pace, inflight and
// login. All limiters of a program can share one function, because each observation names its
// limiter. The function is safe for concurrent use.
//
// The function keeps a few attribute sets for each Config.Name and each plan (see WithPlan), and
// never drops them. So do not create a Name or a plan for each customer: use With to give customers
// their own limits.
//
// New returns an error if provider is nil, or if provider rejects an instrument.
func New(provider metric.MeterProvider) (func(context.Context, window.Observation), error) {
	meter, err := meterOf(provider)
	if err != nil {
		return nil, err
	}
	m := maker{meter: meter}
	o := &observer{
		duration: m.histogram("decision.duration", "Duration of decisions, from the call to its return."),
		redis:    m.histogram("redis.duration", "Time that decisions spent in Redis: from sending the pipeline to its last reply."),
		batch:    m.sizes("batch.size", "Requests in the pipeline that carried a decision to Redis, recorded for each decision."),
		merged:   m.counter("decision.merged", "{decision}", "Decisions that shared a script call with others on the same event."),
		full:     m.counter("decision.full", "{decision}", "Decisions on new event keys for which memory had no room."),
		outages:  m.counter("outages", "{outage}", "Outages of Redis, or of a part of a cluster, that have started."),
		active:   m.upDownCounter("active_outages", "{outage}", "Current outages: 1 for a limiter that gets no reply from Redis, or from a part of a cluster."),
		unread:   m.upDownCounter("overrides.unread", "{limiter}", "Limiters that cannot read their overrides: 1 while reads fail. Changes go unnoticed."),
		lost:     m.counter("lease.lost", "{lease}", "Leases that ended before their holders released them."),
	}
	o.known.Store(&map[series]*options{})
	if m.err != nil {
		return nil, m.err
	}
	return o.observe, nil
}

// meterOf returns the meter for all metrics of this package.
func meterOf(provider metric.MeterProvider) (metric.Meter, error) {
	if provider == nil {
		return nil, errors.New("slidegate: otelgate has no MeterProvider; use otel.GetMeterProvider()")
	}
	return provider.Meter("github.com/slidegate/slidegate/otelgate"), nil
}

// An observer records observations as metrics and span events.
type observer struct {
	duration metric.Float64Histogram // from a call to its decision
	redis    metric.Float64Histogram // the part of the duration spent in Redis
	batch    metric.Int64Histogram
	merged   metric.Int64Counter
	full     metric.Int64Counter
	outages  metric.Int64Counter
	active   metric.Int64UpDownCounter
	unread   metric.Int64UpDownCounter
	lost     metric.Int64Counter

	mu    sync.Mutex // held while known is replaced
	known atomic.Pointer[map[series]*options]
}

// observe records one observation. It is the function that New returns.
func (o *observer) observe(ctx context.Context, seen window.Observation) {
	s := o.options(ctx, seriesOf(&seen))
	switch seen.Kind {
	case window.KindOutageBegan:
		o.outages.Add(ctx, 1, s.add...)
		o.active.Add(ctx, 1, s.add...)
	case window.KindOutageEnded:
		o.active.Add(ctx, -1, s.add...)
	case window.KindOverridesUnread:
		o.unread.Add(ctx, 1, s.add...)
	case window.KindOverridesRead:
		o.unread.Add(ctx, -1, s.add...)
	case inflight.KindLost, inflight.KindOverdue:
		o.lost.Add(ctx, 1, lostBy(seen.Limiter, seen.Kind))
	default: // a decision, or an error instead of a decision
		o.decided(ctx, &seen, s)
		addEvent(ctx, &seen, s)
	}
}

// decided records the metrics of a decision, or of an error.
func (o *observer) decided(ctx context.Context, seen *window.Observation, s *options) {
	o.duration.Record(ctx, seen.Took.Seconds(), s.recordDecision...)
	if seen.Trace.InRedis > 0 {
		o.redis.Record(ctx, seen.Trace.InRedis.Seconds(), s.record...)
		o.batch.Record(ctx, int64(seen.Trace.Batch), s.record...)
	}
	if seen.Trace.Merged {
		o.merged.Add(ctx, 1, s.add...)
	}
	if seen.Trace.Full {
		o.full.Add(ctx, 1, s.add...)
	}
}

// options returns the options for a series. It creates them on first use, and for a new limiter it
// also starts the counters at zero, so that Prometheus sees the first increment.
func (o *observer) options(ctx context.Context, of series) *options {
	if s := (*o.known.Load())[of]; s != nil {
		return s
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	all, isNew := map[series]*options{}, true
	for known, s := range *o.known.Load() {
		all[known] = s
		isNew = isNew && known.limiter != of.limiter
	}
	s := all[of]
	if s == nil { // otherwise another goroutine was first
		s = newOptions(of)
		all[of] = s
	}
	if isNew {
		for _, counter := range []interface {
			Add(context.Context, int64, ...metric.AddOption)
		}{o.merged, o.full, o.outages, o.active, o.unread} {
			counter.Add(ctx, 0, s.add...)
		}
		for _, kind := range []window.Kind{inflight.KindLost, inflight.KindOverdue} {
			o.lost.Add(ctx, 0, lostBy(of.limiter, kind))
		}
	}
	o.known.Store(&all)
	return s
}

// lostBy returns the attributes for leases that a limiter has lost. Losses are rare, so the
// attributes are not cached.
func lostBy(limiter string, kind window.Kind) metric.AddOption {
	return metric.WithAttributeSet(attribute.NewSet(limiterName.String(limiter), leaseOutcome.String(string(kind))))
}

// options holds the attributes of a series in the form that the API takes. They are cached because
// creating them takes longer than recording a value.
type options struct {
	attributes     []attribute.KeyValue  // of a span event
	recordDecision []metric.RecordOption // with all attributes
	record         []metric.RecordOption // with the limiter only
	add            []metric.AddOption    // with the limiter only
}

func newOptions(of series) *options {
	all := attribute.NewSet(of.attributes()...)
	decision := metric.WithAttributeSet(all)
	limiter := metric.WithAttributeSet(attribute.NewSet(limiterName.String(of.limiter)))
	return &options{
		attributes: all.ToSlice(), recordDecision: []metric.RecordOption{decision},
		record: []metric.RecordOption{limiter}, add: []metric.AddOption{limiter},
	}
}
