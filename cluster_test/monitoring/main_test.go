// Package monitoring_test holds the dashboard and the alerts of docs/monitoring against a real Prometheus, which scrapes proxies
// and a program that reports by otelgate. It is no part of otelgate, whose users would then require client_golang.
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

func parsed(texts ...string) (all []window.Limit) {
	for _, text := range texts {
		all = append(all, must(window.ParseLimit(text)))
	}
	return all
}
