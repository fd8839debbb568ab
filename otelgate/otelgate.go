// Package otelgate reports to OpenTelemetry what rate limiters of window, ar1 and login do: metrics
// of all decisions, and an event on the caller's span for each.
//
//	observe, err := otelgate.New(otel.GetMeterProvider())
//	...
//	limiter, err := window.New(client, window.Config{Name: "api", Limits: limits, Observe: observe})
//
// Metrics and events name the limiter, never the event that is limited. docs/monitoring.md
// lists them, and has a Grafana dashboard and Prometheus alerts for them.
package otelgate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/slidegate/slidegate/window"
)

// New returns a function for Config.Observe of window, ar1 and login. One function can serve all
// limiters of a program: their names tell them apart. It is safe for concurrent use.
//
// It keeps a few attribute sets for each Config.Name, and never forgets them. So a Name should not
// come from a customer: use With for limits of their own.
//
// An error says that provider is nil, or that it refuses an instrument.
func New(provider metric.MeterProvider) (func(context.Context, window.Observation), error) {
	if provider == nil {
		return nil, errors.New("slidegate: otelgate has no MeterProvider; use otel.GetMeterProvider()")
	}
	o, err := newObserver(provider.Meter("github.com/slidegate/slidegate/otelgate"))
	if err != nil {
		return nil, err
	}
	return o.observe, nil
}

// An observer records observations.
type observer struct {
	duration metric.Float64Histogram // of a decision, from call to answer
	redis    metric.Float64Histogram // of that, the time in Redis
	batch    metric.Int64Histogram
	merged   metric.Int64Counter
	full     metric.Int64Counter
	outages  metric.Int64Counter
	active   metric.Int64UpDownCounter
	cacheOff metric.Int64Counter

	mu    sync.Mutex // held while known is replaced
	known atomic.Pointer[map[series]*options]
}

func newObserver(meter metric.Meter) (*observer, error) {
	m := maker{meter: meter}
	o := &observer{
		duration: m.histogram("decision.duration", "Duration of decisions, from call to answer."),
		redis:    m.histogram("redis.duration", "Time of decisions in Redis, from sending to reply, of the whole pipeline."),
		batch:    m.sizes("batch.size", "Requests that were sent to Redis as one pipeline, as each decision saw it."),
		merged:   m.counter("decision.merged", "{decision}", "Decisions that shared a script call with others on the same event."),
		full:     m.counter("decision.full", "{decision}", "Decisions about new events for which memory had no room."),
		outages:  m.counter("outages", "{outage}", "Outages of Redis, or of a slot range of a cluster, that began."),
		active:   m.upDownCounter("active_outages", "{outage}", "Outages that last: at most 1 for a server, 64 for a cluster."),
		cacheOff: m.counter("denial_cache.disabled", "{limiter}", "Limiters whose client keeps no values, so that DenialCache is of no use."),
	}
	o.known.Store(&map[series]*options{})
	return o, m.err
}

// observe is what New returns.
func (o *observer) observe(ctx context.Context, seen window.Observation) {
	s := o.options(ctx, seriesOf(&seen))
	switch seen.Kind {
	case window.OutageBegan:
		o.outages.Add(ctx, 1, s.add...)
		o.active.Add(ctx, 1, s.add...)
	case window.OutageEnded:
		o.active.Add(ctx, -1, s.add...)
	case window.CacheOff:
		o.cacheOff.Add(ctx, 1, s.add...)
	default: // a decision, or why there is none
		o.decided(ctx, &seen, s)
		addEvent(ctx, &seen, s)
	}
}

// decided records how a call ended.
func (o *observer) decided(ctx context.Context, seen *window.Observation, s *options) {
	o.duration.Record(ctx, seen.Took.Seconds(), s.recordDecision...)
	if seen.InRedis > 0 {
		o.redis.Record(ctx, seen.InRedis.Seconds(), s.record...)
		o.batch.Record(ctx, int64(seen.Batch), s.record...)
	}
	if seen.Merged {
		o.merged.Add(ctx, 1, s.add...)
	}
	if seen.Full {
		o.full.Add(ctx, 1, s.add...)
	}
}

// options returns the options of a series. They are made once.
func (o *observer) options(ctx context.Context, of series) *options {
	if s := (*o.known.Load())[of]; s != nil {
		return s
	}
	return o.learn(ctx, of)
}

// learn makes the options of a series, unless another goroutine has made them. The counters of a
// new limiter start at zero, so that Prometheus sees their first increment.
func (o *observer) learn(ctx context.Context, of series) *options {
	o.mu.Lock()
	defer o.mu.Unlock()
	all, isNew := map[series]*options{}, true
	for known, s := range *o.known.Load() {
		all[known] = s
		isNew = isNew && known.limiter != of.limiter
	}
	if all[of] == nil {
		all[of] = newOptions(of)
	}
	if isNew {
		o.start(ctx, all[of])
	}
	o.known.Store(&all)
	return all[of]
}

// start lets the counters of a limiter start at zero.
func (o *observer) start(ctx context.Context, s *options) {
	for _, counter := range []interface {
		Add(context.Context, int64, ...metric.AddOption)
	}{o.merged, o.full, o.outages, o.active, o.cacheOff} {
		counter.Add(ctx, 0, s.add...)
	}
}

// options are the attributes of a series, ready for the API. To make them takes more time than to
// record.
type options struct {
	attributes     []attribute.KeyValue  // those of a decision
	recordDecision []metric.RecordOption // with these
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
