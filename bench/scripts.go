package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// A rival is a way to limit that many use and few import: written here from its description, on rueidis, under limits of so many units
// in so many milliseconds. Each has its clock from the server, as window has.
type rival struct {
	name, like string
	keys       []string // what follows the event in its keys, for each limit
	script     string
	each       bool // it decides one limit in a call: several limits are several calls
}

const clock = `local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000) `

// A script returns 1 if the event is admitted. ARGV holds Per and Max of each limit in turn.
var rivals = []rival{
	{
		name: "fixed window, two keys", like: "a counter, and a key with the end of its window; denials count", keys: []string{"n", "end"}, each: true,
		script: clock + `
			local per, ends = tonumber(ARGV[1]), tonumber(redis.call('GET', KEYS[2]))
			if not ends or ends <= now then
				ends = now + per
				redis.call('SET', KEYS[1], 0, 'PX', per)
				redis.call('SET', KEYS[2], string.format('%.0f', ends), 'PX', per)
			end
			return redis.call('INCRBY', KEYS[1], 1) <= tonumber(ARGV[2]) and 1 or 0`,
	},
	{
		name: "token bucket", like: "tokens and the time of the last refill in a hash, refilled on access", keys: []string{"b"}, each: true,
		script: clock + `
			local per, most = tonumber(ARGV[1]), tonumber(ARGV[2])
			local b = redis.call('HMGET', KEYS[1], 'tokens', 'time')
			local tokens = math.min(most, (b[1] or most) + (now - (b[2] or now)) * most / per)
			local admitted = tokens >= 1
			if admitted then tokens = tokens - 1 end
			redis.call('HSET', KEYS[1], 'tokens', tokens, 'time', string.format('%.0f', now))
			redis.call('PEXPIRE', KEYS[1], per)
			return admitted and 1 or 0`,
	},
	{
		name: "log in a sorted set", like: "a member for each admitted event, by a script", keys: []string{"z"}, each: true,
		script: clock + `
			local per = tonumber(ARGV[1])
			redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - per))
			if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
			redis.call('ZADD', KEYS[1], string.format('%.0f', now), t[1] .. '.' .. t[2])
			redis.call('PEXPIRE', KEYS[1], per)
			return 1`,
	},
	{
		name: "log in a list", like: "the times of the last Max admitted events, by a script", keys: []string{"l"}, each: true,
		script: clock + `
			local per, most = tonumber(ARGV[1]), tonumber(ARGV[2])
			local oldest = redis.call('LINDEX', KEYS[1], most - 1)
			if oldest and oldest + per > now then return 0 end
			redis.call('LPUSH', KEYS[1], string.format('%.0f', now))
			redis.call('LTRIM', KEYS[1], 0, most - 1)
			redis.call('PEXPIRE', KEYS[1], per)
			return 1`,
	},
	{
		name: "list and counter", like: "for each limit a list of slots and a counter, limits in JSON; it counts, then checks", keys: []string{"l", "c"},
		script: clock + `
			local admitted = 1
			for i, limit in ipairs(cjson.decode(ARGV[#ARGV])) do
				local list, counter = KEYS[2 * i - 1], KEYS[2 * i]
				local slot = math.floor(now / limit.resolution)
				local first = redis.call('LINDEX', list, 0)
				while first and (cjson.decode(first).slot + 1) * limit.resolution + limit.per <= now do
					redis.call('DECRBY', counter, cjson.decode(first).count)
					redis.call('LPOP', list)
					first = redis.call('LINDEX', list, 0)
				end
				local last = redis.call('LINDEX', list, -1)
				last = last and cjson.decode(last)
				if last and last.slot == slot then
					redis.call('LSET', list, -1, cjson.encode({slot = slot, count = last.count + 1}))
				else
					redis.call('RPUSH', list, cjson.encode({slot = slot, count = 1}))
				end
				local count = redis.call('INCRBY', counter, 1)
				redis.call('PEXPIRE', list, limit.per)
				redis.call('PEXPIRE', counter, limit.per)
				if count > limit.max then admitted = 0 end
			end
			return admitted`,
	},
}

// bound is a limit as the scripts are told it.
type bound struct {
	max int64
	per time.Duration
}

var (
	oneBound    = []bound{{50, time.Hour}}
	usedUp      = []bound{{4, time.Hour}}
	hotBound    = []bound{{1_000_000, time.Hour}}
	threeBounds = []bound{{50, 30 * time.Minute}, {50, time.Hour}, {200, 24 * time.Hour}}
)

const hotLike = "1000000/1h: one event all the time"

// scripted are the rows of the rivals: an admission, a denial, one event all the time, and three limits.
func scripted(client rueidis.Client) (rows []contender) {
	for _, r := range rivals {
		rows = append(rows,
			r.row(client, contender{name: r.name, like: r.like, allows: true}, oneBound),
			r.row(client, contender{name: r.name + ", denied", like: "4/1h: used up", beside: r.name}, usedUp),
			r.row(client, contender{name: r.name + ", hot", like: hotLike, beside: r.name, allows: true, hot: true}, hotBound),
			r.row(client, contender{name: r.name + ", 3 limits", like: r.calls(3) + ": 50/30m, 50/1h, 200/1d", beside: r.name, allows: true}, threeBounds))
	}
	return rows
}

// calls says how many calls so many limits take.
func (r rival) calls(limits int) string {
	if r.each {
		return fmt.Sprint(limits, " calls")
	}
	return "one call"
}

// row completes c. The state before is four admitted events.
func (r rival) row(client rueidis.Client, c contender, bounds []bound) contender {
	script := rueidis.NewLuaScript(r.script)
	groups := [][]bound{bounds}
	if r.each {
		groups = slices.Collect(slices.Chunk(bounds, 1))
	}
	c = askRow(c, func(ctx context.Context, event string) (bool, error) {
		for i, group := range groups {
			n, err := script.Exec(ctx, client, r.keysOf(event, i, len(group)), arguments(group)).AsInt64()
			if err != nil || n == 0 {
				return false, err
			}
		}
		return true, nil
	})
	c.keys, c.commands = len(r.keys)*len(bounds), map[string]int{"evalsha": len(groups)}
	return c
}

// keysOf are the keys of an event for so many limits, from that of a number on.
func (r rival) keysOf(event string, first, limits int) (keys []string) {
	for i := range limits {
		for _, key := range r.keys {
			keys = append(keys, "rival:{"+event+"}:"+strconv.Itoa(first+i)+key)
		}
	}
	return keys
}

// arguments are Per and Max of each limit, and all of them once more in JSON.
func arguments(bounds []bound) (args []string) {
	var inJSON []string
	for _, b := range bounds {
		per := b.per.Milliseconds()
		args = append(args, fmt.Sprint(per), fmt.Sprint(b.max))
		inJSON = append(inJSON, fmt.Sprintf(`{"per":%d,"max":%d,"resolution":%d}`, per, b.max, (per+59)/60))
	}
	return append(args, "["+strings.Join(inJSON, ",")+"]")
}
