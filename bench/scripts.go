package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// rival is a script as commonly written. The rivals were written from descriptions, for rueidis and
// any number of limits. Like window, each reads the server's clock, and decides on all limits in a
// single call.
type rival struct {
	name, like string
	keys       []string // the suffixes of its keys, per limit
	script     string
	inJSON     bool // the script reads the limits as JSON too
}

const clock = `local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000) `

// Each script returns 1 if it allows the event. ARGV holds the Per and Max of each limit.
var rivals = []rival{
	{
		name: "fixed window, two keys", like: "a counter, and a key with the end of its window; denials count", keys: []string{"n", "end"},
		script: clock + `
			local allowed = 1
			for i = 1, #KEYS, 2 do
				local per, ends = tonumber(ARGV[i]), tonumber(redis.call('GET', KEYS[i + 1]))
				if not ends or ends <= now then
					ends = now + per
					redis.call('SET', KEYS[i], 0, 'PX', per)
					redis.call('SET', KEYS[i + 1], string.format('%.0f', ends), 'PX', per)
				end
				if redis.call('INCRBY', KEYS[i], 1) > tonumber(ARGV[i + 1]) then allowed = 0 end
			end
			return allowed`,
	},
	{
		name: "token bucket", like: "tokens and the time of the last refill in a hash, refilled on access", keys: []string{"b"},
		script: clock + `
			local left, at = {}, string.format('%.0f', now)
			for i = 1, #KEYS do
				local most = tonumber(ARGV[2 * i])
				local b = redis.call('HMGET', KEYS[i], 'tokens', 'time')
				left[i] = math.min(most, (b[1] or most) + (now - (b[2] or now)) * most / tonumber(ARGV[2 * i - 1]))
				if left[i] < 1 then return 0 end
			end
			for i = 1, #KEYS do
				redis.call('HSET', KEYS[i], 'tokens', left[i] - 1, 'time', at)
				redis.call('PEXPIRE', KEYS[i], ARGV[2 * i - 1])
			end
			return 1`,
	},
	{
		name: "log in a sorted set", like: "a member for each allowed event, by a script", keys: []string{"z"},
		script: clock + `
			for i = 1, #KEYS do
				redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', string.format('%.0f', now - tonumber(ARGV[2 * i - 1])))
				if redis.call('ZCARD', KEYS[i]) >= tonumber(ARGV[2 * i]) then return 0 end
			end
			local score, member = string.format('%.0f', now), t[1] .. '.' .. t[2]
			for i = 1, #KEYS do
				redis.call('ZADD', KEYS[i], score, member)
				redis.call('PEXPIRE', KEYS[i], ARGV[2 * i - 1])
			end
			return 1`,
	},
	{
		name: "log in a list", like: "the times of the last Max allowed events, by a script", keys: []string{"l"},
		script: clock + `
			for i = 1, #KEYS do
				local oldest = redis.call('LINDEX', KEYS[i], tonumber(ARGV[2 * i]) - 1)
				if oldest and oldest + tonumber(ARGV[2 * i - 1]) > now then return 0 end
			end
			local at = string.format('%.0f', now)
			for i = 1, #KEYS do
				redis.call('LPUSH', KEYS[i], at)
				redis.call('LTRIM', KEYS[i], 0, tonumber(ARGV[2 * i]) - 1)
				redis.call('PEXPIRE', KEYS[i], ARGV[2 * i - 1])
			end
			return 1`,
	},
	{
		name: "list and counter", like: "for each limit a list of slots and a counter, limits in JSON; it counts, then checks", keys: []string{"l", "c"}, inJSON: true,
		script: clock + `
			local allowed = 1
			for i, limit in ipairs(cjson.decode(ARGV[#ARGV])) do
				local list, counter = KEYS[2 * i - 1], KEYS[2 * i]
				local slot = math.floor(now / limit.resolution)
				local first = redis.call('LINDEX', list, 0)
				while first do
					local slots = cjson.decode(first)
					if (slots.slot + 1) * limit.resolution + limit.per > now then break end
					redis.call('DECRBY', counter, slots.count)
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
				if count > limit.max then allowed = 0 end
			end
			return allowed`,
	},
}

// bound is a limit: at most max units in per.
type bound struct {
	max int64
	per time.Duration
}

var (
	oneBound    = []bound{{50, time.Hour}}
	usedUp      = []bound{{4, time.Hour}}
	threeBounds = []bound{{50, 30 * time.Minute}, {50, time.Hour}, {200, 24 * time.Hour}}
)

// scripted returns the rows for the rivals: allowed, denied, and with three limits.
func scripted(client rueidis.Client) (rows []contender) {
	for _, r := range rivals {
		rows = append(rows,
			r.row(client, contender{name: r.name, like: r.like, allows: true}, oneBound),
			r.row(client, contender{name: r.name + ", denied", like: "4/1h: used up", beside: r.name}, usedUp),
			r.row(client, contender{name: r.name + ", 3 limits", like: "50/30m, 50/1h, 200/1d in one call", beside: r.name, allows: true}, threeBounds))
	}
	return rows
}

// row completes a row whose events have been allowed four times.
func (r rival) row(client rueidis.Client, c contender, bounds []bound) contender {
	script, args := rueidis.NewLuaScript(r.script), r.arguments(bounds) // once, as in window
	c = askRow(c, func(ctx context.Context, event string) (bool, error) {
		n, err := script.Exec(ctx, client, r.keysOf(event, len(bounds)), args).AsInt64()
		return n == 1, err
	})
	c.keys = len(r.keys) * len(bounds)
	return c
}

// keysOf returns the Redis keys of an event.
func (r rival) keysOf(event string, limits int) (keys []string) {
	for i := range limits {
		for _, key := range r.keys {
			keys = append(keys, "rival:{"+event+"}:"+strconv.Itoa(i)+key)
		}
	}
	return keys
}

// arguments returns the Per and Max of each limit and, if the script reads them, the limits as
// JSON.
func (r rival) arguments(bounds []bound) (args []string) {
	var inJSON []string
	for _, b := range bounds {
		per := b.per.Milliseconds()
		args = append(args, fmt.Sprint(per), fmt.Sprint(b.max))
		inJSON = append(inJSON, fmt.Sprintf(`{"per":%d,"max":%d,"resolution":%d}`, per, b.max, (per+59)/60))
	}
	if r.inJSON {
		args = append(args, "["+strings.Join(inJSON, ",")+"]")
	}
	return args
}
