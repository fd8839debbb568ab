// Package constant provides the limiters that decide without counting. httplimit and grpclimit
// export them, each as its own Limiter.
package constant

import (
	"context"
	"math"
	"time"

	"github.com/slidegate/slidegate/window"
)

// Limiter gives every request the same answer. It does not ask Redis and never returns an error.
type Limiter struct{ allows bool }

// The two Limiters.
var (
	Unlimited = Limiter{allows: true}
	Blocked   = Limiter{}
)

// Is reports whether a limiter is one of the two, so that its decisions say nothing about Redis.
func Is(limiter any) bool {
	_, is := limiter.(Limiter)
	return is
}

// Denies reports whether a decision denies permanently, like those of Blocked: there is no limit
// and no time after which it would be different.
func Denies(d window.Decision) bool { return !d.Allowed && d.RetryAfter == 0 && len(d.Usage) == 0 }

// AllowN allows all units, or none. It counts nothing.
func (l Limiter) AllowN(_ context.Context, _ string, n int64) (window.Decision, error) {
	d := window.Decision{Allowed: l.allows, At: time.Now().UTC()}
	if l.allows {
		d.Granted, d.Remaining = n, math.MaxInt64
	}
	return d, nil
}

// WaitN decides at once, because a wait changes nothing.
func (l Limiter) WaitN(ctx context.Context, event string, n int64) (window.Decision, error) {
	return l.AllowN(ctx, event, n)
}

// Refund does nothing, because nothing was counted.
func (l Limiter) Refund(context.Context, string, window.Decision) error { return nil }

// Settle returns the decision unchanged, because nothing was counted.
func (l Limiter) Settle(_ context.Context, _ string, d window.Decision, _ int64) (window.Decision, error) {
	return d, nil
}
