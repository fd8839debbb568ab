package main

import (
	"context"

	"github.com/redis/rueidis"
)

// record is as long as a window record with five events under three limits.
const record = "a record of forty bytes, as long as ours"

// floors returns rows for scripts that decide nothing. No script of the same kind can be faster.
// The last two have the commands, arguments and replies of a decision by window.
func floors(client rueidis.Client) []contender {
	const calls = `redis.call('TIME') redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[#ARGV], 'PX', ARGV[#ARGV - 3]) `
	return []contender{
		bare(client),
		floorRow(client, "floor: GET, SET", "the least that reads and writes a record", 1,
			`redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1]) return {1}`, record),
		floorRow(client, "floor: 1 limit", "TIME, GET, SET PX, arguments and reply of 1 limit", 1,
			calls+`return {1, 2, 3, 4, 5}`, append(oneLimit.allow(), record)...),
		floorRow(client, "floor: 3 limits", "TIME, GET, SET PX, arguments and reply of 3 limits", 1,
			calls+`return {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}`, append(threeLimits.allow(), record)...),
	}
}

// bare returns the row of the smallest possible script call.
func bare(client rueidis.Client) contender {
	return floorRow(client, constant, "an EVALSHA of a constant by rueidis.Lua.Exec, read as integers", 0, `return {1, 2, 3, 4, 5}`)
}

// floorRow returns the row for a script that allows everything.
func floorRow(client rueidis.Client, name, like string, keys int, source string, args ...string) contender {
	script := rueidis.NewLuaScript(source)
	c := contender{name: name, like: like, allows: true, keys: keys}
	c.ask = func(ctx context.Context, event string) (bool, error) {
		_, err := script.Exec(ctx, client, []string{"floor:{" + event + "}"}, args).AsIntSlice()
		return true, err
	}
	if keys > 0 {
		c.before = func(ctx context.Context, event string) error {
			return client.Do(ctx, client.B().Set().Key("floor:{"+event+"}").Value(record).Build()).Error()
		}
	}
	return c
}
