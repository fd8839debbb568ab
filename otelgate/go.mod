module github.com/slidegate/slidegate/otelgate

go 1.25.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/slidegate/slidegate v0.1.0
	go.opentelemetry.io/otel v1.31.0 // the oldest that otelgate can use
	go.opentelemetry.io/otel/metric v1.31.0 // the oldest that otelgate can use
	go.opentelemetry.io/otel/sdk v1.31.0 // the oldest that otelgate can use
	go.opentelemetry.io/otel/sdk/metric v1.31.0 // the oldest that otelgate can use
	go.opentelemetry.io/otel/trace v1.31.0 // the oldest that otelgate can use
)

require (
	github.com/go-logr/logr v1.4.2 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
