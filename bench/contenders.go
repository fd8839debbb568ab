package main

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// The rows that the others are ratios of: their time in the server, and their calls.
const (
	rate  = "redis_rate"
	floor = "floor: constant"
)

// contenders are the rows of the table, in its order. Libraries that bring their own client get theirs.
func contenders(client rueidis.Client, theirs redis.UniversalClient) []contender {
	return slices.Concat(redisRate(theirs), windows(client), levels(client), libraries(theirs), scripted(client), plainCommands(client), growth(client), floors(client))
}

// ask is one decision about an event.
type ask = func(ctx context.Context, event string) (allowed bool, err error)

// askRow completes c, of which an event has one key. The state before is four events.
func askRow(c contender, ask ask) contender {
	c.keys, c.ask = 1, ask
	c.before = func(ctx context.Context, event string) error {
		for range 4 {
			if _, err := ask(ctx, event); err != nil {
				return err
			}
		}
		return nil
	}
	return c
}
