package grpclimit

import (
	"context"
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

// limiter returns the Limiter for a call of the given method.
func (cfg *Config) limiter(ctx context.Context, method string) (Limiter, error) {
	if cfg.Choose == nil {
		return cfg.Limiter, nil
	}
	l, err := cfg.Choose(ctx, method)
	return l, adapter.CheckChoice("grpclimit", l, err)
}
