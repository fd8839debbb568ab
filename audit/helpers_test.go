package audit_test

import (
	"context"
	"testing"
	"time"

	"github.com/slidegate/slidegate/audit"
	"github.com/slidegate/slidegate/window"
)

// parse parses a claim.
func parse(tb testing.TB, claim string) window.Limit {
	tb.Helper()
	l, err := window.ParseLimit(claim)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// run audits f under the given claims, with the clock c.
func run(tb testing.TB, claims string, c *audit.Clock, f audit.Func) *audit.Report {
	tb.Helper()
	limits, err := audit.ParseClaims(claims)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := audit.Run(tb.Context(), audit.Config{Claims: limits, Attempt: f, Clock: c, Fresh: true})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// kinds returns the kinds of the findings.
func kinds(r *audit.Report) (all []audit.Kind) {
	for _, f := range r.Findings {
		all = append(all, f.Kind)
	}
	return all
}

// local returns a correct limiter: a limiter of package window, in memory.
func local(tb testing.TB, claims string, c *audit.Clock, countDenied bool) audit.Func {
	tb.Helper()
	limits, err := audit.ParseClaims(claims)
	if err != nil {
		tb.Fatal(err)
	}
	cfg := window.Config{Name: "audit", Limits: limits, CountDenied: countDenied}
	if c != nil {
		cfg.Now = c.Now
	}
	l, err := window.NewLocal(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return attempts(l, "somebody")
}

// attempts returns a Func that makes an attempt for event.
func attempts(l *window.Limiter, event string) audit.Func {
	return func(ctx context.Context) (bool, time.Duration, error) {
		d, err := l.Allow(ctx, event)
		return d.Allowed, d.RetryAfter, err
	}
}
