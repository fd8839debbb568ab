// Package constant provides limiters that decide without counting. httplimit and grpclimit export
// them as values of their own Limiter types.
package constant

import (
	"context"
	"math"
	"time"

	"github.com/slidegate/slidegate/window"
)

// Limiter makes the same decision for every request. It does not use Redis and never returns an
// error.
type Limiter struct{ allows bool }

// Unlimited allows every request, and Blocked denies every request.
var (
	Unlimited = Limiter{allows: true}
	Blocked   = Limiter{}
)

// Is reports whether limiter is Unlimited or Blocked, so that its decisions imply nothing about
// Redis.
func Is(limiter any) bool {
	_, is := limiter.(Limiter)
	return is
}

// Denies reports whether d is a permanent denial, such as one by Blocked: it names no limit, and no
// time after which the request would be allowed.
func Denies(d window.Decision) bool { return !d.Allowed && d.RetryAfter == 0 && len(d.Usage) == 0 }

// AllowN allows all n units, or none. It counts nothing.
func (l Limiter) AllowN(_ context.Context, _ string, n int64) (window.Decision, error) {
	d := window.Decision{Allowed: l.allows, At: time.Now().UTC()}
	if l.allows {
		d.Granted, d.Remaining = n, math.MaxInt64
	}
	return d, nil
}

// Refund does nothing, because nothing was counted.
func (l Limiter) Refund(context.Context, string, window.Decision) error { return nil }

// Settle returns d unchanged, because nothing was counted.
func (l Limiter) Settle(_ context.Context, _ string, d window.Decision, _ int64) (window.Decision, error) {
	return d, nil
}
