package otelgate

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// prefix is the prefix of each metric's name.
const prefix = "slidegate.limiter."

// boundaries are the bucket boundaries of both histograms, in seconds. The lowest, 50 µs, is less
// than a round trip to Redis in one rack. The highest, 5 s, is more than the default Timeout.
var boundaries = metric.WithExplicitBucketBoundaries(
	.00005, .0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5)

// maker creates instruments. Its err joins the errors of all instruments that the provider
// rejected.
type maker struct {
	meter metric.Meter
	err   error
}

// histogram returns a histogram of seconds.
func (m *maker) histogram(name, text string) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(prefix+name, metric.WithUnit("s"), metric.WithDescription(text), boundaries)
	m.err = errors.Join(m.err, err)
	return h
}

// sizes returns a histogram of batch sizes, in requests, up to the largest batch.
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

// observable returns an up-down counter whose value a callback reports. Unlike gauges, its values
// can be summed over processes.
func (m *maker) observable(name, unit, text string) metric.Int64ObservableUpDownCounter {
	c, err := m.meter.Int64ObservableUpDownCounter(prefix+name, metric.WithUnit(unit), metric.WithDescription(text))
	m.err = errors.Join(m.err, err)
	return c
}
