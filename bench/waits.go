package main

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/window"
)

// retryAfter is like ask, but also returns how long a denied caller has to wait.
type retryAfter func(ctx context.Context, event string) (allowed bool, wait time.Duration, err error)

// ask returns the decision without the wait.
func (t retryAfter) ask(ctx context.Context, event string) (bool, error) {
	allowed, _, err := t(ctx, event)
	return allowed, err
}

// waiting returns the contenders that return a wait, under the limit of the audits.
func waiting(client rueidis.Client, theirs redis.UniversalClient) map[string]retryAfter {
	rated := redis_rate.NewLimiter(theirs)
	limits := []window.Limit{{Max: attacked.max, Per: attacked.per}}
	return map[string]retryAfter{
		rate: func(ctx context.Context, event string) (bool, time.Duration, error) {
			r, err := rated.Allow(ctx, event, redis_rate.Limit{Rate: int(attacked.max), Burst: int(attacked.max), Period: attacked.per})
			if err != nil {
				return false, 0, err
			}
			return r.Allowed > 0, r.RetryAfter, nil
		},
		"window":    retrying(must(window.New(window.On(client), window.Config{Name: "accuracy", Limits: limits, Timeout: patience}))),
		"ar1":       retrying(must(ar1.New(window.On(client), ar1.Config{Name: "accuracy", Limits: limits, Timeout: patience}))),
		"throttled": throttle(theirs, attacked),
		"ulule":     increment(theirs, attacked),
	}
}

func retrying(l limiter) retryAfter {
	return func(ctx context.Context, event string) (bool, time.Duration, error) {
		d, err := l.Allow(ctx, event)
		return d.Allowed, d.RetryAfter, err
	}
}
