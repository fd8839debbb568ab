package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// moved are the slots that move, one of each master.
var moved = []int{100, 6000, 12_000}

// TestReshardingUnderLoad: while slots move to another master and back, 32 callers decide about events that are known and about
// new ones. None sees an error, no event is admitted beyond its limit, and the state agrees with every single answer.
func TestReshardingUnderLoad(t *testing.T) {
	most := redistest.UnlessShort[int64](300, 60)
	nodes := redistest.Replicated(t)
	before := asks(t, nodes)
	all := contest(t, func(k kind) limiter { return k.of(t, nodes.Options(nil), months(most)) }, knownAndNew())
	thereAndBack(t, nodes, redistest.UnlessShort(8, 2))
	judge(t, all, func(t *testing.T, c *contestant) {
		eventually(t, "an event has reached its limit", func() bool { return c.denied.Load() > 0 })
		attempts := c.end()
		clean(t, attempts)
		sum := settle(t, c.limiter, most, attempts, nil)
		t.Logf("%d events: %+v", len(count(t, attempts)), sum)
		if asks(t, nodes) == before {
			t.Error("a poor test: no call was sent on")
		}
	})
}

// thereAndBack moves the slots so many times to the next master and back.
func thereAndBack(t *testing.T, nodes *redistest.Nodes, times int) {
	t.Helper()
	for range times {
		for i, slot := range moved {
			home := nodes.MasterOf(t, slot)
			nodes.Move(t, slot, nodes.MasterOf(t, moved[(i+1)%len(moved)]))
			nodes.Move(t, slot, home)
		}
	}
}

// asks is how often nodes sent a call on by ASK, which they do while a slot moves.
func asks(t *testing.T, nodes *redistest.Nodes) string {
	t.Helper()
	var all []string
	for _, s := range nodes.All {
		all = append(all, regexp.MustCompile(`errorstat_ASK:count=\d+`).FindString(must(s.Do(t.Context(), "INFO", "errorstats").ToString())))
	}
	return fmt.Sprint(all)
}

// knownAndNew are events of the slots that move: a few again and again, and every tenth time a new one.
func knownAndNew() func(n int) string {
	known, fresh := movedEvents()
	return func(n int) string {
		if n%10 == 0 && n/10 < len(fresh) {
			return fresh[n/10]
		}
		return known[n%len(known)]
	}
}

var movedEvents = sync.OnceValues(func() (known, fresh []string) { return eventsOf("known", 10), eventsOf("new", 700) })

// eventsOf are so many of each slot that moves, in turn.
func eventsOf(name string, each int) (all []string) {
	of := map[int][]string{}
	for n, full := 0, 0; full < len(moved); n++ {
		event := name + "-" + strconv.Itoa(n)
		slot := slotOf(event)
		if slices.Contains(moved, slot) && len(of[slot]) < each {
			of[slot] = append(of[slot], event)
			if len(of[slot]) == each {
				full++
			}
		}
	}
	for i := range each {
		for _, slot := range moved {
			all = append(all, of[slot][i])
		}
	}
	return all
}

// twoKeys limits by a list of times and a counter, as limiters do that keep one key for each.
const twoKeys = `
	if tonumber(redis.call('GET', KEYS[2]) or 0) >= 300 then return 0 end
	redis.call('RPUSH', KEYS[1], ARGV[1])
	return redis.call('INCR', KEYS[2])`

// TestTwoKeysForContrast: the same load on a script with two keys is refused by TRYAGAIN while a slot moves.
func TestTwoKeysForContrast(t *testing.T) {
	if testing.Short() {
		t.Skip("it shows what is wrong with another script")
	}
	nodes := redistest.Replicated(t)
	client, name, script := nodes.NewClient(t, nil), redistest.Key(t), rueidis.NewLuaScript(twoKeys)
	crowd := load(t, 32, func(ctx context.Context, event string) (window.Decision, error) {
		key := name + ":{" + event + "}:"
		n, err := script.Exec(ctx, client, []string{key + "l", key + "c"}, []string{"1"}).AsInt64()
		return window.Decision{Allowed: n > 0}, err
	}, knownAndNew())
	thereAndBack(t, nodes, 2)
	attempts := crowd.end()
	again := 0
	for _, a := range attempts {
		var reply *rueidis.RedisError
		switch {
		case errors.As(a.err, &reply) && strings.HasPrefix(reply.Error(), "TRYAGAIN"):
			again++
		case a.err != nil:
			t.Error(a.err)
		}
	}
	t.Logf("%d of %d attempts were refused by TRYAGAIN", again, len(attempts))
	if again == 0 {
		t.Error("a poor test: TRYAGAIN refused nothing")
	}
}
