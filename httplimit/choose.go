package httplimit

import (
	"net/http"

	"github.com/slidegate/slidegate/internal/adapter"
)

// Unlimited and Blocked are Limiters for Config.Choose to return. They count nothing and do not use
// Redis.
var (
	// Unlimited allows every request. The response has no RateLimit fields.
	Unlimited Limiter = adapter.Unlimited

	// Blocked denies every request, with HTTP 403 and without Retry-After. HTTP 429 would be wrong:
	// the client did not send too many requests, and many clients repeat a request after a 429.
	Blocked Limiter = adapter.Blocked
)

// limiter returns the Limiter for r.
func (cfg *Config) limiter(r *http.Request) (Limiter, error) {
	if cfg.Choose == nil {
		return cfg.Limiter, nil
	}
	l, err := cfg.Choose(r)
	if err = adapter.CheckChoice("httplimit", l, err); err != nil {
		return nil, err
	}
	return l, cfg.checkSettles(l)
}
