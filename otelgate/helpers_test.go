package otelgate_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/otelgate"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func must[T any](v T, err error) T { return redistest.Must(v, err) }

func parsed(texts ...string) (all []window.Limit) {
	for _, text := range texts {
		all = append(all, must(window.ParseLimit(text)))
	}
	return all
}

// collector reads the metrics that the SDK has collected.
type collector struct {
	observe  func(context.Context, window.Observation)
	provider *metric.MeterProvider
	reader   *metric.ManualReader
}

func newCollector() collector {
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	return collector{must(otelgate.New(provider)), provider, reader}
}

// metrics returns the collected metrics by name.
func (c collector) metrics(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := c.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	byName := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// durations returns the data points of the named histogram of durations.
func (c collector) durations(t *testing.T, name string) []metricdata.HistogramDataPoint[float64] {
	t.Helper()
	h, isHistogram := c.metrics(t)[name].Data.(metricdata.Histogram[float64])
	if !isHistogram {
		t.Fatalf("%s is not a histogram", name)
	}
	return h.DataPoints
}

// decisions returns the number of decisions by outcome and source.
func (c collector) decisions(t *testing.T) map[string]uint64 {
	t.Helper()
	counts := map[string]uint64{}
	for _, p := range c.durations(t, "slidegate.limiter.decision.duration") {
		counts[text(p.Attributes, "slidegate.decision.outcome")+" by "+text(p.Attributes, "slidegate.decision.source")] += p.Count
	}
	return counts
}

// sum returns the value of a counter, summed over all limiters.
func (c collector) sum(t *testing.T, name string) (total int64) {
	t.Helper()
	sum, isSum := c.metrics(t)[name].Data.(metricdata.Sum[int64])
	if !isSum {
		t.Fatalf("%s is not a counter", name)
	}
	for _, p := range sum.DataPoints {
		total += p.Value
	}
	return total
}

// text returns the value of an attribute as a string.
func text(of attribute.Set, key attribute.Key) string {
	v, _ := of.Value(key)
	return v.AsString()
}

// seen returns an observation of the given kind, of a decision that took the given time.
func seen(kind window.Kind, took time.Duration) window.Observation {
	o := window.Observation{Limiter: "api", Kind: kind, Took: took, Decision: window.Decision{Usage: make([]window.Usage, 1)}}
	o.Trace.InRedis = took
	return o
}
