package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// redisRate returns the rows for redis_rate v10 on go-redis. Its keys live until their counts have
// drained, so the limits are chosen such that this takes longer than a round.
func redisRate(theirs redis.UniversalClient) []contender {
	l := redis_rate.NewLimiter(theirs)
	day := 24 * time.Hour
	three := []redis_rate.Limit{redis_rate.PerHour(50), {Rate: 200, Burst: 200, Period: day}, {Rate: 1000, Burst: 1000, Period: 7 * day}}
	return []contender{
		rateRow(l, contender{name: rate, like: "50/1h", allows: true}, 4, redis_rate.PerHour(50)),
		rateRow(l, contender{name: "redis_rate, denied", like: "4/1h: used up", beside: rate}, 4, redis_rate.PerHour(4)),
		rateRow(l, contender{name: "redis_rate, 3 limits", like: "50/1h, 200/1d, 1000/7d; three calls", beside: rate, allows: true}, 4, three...),
		rateRow(l, contender{name: "redis_rate, new", like: "4/1h: an event without a key", allows: true}, 0, redis_rate.PerHour(4)),
	}
}

// redisRateHot returns the rows for redis_rate in which all callers use one event.
func redisRateHot(theirs redis.UniversalClient) []contender {
	l := redis_rate.NewLimiter(theirs)
	much := redis_rate.Limit{Rate: 1_000_000_000, Burst: 1_000_000_000, Period: 365 * 24 * time.Hour}
	return []contender{
		rateRow(l, contender{name: rate + hotAllowed.name, like: "1000000000/365d", allows: true, hot: true}, 4, much),
		rateRow(l, contender{name: rate + hotDenied.name, like: "4/1h: used up", hot: true}, 4, redis_rate.PerHour(4)),
	}
}

// rateRow completes a row for redis_rate, with one call per limit. Beforehand, it counts the given
// number of units under each limit.
func rateRow(l *redis_rate.Limiter, c contender, counted int, limits ...redis_rate.Limit) contender {
	allow := func(ctx context.Context, event string, n int) (bool, error) {
		for i, limit := range limits {
			r, err := l.AllowN(ctx, "{"+event+"}"+strconv.Itoa(i), limit, n)
			if err != nil || r.Allowed < n {
				return false, err
			}
		}
		return true, nil
	}
	c.keys, c.commands = len(limits), map[string]int{"evalsha": len(limits)}
	c.ask = func(ctx context.Context, event string) (bool, error) { return allow(ctx, event, 1) }
	if counted > 0 {
		c.before = func(ctx context.Context, event string) error {
			allowed, err := allow(ctx, event, counted)
			if err == nil && !allowed {
				err = fmt.Errorf("event %s is denied before it is measured", event)
			}
			return err
		}
	}
	return c
}
