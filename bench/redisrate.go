package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// redisRate are the rows of redis_rate v10: its own library and script, over the pipeline that all rows share. Its keys live as long
// as what they count takes to drain, so limits are such that this is longer than a round.
func redisRate(client rueidis.Client) []contender {
	l := redis_rate.NewLimiter(pipeline{client: client})
	day := 24 * time.Hour
	three := []redis_rate.Limit{redis_rate.PerHour(50), {Rate: 200, Burst: 200, Period: day}, {Rate: 1000, Burst: 1000, Period: 7 * day}}
	return []contender{
		rateRow(l, contender{name: rate, like: "50/1h: 4 counted before", allows: true}, 4, redis_rate.PerHour(50)),
		rateRow(l, contender{name: "redis_rate, denied", like: "4/1h: used up", beside: rate}, 4, redis_rate.PerHour(4)),
		rateRow(l, contender{name: "redis_rate, 3 limits", like: "3 calls: 50/1h, 200/1d, 1000/7d", beside: rate, allows: true}, 4, three...),
		rateRow(l, contender{name: "redis_rate, hot", like: "1000000/365d: one event all the time", beside: rate, allows: true, hot: true}, 4, redis_rate.Limit{Rate: 1_000_000, Burst: 1_000_000, Period: 365 * day}),
		rateRow(l, contender{name: "redis_rate, new", like: "4/1h: an event without a key", allows: true}, 0, redis_rate.PerHour(4)),
	}
}

// rateRow completes c: its limits, a call each, and how many units are counted before.
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
			admitted, err := allow(ctx, event, counted)
			if err == nil && !admitted {
				err = fmt.Errorf("event %s is denied before it is measured", event)
			}
			return err
		}
	}
	return c
}

// pipeline lets redis_rate call through rueidis, so that all rows reach the server alike. Through its own client, which has
// a connection for each caller, the server takes as long (0.97 times, and half of the slices between 0.90 and 1.19).
type pipeline struct {
	redis.Cmdable // what redis_rate does not call
	client        rueidis.Client
}

// EvalSha calls a script by its hash.
func (p pipeline) EvalSha(ctx context.Context, hash string, keys []string, args ...any) *redis.Cmd {
	return p.call(ctx, "EVALSHA", hash, keys, args)
}

// Eval sends a script in full.
func (p pipeline) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return p.call(ctx, "EVAL", script, keys, args)
}

func (p pipeline) call(ctx context.Context, command, script string, keys []string, args []any) *redis.Cmd {
	cmd := p.client.B().Arbitrary(command, script, fmt.Sprint(len(keys))).Keys(keys...)
	for _, arg := range args {
		cmd = cmd.Args(fmt.Sprint(arg))
	}
	reply, err := p.client.Do(ctx, cmd.Build()).ToAny()
	if err != nil {
		err = serverError{err}
	}
	return redis.NewCmdResult(reply, err)
}

// serverError has go-redis see what the server said: NOSCRIPT, above all.
type serverError struct{ error }

// RedisError marks it.
func (serverError) RedisError() {}
