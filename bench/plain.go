package main

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

const (
	counting = "fixed window, INCR"
	logging  = "log by MULTI"
)

// plain is what is done without a script, under a limit.
func plain(client rueidis.Client) map[string]func(ctx context.Context, event string, b bound) (bool, error) {
	counter := func(ctx context.Context, event string, b bound) (bool, error) {
		key := "window:{" + event + "}"
		n, err := client.DoMulti(ctx, client.B().Incr().Key(key).Build(),
			client.B().Pexpire().Key(key).Milliseconds(b.per.Milliseconds()).Nx().Build())[0].AsInt64()
		return n <= b.max, err
	}
	log := func(ctx context.Context, event string, b bound) (bool, error) {
		key, now := "log:{"+event+"}", time.Now()
		replies, err := client.DoMulti(ctx, client.B().Multi().Build(),
			client.B().Zremrangebyscore().Key(key).Min("-inf").Max(strconv.FormatInt(now.Add(-b.per).UnixMicro(), 10)).Build(),
			client.B().Zadd().Key(key).ScoreMember().ScoreMember(float64(now.UnixMicro()), strconv.FormatInt(now.UnixNano(), 10)).Build(),
			client.B().Zcard().Key(key).Build(),
			client.B().Pexpire().Key(key).Milliseconds(b.per.Milliseconds()).Build(),
			client.B().Exec().Build())[5].ToArray()
		if err != nil {
			return false, err
		}
		n, err := replies[2].AsInt64()
		return n <= b.max, err
	}
	return map[string]func(ctx context.Context, event string, b bound) (bool, error){counting: counter, logging: log}
}

// plainCommands are the rows of it.
func plainCommands(client rueidis.Client) []contender {
	asks := plain(client)
	counter, log := asks[counting], asks[logging]
	incr, exec := map[string]int{"incr": 1, "pexpire": 1}, map[string]int{"multi": 1, "exec": 1}
	return []contender{
		askRow(contender{name: counting, like: "INCR and PEXPIRE NX in a pipeline; denials count", commands: incr, allows: true}, under(counter, oneBound[0])),
		askRow(contender{name: counting + ", denied", like: "4/1h: used up", beside: counting, commands: incr}, under(counter, usedUp[0])),
		askRow(contender{name: counting + ", hot", like: hotLike, beside: counting, commands: incr, allows: true, hot: true}, under(counter, hotBound[0])),
		askRow(contender{name: logging, like: "a member for each event, by MULTI and EXEC; denials count", commands: exec, allows: true}, under(log, oneBound[0])),
		askRow(contender{name: logging + ", denied", like: "4/1h: used up", beside: logging, commands: exec}, under(log, usedUp[0])),
		askRow(contender{name: logging + ", hot", like: hotLike, beside: logging, commands: exec, allows: true, hot: true}, under(log, hotBound[0])),
	}
}

// under asks under one limit.
func under(ask func(context.Context, string, bound) (bool, error), b bound) ask {
	return func(ctx context.Context, event string) (bool, error) { return ask(ctx, event, b) }
}
