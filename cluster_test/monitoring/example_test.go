package monitoring_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/slidegate/slidegate/otelgate"
	"github.com/slidegate/slidegate/window"
)

// How do I get metrics into Prometheus?
func Example() {
	exporter, err := prometheus.New() // or an OTLP exporter
	if err != nil {
		panic(err)
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	otel.SetMeterProvider(provider)

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

	server := httptest.NewRecorder() // your server serves promhttp.Handler() at /metrics
	promhttp.Handler().ServeHTTP(server, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for line := range strings.Lines(server.Body.String()) {
		if strings.HasPrefix(line, "slidegate_limiter_decision_duration_seconds_count") {
			_, count, _ := strings.Cut(line, "} ")
			fmt.Print("allowed: ", strings.Contains(line, `outcome="allowed"`), ", decisions: ", count)
		}
	}
	// Output:
	// allowed: true, decisions: 5
	// allowed: false, decisions: 2
}
