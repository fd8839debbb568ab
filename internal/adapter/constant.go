package adapter

import (
	"context"
	"math"
	"time"

	"github.com/slidegate/slidegate/window"
)

// Constant is a limiter that makes the same decision for every request. It does not use Redis and never returns an
// error.
type Constant struct{ allows bool }

// Unlimited allows every request, and Blocked denies every request. httplimit and grpclimit export
// them as values of their own Limiter types.
var (
	Unlimited = Constant{allows: true}
	Blocked   = Constant{}
)

// IsConstant reports whether limiter is Unlimited or Blocked, so that its decisions imply nothing about
// Redis.
func IsConstant(limiter any) bool {
	_, is := limiter.(Constant)
	return is
}

// DeniesForever reports whether d is a permanent denial, such as one by Blocked: it names no limit, and no
// time after which the request would be allowed.
func DeniesForever(d window.Decision) bool {
	return !d.Allowed && d.RetryAfter == 0 && len(d.Usage) == 0
}

// AllowN allows all n units, or none. It counts nothing.
func (c Constant) AllowN(_ context.Context, _ string, n int64) (window.Decision, error) {
	d := window.Decision{Allowed: c.allows, At: time.Now().UTC()}
	if c.allows {
		d.Granted, d.Remaining = n, math.MaxInt64
	}
	return d, nil
}

// Refund does nothing, because nothing was counted.
func (c Constant) Refund(context.Context, string, window.Decision) error { return nil }

// Settle returns d unchanged, because nothing was counted.
func (c Constant) Settle(_ context.Context, _ string, d window.Decision, _ int64) (window.Decision, error) {
	return d, nil
}
