// Package monitoring_test tests the dashboard and the alerts of docs/monitoring with a real
// Prometheus. It scrapes proxies and a program that reports by otelgate. The tests are not in
// otelgate, because its users would then require client_golang.
package monitoring_test

import (
	"testing"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func parseLimits(texts ...string) (all []window.Limit) {
	for _, text := range texts {
		all = append(all, must(window.ParseLimit(text)))
	}
	return all
}
