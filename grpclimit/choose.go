package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slidegate/slidegate/internal/adapter"
)

// Unlimited and Blocked are Limiters for Config.Choose to return. They count nothing and do not use
// Redis.
var (
	// Unlimited allows every call.
	Unlimited Limiter = adapter.Unlimited

	// Blocked denies every call, with PermissionDenied and without RetryInfo. ResourceExhausted
	// would be wrong: no resource is exhausted, and clients could retry the call forever.
	Blocked Limiter = adapter.Blocked
)

// HealthChecks reports whether method belongs to the health service, grpc.health.v1.Health. Use it
// as Config.Skip to exempt health checks from the limits.
func HealthChecks(_ context.Context, method string) bool {
	return strings.HasPrefix(method, "/grpc.health.v1.Health/")
}

var errNilChoice = errors.New("the limiter is nil, although Choose returned no error; return a limiter, grpclimit.Unlimited or grpclimit.Blocked")

// limiter returns the Limiter for a call of the given method.
func (cfg *Config) limiter(ctx context.Context, method string) (Limiter, error) {
	if cfg.Choose == nil {
		return cfg.Limiter, nil
	}
	l, err := cfg.Choose(ctx, method)
	switch {
	case err != nil: // %s, not %w: an error that it wraps, such as context.Canceled, need not concern this call
		return nil, fmt.Errorf("%w: %s", adapter.ErrChoose, err.Error())
	case adapter.IsNil(l):
		return nil, errNilChoice
	}
	return l, nil
}
