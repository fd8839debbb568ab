package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestReshardingUnderLoad moves slots to another master and back, while callers send attempts on
// known and new events. No caller may get an error, no event may exceed its limit, and the state
// must agree with every single decision.
func TestReshardingUnderLoad(t *testing.T) {
	maxUnits := redistest.UnlessShort[int64](100, 60)
	nodes := redistest.Replicated(t)
	before := askRedirects(t, nodes)
	all := loadEveryKind(t, func(k kind) limiter { return k.newLimiter(t, nodes.Options(nil), perMonth(maxUnits)) }, knownAndNew())
	moveSlots(t, nodes, redistest.UnlessShort(8, 2))
	eachLoaded(t, all, func(t *testing.T, c *loadedLimiter) {
		eventually(t, "an event has reached its limit", func() bool { return c.denied.Load() > 0 })
		attempts := c.end()
		checkNoErrors(t, attempts)
		sum := checkCounts(t, c.limiter, maxUnits, attempts, nil)
		t.Logf("%d events: %+v", len(count(t, attempts)), sum)
		if askRedirects(t, nodes) == before {
			t.Error("this test proves too little: no call was redirected")
		}
	})
}

// twoKeys limits by a list of times and a counter, like limiters that use two keys per event.
const twoKeys = `
	if tonumber(redis.call('GET', KEYS[2]) or 0) >= 300 then return 0 end
	redis.call('RPUSH', KEYS[1], ARGV[1])
	return redis.call('INCR', KEYS[2])`

// TestTwoKeysForContrast shows that while a slot moves under the same load, Redis rejects calls to
// a script with two keys, with the error TRYAGAIN.
func TestTwoKeysForContrast(t *testing.T) {
	if testing.Short() {
		t.Skip("it shows a problem of another script")
	}
	nodes := redistest.Replicated(t)
	client, name, script := nodes.NewClient(t, nil), redistest.Key(t), rueidis.NewLuaScript(twoKeys)
	group := startLoad(t, 32, func(ctx context.Context, event string) (window.Decision, error) {
		key := name + ":{" + event + "}:"
		n, err := script.Exec(ctx, client, []string{key + "l", key + "c"}, []string{"1"}).AsInt64()
		return window.Decision{Allowed: n > 0}, err
	}, knownAndNew())
	moveSlots(t, nodes, 2)
	attempts := group.end()
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
		t.Error("this test proves too little: TRYAGAIN refused nothing")
	}
}
