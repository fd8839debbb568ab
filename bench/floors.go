package main

import (
	"context"

	"github.com/redis/rueidis"
)

// record is a value as long as that of five events under three limits.
const record = "a record of forty bytes, as long as ours"

// What a decision of window sends, for 50/1h and for 1/5s, 50/1h, 200/1d.
var (
	one   = []string{"allow", "", "1", "3600000", "50", "1"}
	three = []string{"allow", "", "1", "5000", "1", "1", "3600000", "50", "1", "86400000", "200", "1440000"}
)

// floors are the rows below which no script of that kind can be. The last two have the calls, the arguments and the reply of
// a decision, but decide nothing.
func floors(client rueidis.Client) []contender {
	const calls = `redis.call('TIME') redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[#ARGV], 'PX', ARGV[#ARGV - 3]) `
	return []contender{
		floorRow(client, floor, "a bare EVALSHA of a constant, read as integers", 0, `return {1, 2, 3, 4, 5}`),
		floorRow(client, "floor: GET, SET", "the least that reads and writes a record", 1,
			`redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1]) return {1}`, record),
		floorRow(client, "floor: 1 limit", "TIME, GET, SET PX, arguments and reply of 1 limit", 1,
			calls+`return {1, 2, 3, 4, 5}`, append(one[:len(one):len(one)], record)...),
		floorRow(client, "floor: 3 limits", "TIME, GET, SET PX, arguments and reply of 3 limits", 1,
			calls+`return {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}`, append(three[:len(three):len(three)], record)...),
	}
}

// floorRow is a script that says yes to everything.
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
