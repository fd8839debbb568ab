package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

const (
	counting = "fixed window, INCR"
	logging  = "log by MULTI"
)

// plain returns ways to decide without scripts, by name.
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

// plainCommands returns the rows for the ways of plain.
func plainCommands(client rueidis.Client) []contender {
	asks := plain(client)
	counter, log := asks[counting], asks[logging]
	incr, exec := map[string]int{"incr": 1, "pexpire": 1}, map[string]int{"multi": 1, "exec": 1}
	return []contender{
		askRow(contender{name: counting, like: "INCR and PEXPIRE NX in a pipeline; denials count", commands: incr, allows: true}, under(counter, oneBound[0])),
		countingAll(client),
		askRow(contender{name: counting + ", denied", like: "4/1h: used up", beside: counting, commands: incr}, under(counter, usedUp[0])),
		askRow(contender{name: logging, like: "a member for each event, by MULTI and EXEC; denials count", commands: exec, allows: true}, under(log, oneBound[0])),
		askRow(contender{name: logging + ", denied", like: "4/1h: used up", beside: logging, commands: exec}, under(log, usedUp[0])),
	}
}

// countingAll returns a row that counts under three limits in one pipeline.
func countingAll(client rueidis.Client) contender {
	c := contender{
		name: counting + ", 3 limits", like: "50/30m, 50/1h, 200/1d in one pipeline", beside: counting, allows: true,
		commands: map[string]int{"incr": 3, "pexpire": 3},
	}
	c = askRow(c, func(ctx context.Context, event string) (allowed bool, err error) {
		var batch rueidis.Commands
		for i, b := range threeBounds {
			key := "window:{" + event + "}:" + strconv.Itoa(i)
			batch = append(batch, client.B().Incr().Key(key).Build(), client.B().Pexpire().Key(key).Milliseconds(b.per.Milliseconds()).Nx().Build())
		}
		allowed = true
		for i, reply := range client.DoMulti(ctx, batch...) {
			n, errReply := reply.AsInt64()
			allowed, err = allowed && (i%2 > 0 || n <= threeBounds[i/2].max), errors.Join(err, errReply)
		}
		return allowed, err
	})
	c.keys = len(threeBounds)
	return c
}

// under returns an ask that uses a single limit.
func under(ask func(context.Context, string, bound) (bool, error), b bound) ask {
	return func(ctx context.Context, event string) (bool, error) { return ask(ctx, event, b) }
}
