package main

import (
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// A workload is limits and what is asked under them. Four units are counted before.
type workload struct {
	name   string // after that of the contender
	limits []string
	args   []string // the same as window.lua takes it
	denied bool
	hot    bool // all callers ask about one event
}

var (
	oneLimit    = workload{limits: []string{"50/1h"}, args: []string{"3600000", "50", "1"}}
	threeLimits = workload{
		name: ", 3 limits", limits: []string{"50/30m", "50/1h", "200/1d"},
		args: []string{"1800000", "50", "1", "3600000", "50", "1", "86400000", "200", "1440000"},
	}
	hotAllowed = workload{name: ", hot", hot: true, limits: []string{"1000000000000/1h"}, args: []string{"3600000", "1000000000000", "60000"}}
	hotDenied  = workload{name: ", hot, denied", hot: true, denied: true, limits: []string{"4/1h"}, args: []string{"3600000", "4", "1"}}
)

// limiterOf returns the row of a limiter of this library, or of an earlier revision of it.
func (w workload) limiterOf(name string, of maker) contender {
	c := contender{name: name + w.name, like: strings.Join(w.limits, ", "), allows: !w.denied, hot: w.hot, merges: w.hot}
	return limiterRow(of)(c, four, w.limits...)
}

// scriptOf returns the row of window.lua by rueidis.Lua.Exec.
func (w workload) scriptOf(client rueidis.Client) contender {
	c := alone(client, w.limiterOf("window.lua", windowMaker(client)), append([]string{"allow", "", "1"}, w.args...))
	c.name, c.merges = "window.lua"+w.name, false
	return c
}

// earlier makes limiters of an earlier revision of window. Only earlier.sh sets it.
var (
	earlier     func(client rueidis.Client) maker
	earlierName = "window before"
)

// windowsOf returns the rows of window, of its script, and of an earlier revision if there is one.
func (w workload) windowsOf(client rueidis.Client) []contender {
	rows := []contender{w.limiterOf("window", windowMaker(client)), w.scriptOf(client)}
	if earlier != nil {
		rows = append(rows, w.limiterOf(earlierName, earlier(client)))
	}
	return rows
}

// throughputRows are the contenders of the throughput part. Each is on the client that its users have.
func throughputRows(client rueidis.Client, theirs redis.UniversalClient) []contender {
	rated, others, constant := redisRate(theirs), libraries(theirs), floors(client)[0]
	constant.name = "constant"
	return slices.Concat(oneLimit.windowsOf(client), []contender{constant, rated[0]},
		threeLimits.windowsOf(client), []contender{rated[2], oneLimit.limiterOf("ar1", levelMaker(client)), others[0], others[2]})
}

// hotRows are the contenders of the part in which all callers ask about one event.
func hotRows(client rueidis.Client, theirs redis.UniversalClient) []contender {
	rated := redisRateHot(theirs)
	return slices.Concat(hotAllowed.windowsOf(client), rated[:1], hotDenied.windowsOf(client), rated[1:])
}

// pairs are the ratios that are printed if both contenders were measured.
func pairs() (all []pair) {
	for _, w := range []workload{oneLimit, threeLimits, hotAllowed, hotDenied} {
		for _, other := range []string{"window.lua", rate, earlierName} {
			all = append(all, pair{"window" + w.name, other + w.name})
		}
	}
	return append(all, pair{"window", "constant"}, pair{"window" + threeLimits.name, rate}, pair{"ar1", rate}, pair{"window.lua", rate}, pair{"constant", rate})
}
