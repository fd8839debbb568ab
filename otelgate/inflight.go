package otelgate

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/slidegate/slidegate/inflight"
)

// InFlight reports how many units limiters of package inflight hold in this process, each time the
// provider collects metrics. This complements the metrics that New records about their decisions,
// so call both:
//
//	limiter, err := inflight.New(conn, inflight.Config{Name: "exports", Max: 5, Observe: observe})
//	// ...
//	_, err = otelgate.InFlight(otel.GetMeterProvider(), limiter)
//
// Pass each limiter once, but no limiter from With, which is reported together with its original.
// Use the Registration for a limiter that is closed before the program ends: Unregister stops the
// reports.
//
// The errors are those of New. Like the methods of a limiter, InFlight panics if one is nil or
// zero.
func InFlight(provider metric.MeterProvider, limiters ...*inflight.Limiter) (metric.Registration, error) {
	meter, err := meterOf(provider)
	if err != nil {
		return nil, err
	}
	names := make([]metric.ObserveOption, len(limiters))
	for i, l := range limiters {
		names[i] = metric.WithAttributeSet(attribute.NewSet(limiterName.String(l.Stats().Limiter)))
	}
	m := maker{meter: meter}
	held := m.observable("held", "{unit}", "Units that this process holds.")
	degraded := m.observable("degraded", "{unit}", "Units that this process holds in a Fallback because Redis did not answer.")
	waiting := m.observable("waiting", "{call}", "Calls that are waiting for units.")
	if m.err != nil {
		return nil, m.err
	}
	return meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for i, l := range limiters {
			s := l.Stats()
			to.ObserveInt64(held, s.Held, names[i])
			to.ObserveInt64(degraded, s.Degraded, names[i])
			to.ObserveInt64(waiting, s.Waiting, names[i])
		}
		return nil
	}, held, degraded, waiting)
}
