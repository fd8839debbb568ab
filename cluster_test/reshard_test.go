package cluster_test

import (
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
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
		redistest.Eventually(t, "an event has reached its limit", func() bool { return c.denied.Load() > 0 })
		attempts := c.end()
		checkNoErrors(t, attempts)
		sum := checkCounts(t, c.limiter, maxUnits, attempts, nil)
		t.Logf("%d events: %+v", len(count(t, attempts)), sum)
		if askRedirects(t, nodes) == before {
			t.Error("this test proves too little: no call was redirected")
		}
	})
}
