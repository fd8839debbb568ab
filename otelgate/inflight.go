package otelgate

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/slidegate/slidegate/inflight"
)

// InFlight registers metrics of how many units the given limiters hold in this process. The
// provider reads them each time it collects metrics. They complement the metrics that New records
// for decisions, so call both functions:
//
//	limiter, err := inflight.New(conn, inflight.Config{Name: "exports", Max: 5, Observe: observe})
//	// ...
//	_, err = otelgate.InFlight(otel.GetMeterProvider(), limiter)
//
// Pass each limiter once, but no limiter returned by With: it is reported together with the
// original. If a limiter is closed before the program ends, call Unregister on the Registration to
// stop reporting.
//
// InFlight returns an error in the same cases as New. Like a limiter's methods, InFlight panics if
// a limiter is nil or zero.
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
