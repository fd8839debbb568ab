package cluster_test

import (
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestRememberedUnderLoad checks the counts of limiters with a DenialCache while slots move, a
// replica takes over, and connections are cut.
func TestRememberedUnderLoad(t *testing.T) {
	const maxUnits = 5
	nodes, faults := redistest.Replicated(t), &redistest.Faults{}
	shortNodeTimeout.set(t, nodes)
	all := loadEveryKind(t, func(k kind) limiter {
		cfg := window.Config{Name: redistest.Key(t), Limits: []window.Limit{perMonth(maxUnits)}, DenialCache: 1000}
		return must(k.newOnClient(nodes.NewClient(t, faults.Break), cfg))
	}, knownAndNew())
	moveSlots(t, nodes, redistest.UnlessShort(2, 1))
	nodes.Failover(t, nodes.MasterOf(t, movedSlots[0]))
	faults.Cut()
	eachLoaded(t, all, func(t *testing.T, c *loadedLimiter) {
		redistest.Eventually(t, "100 attempts are denied", func() bool { return c.denied.Load() >= 100 })
		t.Logf("%+v", checkCounts(t, c.limiter, maxUnits, c.end(), nil))
	})
}
