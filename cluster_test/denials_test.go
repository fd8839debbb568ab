package cluster_test

import (
	"testing"

	"github.com/slidegate/slidegate/internal/redistest"
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
		eventually(t, "100 attempts are denied", func() bool { return c.denied.Load() >= 100 })
		t.Logf("%+v", checkCounts(t, c.limiter, maxUnits, c.end(), nil))
	})
}

// TestRememberedDenials checks that a Reset ends cached denials, whatever has happened in the
// cluster since they were cached.
func TestRememberedDenials(t *testing.T) {
	nodes := redistest.Replicated(t)
	shortNodeTimeout.set(t, nodes)
	for _, happens := range []struct {
		what string
		do   func()
	}{
		{"nothing", func() {}},
		{"slots move", func() { moveSlots(t, nodes, 1) }},
		{"a master hands over", func() { nodes.Failover(t, nodes.MasterOf(t, movedSlots[0])) }},
		{"connections are killed", func() { onAll(t, nodes, "CLIENT", "KILL", "TYPE", "normal") }},
	} {
		t.Run(happens.what, func(t *testing.T) {
			var all []cachedLimiter
			for _, k := range kinds {
				all = append(all, fillCache(t, k, nodes))
			}
			happens.do()
			for _, r := range all {
				t.Run(r.name, r.endsByReset)
			}
		})
	}
}

// cachedLimiter is a limiter with a DenialCache, and a limiter of the same name as in another
// process.
type cachedLimiter struct {
	kind
	here, other limiter
	events      []string
}

func fillCache(t *testing.T, k kind, nodes *redistest.Nodes) cachedLimiter {
	t.Helper()
	cfg := window.Config{Name: redistest.Key(t), Limits: []window.Limit{perMonth(1)}, DenialCache: 100}
	known, _ := movedEvents()
	r := cachedLimiter{k, must(k.newOnClient(nodes.NewClient(t, nil), cfg)), must(k.newOnClient(nodes.NewClient(t, nil), cfg)), known[:6]}
	for _, event := range r.events {
		for n := range 5 {
			if d := must(r.here.Allow(t.Context(), event)); d.Allowed != (n == 0) {
				t.Fatalf("%s, %s, %d: %+v", k.name, event, n, d)
			}
		}
	}
	return r
}

func (r cachedLimiter) endsByReset(t *testing.T) {
	for _, event := range r.events {
		answers := func(allowed bool) func() bool {
			return func() bool {
				d, err := r.here.Allow(t.Context(), event)
				if err == nil && d.Allowed && !allowed {
					t.Fatalf("%s is allowed: %+v", event, d)
				}
				return err == nil && d.Allowed == allowed
			}
		}
		eventually(t, event+" is denied", answers(false))
		eventually(t, event+" is reset", func() bool { return r.other.Reset(t.Context(), event) == nil })
		eventually(t, event+" is allowed", answers(true))
	}
}
