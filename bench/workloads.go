package main

import (
	"context"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/lua"
)

// workload holds the limits under which the parts throughput and hot measure contenders. Four units
// are counted beforehand.
type workload struct {
	name   string   // follows the contender's name
	limits []string // in the form that ParseLimit parses
	args   []string // the same, in the form that window.lua reads
	denied bool     // the limits are used up
	hot    bool     // all callers use one event
}

var (
	oneLimit    = workload{limits: []string{"50/1h"}, args: []string{"3600000", "50", "1"}}
	threeLimits = workload{
		name: ", 3 limits", limits: []string{"50/30m", "50/1h", "200/1d"},
		args: []string{"1800000", "50", "1", "3600000", "50", "1", "86400000", "200", "1440000"},
	}
	oneDenied  = workload{name: ", denied", denied: true, limits: []string{"4/1h"}, args: []string{"3600000", "4", "1"}}
	hotAllowed = workload{name: ", hot", hot: true, limits: []string{"1000000000000/1h"}, args: []string{"3600000", "1000000000000", "60000"}}
	hotDenied  = workload{name: ", hot, denied", hot: true, denied: true, limits: []string{"4/1h"}, args: []string{"3600000", "4", "1"}}
)

// row returns the row for a limiter.
func (w workload) row(name string, of maker) contender {
	c := contender{name: name + w.name, like: strings.Join(w.limits, ", "), allows: !w.denied, hot: w.hot}
	return limiterRow(of)(c, four, w.limits...)
}

// allow returns the arguments of window.lua for one attempt.
func (w workload) allow() []string { return append([]string{"allow", "", "1"}, w.args...) }

// windows returns the rows for window, for its script and, if there is one, for an earlier
// revision.
func (w workload) windows(client rueidis.Client) []contender {
	return append(both(w.row, "window", client, windowMaker, earlier.window), w.script(client))
}

// onGoRedis returns the rows for window on the go-redis client that the other libraries use.
func (w workload) onGoRedis(theirs redis.UniversalClient) []contender {
	return both(w.row, goRedisName, theirs, goRedisMaker, earlier.onGoRedis)
}

// locals returns the rows for window in memory, if there is an earlier revision to compare with.
func locals() []contender {
	if earlier.local == nil {
		return nil
	}
	row := func(name string, of maker) contender {
		return contender{name: name, like: hotAllowed.limits[0], allows: true, commands: map[string]int{}, ask: of(hotAllowed.limits, nil)}
	}
	return both(row, localName, nil, localMaker, earlier.local)
}

// script returns the row for window.lua, called through rueidis.Lua.Exec.
func (w workload) script(client rueidis.Client) contender {
	c, script, args := w.row("window.lua", windowMaker(client)), rueidis.NewLuaScript(lua.WindowFor("allow").Source), w.allow()
	c.like, c.merges = "the call of window, by rueidis.Lua.Exec", false
	c.ask = func(ctx context.Context, event string) (bool, error) {
		reply, err := script.Exec(ctx, client, []string{"login:{" + event + "}:w"}, args).AsIntSlice()
		return err == nil && reply[0] == 1, err
	}
	return c
}

// throughputRows returns the rows of the throughput part. Each contender uses the client that its
// users have.
func throughputRows(client rueidis.Client, theirs redis.UniversalClient) []contender {
	rated, others := redisRate(theirs), libraries(theirs)
	return slices.Concat(oneLimit.windows(client), oneLimit.onGoRedis(theirs), []contender{bare(client), rated[0]},
		threeLimits.windows(client), threeLimits.onGoRedis(theirs), []contender{rated[2]}, oneDenied.windows(client),
		both(oneLimit.row, "ar1", client, levelMaker, earlier.ar1), both(oneLimit.row, "pace", client, paceMaker, earlier.pace),
		both(loginRow, loginName, client, loggingIn, earlier.login), locals(), []contender{others[0], others[2]})
}

// hotRows returns the rows of the hot part.
func hotRows(client rueidis.Client, theirs redis.UniversalClient) []contender {
	rated := redisRateHot(theirs)
	return slices.Concat(hotAllowed.windows(client), hotAllowed.onGoRedis(theirs), rated[:1],
		hotDenied.windows(client), hotDenied.onGoRedis(theirs), rated[1:])
}

// pairs returns the ratios that are printed if both contenders of a pair were measured.
func pairs() (all []pair) {
	for _, w := range []workload{oneLimit, threeLimits, oneDenied, hotAllowed, hotDenied} {
		for _, other := range []string{"window.lua", rate, "window" + before} {
			all = append(all, pair{"window" + w.name, other + w.name})
		}
		for _, other := range []string{rate, "window", goRedisName + before} {
			all = append(all, pair{goRedisName + w.name, other + w.name})
		}
	}
	for _, name := range []string{"ar1", "pace", loginName, localName, "inflight", "inflight, full"} {
		all = append(all, pair{name, name + before})
	}
	return append(all, pair{"window", constant}, pair{"window" + threeLimits.name, rate},
		pair{"ar1", rate}, pair{"pace", "window"}, pair{"window.lua", rate}, pair{constant, rate},
		pair{"inflight", "window"}, pair{"inflight, full", "window"}, pair{"inflight", "sorted set"}, pair{"inflight, full", "sorted set, full"})
}
