package otelgate_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/slidegate/slidegate/otelgate"
	"github.com/slidegate/slidegate/window"
)

// How do I report decisions to OpenTelemetry?
func Example() {
	reader := metric.NewManualReader() // in a service: a Prometheus exporter, or a PeriodicReader with an OTLP exporter
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))

	observe, err := otelgate.New(otel.GetMeterProvider())
	if err != nil {
		panic(err)
	}
	limiter, err := window.NewLocal(window.Config{ // or window.New, to share limits through Redis
		Name: "login", Limits: []window.Limit{window.PerHour(5)}, Observe: observe,
	})
	if err != nil {
		panic(err)
	}
	for range 7 {
		if _, err := limiter.Allow(context.Background(), "198.51.100.7"); err != nil {
			panic(err)
		}
	}

	var collected metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &collected); err != nil {
		panic(err)
	}
	durations := collected.ScopeMetrics[0].Metrics[0]
	fmt.Println(durations.Name)
	for _, p := range durations.Data.(metricdata.Histogram[float64]).DataPoints {
		outcome, _ := p.Attributes.Value("slidegate.decision.outcome")
		fmt.Println(outcome.AsString(), p.Count)
	}
	// Unordered output:
	// slidegate.limiter.decision.duration
	// allowed 5
	// denied 2
}
