package main

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	store "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	driver "github.com/ulule/limiter/v3/drivers/store/redis"
)

// libraries returns the rows for throttled v2 and ulule v3 on go-redis.
func libraries(client redis.UniversalClient) []contender {
	swap, look := map[string]int{"time": 1, "get": 2, "eval": 1}, map[string]int{"time": 1, "get": 1}
	return []contender{
		askRow(contender{
			name: "throttled", like: "GCRA by compare and swap: TIME, GET, and its script in full",
			commands: swap, inside: map[string]int{"get": 1}, allows: true,
		}, throttle(client, oneBound[0]).ask),
		askRow(contender{name: "throttled, denied", like: "4/1h: used up; TIME and GET", beside: "throttled", commands: look}, throttle(client, usedUp[0]).ask),
		askRow(contender{name: "ulule", like: "fixed window by a script; denials count", allows: true}, increment(client, oneBound[0]).ask),
		askRow(contender{name: "ulule, denied", like: "4/1h: used up", beside: "ulule"}, increment(client, usedUp[0]).ask),
	}
}

func throttle(client redis.UniversalClient, b bound) retryAfter {
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(int(b.max), b.per), MaxBurst: int(b.max) - 1}
	l := must(throttled.NewGCRARateLimiterCtx(must(store.NewCtx(client, "throttled:")), quota))
	return func(ctx context.Context, event string) (bool, time.Duration, error) {
		limited, r, err := l.RateLimitCtx(ctx, event, 1)
		return !limited, r.RetryAfter, err
	}
}

// increment decides with ulule's library. The first call creates its limiter, which loads scripts.
func increment(client redis.UniversalClient, b bound) retryAfter {
	made := sync.OnceValues(func() (*ulule.Limiter, error) {
		s, err := driver.NewStore(client)
		return ulule.New(s, ulule.Rate{Period: b.per, Limit: b.max}), err
	})
	return func(ctx context.Context, event string) (bool, time.Duration, error) {
		l, err := made()
		if err != nil {
			return false, 0, err
		}
		c, err := l.Get(ctx, event)
		return err == nil && !c.Reached, time.Until(time.Unix(c.Reset, 0)), err
	}
}
