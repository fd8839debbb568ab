package otelgate

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// prefix begins the name of every metric.
const prefix = "slidegate.limiter."

// boundaries are the bucket boundaries of both duration histograms, in seconds. The lowest, 50 µs,
// is less than a round trip to a Redis server in the same rack. The highest, 5 s, is more than the
// default Timeout.
var boundaries = metric.WithExplicitBucketBoundaries(
	.00005, .0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5)

// maker creates instruments. Its field err joins the errors for all instruments that the provider
// has rejected.
type maker struct {
	meter metric.Meter
	err   error
}

// histogram returns a histogram of durations in seconds.
func (m *maker) histogram(name, text string) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(prefix+name, metric.WithUnit("s"), metric.WithDescription(text), boundaries)
	m.err = errors.Join(m.err, err)
	return h
}

// sizes returns a histogram of batch sizes in requests. Its highest boundary is the largest batch.
func (m *maker) sizes(name, text string) metric.Int64Histogram {
	h, err := m.meter.Int64Histogram(prefix+name, metric.WithUnit("{request}"), metric.WithDescription(text),
		metric.WithExplicitBucketBoundaries(1, 2, 4, 8, 16, 32, 64, 128))
	m.err = errors.Join(m.err, err)
	return h
}

func (m *maker) counter(name, unit, text string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(prefix+name, metric.WithUnit(unit), metric.WithDescription(text))
	m.err = errors.Join(m.err, err)
	return c
}

func (m *maker) upDownCounter(name, unit, text string) metric.Int64UpDownCounter {
	c, err := m.meter.Int64UpDownCounter(prefix+name, metric.WithUnit(unit), metric.WithDescription(text))
	m.err = errors.Join(m.err, err)
	return c
}

// observable returns an up-down counter whose value a callback reports. Unlike a gauge, it can be
// summed over processes.
func (m *maker) observable(name, unit, text string) metric.Int64ObservableUpDownCounter {
	c, err := m.meter.Int64ObservableUpDownCounter(prefix+name, metric.WithUnit(unit), metric.WithDescription(text))
	m.err = errors.Join(m.err, err)
	return c
}
