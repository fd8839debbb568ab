package cluster_test

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/slidegate/slidegate/window"
)

// metrics counts decisions and outages, and times them, with the metrics of OpenTelemetry.
func metrics(meter metric.Meter) (func(context.Context, window.Observation), error) {
	decisions, err1 := meter.Int64Counter("slidegate.decisions", metric.WithDescription("attempts and peeks, by what came of them"))
	seconds, err2 := meter.Float64Histogram("slidegate.duration", metric.WithUnit("s"), metric.WithDescription("from call to answer"))
	outages, err3 := meter.Int64UpDownCounter("slidegate.outages", metric.WithDescription("parts of Redis that are left alone now"))
	return func(ctx context.Context, o window.Observation) {
		limiter := attribute.String("limiter", o.Limiter)
		switch o.Kind {
		case window.OutageBegan:
			outages.Add(ctx, 1, metric.WithAttributes(limiter))
		case window.OutageEnded:
			outages.Add(ctx, -1, metric.WithAttributes(limiter))
		default:
			kind := attribute.String("kind", string(o.Kind))
			degraded := attribute.Bool("degraded", o.Decision.Degraded)
			decisions.Add(ctx, 1, metric.WithAttributes(limiter, kind, degraded))
			seconds.Record(ctx, o.Took.Seconds(), metric.WithAttributes(limiter, kind))
		}
	}, errors.Join(err1, err2, err3)
}

// How do I get metrics?
func Example_openTelemetry() {
	observe, err := metrics(noop.NewMeterProvider().Meter("slidegate")) // a real one is otel.Meter("slidegate")
	if err != nil {
		panic(err)
	}
	limiter, err := window.NewLocal(window.Config{Name: "login", Limits: []window.Limit{window.PerHour(5)}, Observe: observe})
	if err != nil {
		panic(err)
	}
	d, err := limiter.Allow(context.Background(), "198.51.100.7")
	fmt.Println(d.Allowed, err)
	// Output: true <nil>
}
