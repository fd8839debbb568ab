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

// A teller is an ask that also tells a denied caller how long to wait.
type teller func(ctx context.Context, event string) (admitted bool, wait time.Duration, err error)

// ask is the answer alone.
func (t teller) ask(ctx context.Context, event string) (bool, error) {
	admitted, _, err := t(ctx, event)
	return admitted, err
}

// tellers are the contenders that do, under the limit of the attacks.
func tellers(client rueidis.Client, theirs redis.UniversalClient) map[string]teller {
	rated := redis_rate.NewLimiter(theirs)
	limits := []window.Limit{{Max: tried.max, Per: tried.per}}
	return map[string]teller{
		rate: func(ctx context.Context, event string) (bool, time.Duration, error) {
			r, err := rated.Allow(ctx, event, redis_rate.Limit{Rate: int(tried.max), Burst: int(tried.max), Period: tried.per})
			if err != nil {
				return false, 0, err
			}
			return r.Allowed > 0, r.RetryAfter, nil
		},
		"window":    telling(must(window.New(client, window.Config{Name: "accuracy", Limits: limits}))),
		"ar1":       telling(must(ar1.New(client, ar1.Config{Name: "accuracy", Limits: limits}))),
		"throttled": throttle(theirs, tried),
		"ulule":     increment(theirs, tried),
	}
}

func telling(l limiter) teller {
	return func(ctx context.Context, event string) (bool, time.Duration, error) {
		d, err := l.Allow(ctx, event)
		return d.Allowed, d.RetryAfter, err
	}
}

const trials = 4

// worstWait is by how much the wait that was told was wrong, at worst: more than 0 if the caller was admitted only later, less if he
// could have come sooner. He asks every millisecond or two.
func worstWait(ctx context.Context, tell teller, begin int) (worst time.Duration, err error) {
	for i := range trials {
		off, err := wrongBy(ctx, tell, event(begin+i))
		if err != nil {
			return 0, err
		}
		if off.Abs() > worst.Abs() {
			worst = off
		}
	}
	return worst, nil
}

func wrongBy(ctx context.Context, tell teller, event string) (time.Duration, error) {
	var told time.Time
	for told.IsZero() {
		admitted, wait, err := tell(ctx, event)
		if err != nil {
			return 0, err
		}
		if !admitted {
			told = time.Now().Add(wait)
		}
	}
	for {
		admitted, _, err := tell(ctx, event)
		if err != nil || admitted {
			return time.Since(told), err
		}
		<-time.After(time.Millisecond)
	}
}
