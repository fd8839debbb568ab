package main

import (
	"context"
	"slices"

	"github.com/redis/rueidis"
)

// record is a value as long as that of five events under three limits.
const record = "a record of forty bytes, as long as ours"

// floors are the rows below which no script of that kind can be. The last two have the calls, the arguments and the reply of
// a decision, but decide nothing.
func floors(client rueidis.Client) []contender {
	const calls = `redis.call('TIME') redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[7], 'PX', ARGV[4]) `
	one := []string{"allow", "", "1", "3600000", "50", "1", record}
	three := slices.Concat(one, []string{"5000", "1", "1", "86400000", "200", "1440000"})
	return []contender{
		floorRow(client, "floor: constant", "a script that does nothing", 0, `return 1`),
		floorRow(client, "floor: GET, SET", "the least that reads and writes a record", 1,
			`redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1]) return 1`, record),
		floorRow(client, "floor: 1 limit", "TIME, GET, SET PX, arguments and reply of 1 limit", 1,
			calls+`return {1, 2, 3, 4, 5}`, one...),
		floorRow(client, "floor: 3 limits", "TIME, GET, SET PX, arguments and reply of 3 limits", 1,
			calls+`return {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}`, three...),
	}
}

// floorRow is a script that says yes to everything.
func floorRow(client rueidis.Client, name, like string, keys int, source string, args ...string) contender {
	script := rueidis.NewLuaScript(source)
	c := contender{name: name, like: like, allows: true, keys: keys}
	c.ask = func(ctx context.Context, event string) (bool, error) {
		return true, script.Exec(ctx, client, []string{"floor:{" + event + "}"}, args).Error()
	}
	if keys > 0 {
		c.before = func(ctx context.Context, event string) error {
			return client.Do(ctx, client.B().Set().Key("floor:{"+event+"}").Value(record).Build()).Error()
		}
	}
	return c
}
