package otelgate

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/slidegate/slidegate/window"
)

// The attributes of metrics and span events.
const (
	limiterName   = attribute.Key("slidegate.limiter.name")            // Config.Name
	limiterPlan   = attribute.Key("slidegate.limiter.plan")            // the name from WithPlan, if there is one
	outcome       = attribute.Key("slidegate.decision.outcome")        // the window.Kind of a decision
	source        = attribute.Key("slidegate.decision.source")         // what decided: byRedis and so on
	errorType     = attribute.Key("error.type")                        // the window.Reason why Redis did not decide, or _OTHER if the limiter refused the call
	retryAfter    = attribute.Key("slidegate.decision.retry_after")    // in seconds; see window.Decision
	tightestLimit = attribute.Key("slidegate.decision.tightest_limit") // such as 5/1h
	leaseOutcome  = attribute.Key("slidegate.lease.outcome")           // how a lease was lost: inflight.KindLost or KindOverdue
)

// The values of source.
const (
	byRedis       = "redis"
	byMemory      = "memory"       // a limiter from NewLocal
	byDenialCache = "denial_cache" // without a call to Redis
	byFallback    = "fallback"     // in an outage
	byOverride    = "override"     // an override that blocks or lifts the limits, without a call to Redis
	byNobody      = "none"         // there is an error and no decision
)

// series identifies the decisions that share all attributes.
type series struct {
	limiter string
	plan    string
	outcome window.Kind
	source  string
	reason  window.Reason // why Redis did not decide
}

func seriesOf(o *window.Observation) series {
	return series{limiter: o.Limiter, plan: o.Plan, outcome: o.Kind, source: sourceOf(o), reason: window.ReasonOf(o.Err)}
}

// sourceOf returns the source of a decision. A missing Usage does not mean that there is no
// decision: decisions of packages pace and inflight have none.
func sourceOf(o *window.Observation) string {
	switch {
	case len(o.Decision.Usage) == 0 && o.Kind != window.KindAllowed && o.Kind != window.KindDenied:
		return byNobody
	case o.Decision.Override == window.OverrideBlock || o.Decision.Override == window.OverrideUnlimited:
		return byOverride
	case o.Decision.Degraded:
		return byFallback
	case o.Trace.Remembered:
		return byDenialCache
	case o.Trace.InRedis > 0:
		return byRedis
	}
	return byMemory
}

// attributes returns the attributes of a decision in this series.
func (s series) attributes() []attribute.KeyValue {
	all := []attribute.KeyValue{limiterName.String(s.limiter), outcome.String(string(s.outcome)), source.String(s.source)}
	if s.plan != "" {
		all = append(all, limiterPlan.String(s.plan))
	}
	switch {
	case s.reason != "":
		all = append(all, errorType.String(string(s.reason)))
	case s.outcome == window.KindRefused:
		all = append(all, errorType.String("_OTHER")) // the name in the semantic conventions of OpenTelemetry
	}
	return all
}

// addEvent adds a span event for the decision to the caller's span, if the span is recording.
func addEvent(ctx context.Context, o *window.Observation, s *options) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	all := slices.Clip(s.attributes)
	if sourceOf(o) != byNobody {
		all = append(all, retryAfter.Float64(o.Decision.RetryAfter.Seconds()))
	}
	if len(o.Decision.Usage) > 0 {
		all = append(all, tightestLimit.String(o.Decision.Tightest().Limit.Label()))
	}
	span.AddEvent("slidegate.decision", trace.WithAttributes(all...))
}
