package adapter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/slidegate/slidegate/window"
)

// Constant is a limiter that makes the same decision for every request. It does not use Redis and
// never returns an error.
type Constant struct{ allows bool }

// Unlimited allows every request, and Blocked denies every request. httplimit and grpclimit export
// them as values of their own Limiter types.
var (
	Unlimited = Constant{allows: true}
	Blocked   = Constant{}
)

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

// IsConstant reports whether limiter is Unlimited or Blocked, so that its decisions imply nothing
// about Redis.
func IsConstant(limiter any) bool {
	_, is := limiter.(Constant)
	return is
}

// DeniesForever reports whether d is a permanent denial, such as one by Blocked: it names no limit,
// and no time after which the request would be allowed.
func DeniesForever(d window.Decision) bool {
	return !d.Allowed && d.RetryAfter == 0 && len(d.Usage) == 0
}

// ErrChoose is the error if Choose failed. It is treated like an outage, because it usually affects
// all requests.
var ErrChoose = errors.New("no limiter was found, because Choose failed")

// CheckChoice returns an error if Choose, a function of the given package, returned err or a nil
// limiter.
func CheckChoice(pkg string, limiter any, err error) error {
	switch {
	case err != nil: // %s, not %w: an error that it wraps, such as context.Canceled, need not concern this request
		return fmt.Errorf("%w: %s", ErrChoose, err.Error())
	case IsNil(limiter):
		return fmt.Errorf("the limiter is nil, although Choose returned no error; return a limiter, %s.Unlimited or %[1]s.Blocked", pkg)
	}
	return nil
}

// IsNil reports whether v is nil or a nil pointer. An interface that contains a nil pointer is not
// equal to nil, so a program that ignores a constructor's error would notice it only at the first
// request.
func IsNil(v any) bool {
	value := reflect.ValueOf(v)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}

// isNilOrZero reports whether v is nil, a nil pointer, or a pointer to a zero value, which no
// constructor returns.
func isNilOrZero(v any) bool { return IsNil(v) || reflect.ValueOf(v).Elem().IsZero() }
