package cluster_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestEachUnderLoad: while slots move, callers decide about many events in one call. It is as if they came one by one.
func TestEachUnderLoad(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		most := redistest.UnlessShort[int64](300, 100)
		nodes := redistest.Replicated(t)
		l := k.of(t, nodes.Options(nil), months(most))
		known, fresh := movedEvents()
		before, batches := asks(t, nodes), make(chan []attempt)
		done := make(chan struct{})
		for c := range 4 {
			go func() {
				var mine []attempt
				for n := 0; ; n++ {
					select {
					case <-done:
						batches <- mine
						return
					default:
						from := (c + 4*n) * 20 % len(fresh)
						mine = append(mine, batch(l, slices.Concat(fresh[from:min(from+20, len(fresh))], known))...)
					}
				}
			}()
		}
		thereAndBack(t, nodes, redistest.UnlessShort(3, 1))
		close(done)
		var attempts []attempt
		for range 4 {
			attempts = append(attempts, <-batches...)
		}
		clean(t, attempts)
		sum := settle(t, l, most, attempts, nil)
		t.Logf("%d events: %+v", len(count(t, attempts)), sum)
		if sum.denied == 0 || asks(t, nodes) == before {
			t.Error("a poor test: no event reached its limit, or no call was sent on")
		}
	})
}

// batch is an attempt on each of the events, in one call.
func batch(l limiter, events []string) []attempt {
	began := time.Now()
	results := l.AllowEach(context.Background(), events)
	attempts := make([]attempt, len(events))
	for i, r := range results {
		attempts[i] = attempt{events[i], r.Decision, r.Err, began, time.Since(began)}
	}
	return attempts
}

// TestRememberedUnderLoad: with a DenialCache the count is the same, while slots move, a master hands over, and connections are cut.
func TestRememberedUnderLoad(t *testing.T) {
	const most = 5
	nodes, faults := redistest.Replicated(t), &redistest.Faults{}
	quick.set(t, nodes)
	all := contest(t, func(k kind) limiter {
		cfg := window.Config{Name: redistest.Key(t), Limits: []window.Limit{months(most)}, DenialCache: 1000}
		return must(k.make(nodes.NewClient(t, faults.Break), cfg))
	}, knownAndNew())
	thereAndBack(t, nodes, redistest.UnlessShort(2, 1))
	nodes.Failover(t, nodes.MasterOf(t, moved[0]))
	faults.Cut()
	judge(t, all, func(t *testing.T, c *contestant) {
		sum := settle(t, c.limiter, most, c.end(), nil)
		t.Logf("%+v", sum)
		if sum.denied < 100 {
			t.Error("a poor test: hardly an event reached its limit")
		}
	})
}

// TestRememberedDenials end by a Reset, whatever has happened to the cluster since.
func TestRememberedDenials(t *testing.T) {
	nodes := redistest.Replicated(t)
	quick.set(t, nodes)
	for _, happens := range []struct {
		what string
		do   func()
	}{
		{"nothing", func() {}},
		{"slots move", func() { thereAndBack(t, nodes, 1) }},
		{"a master hands over", func() { nodes.Failover(t, nodes.MasterOf(t, moved[0])) }},
		{"connections are killed", func() { onAll(t, nodes, "CLIENT", "KILL", "TYPE", "normal") }},
	} {
		t.Run(happens.what, func(t *testing.T) {
			var all []rememberer
			for _, k := range kinds {
				all = append(all, remember(t, k, nodes))
			}
			happens.do()
			for _, r := range all {
				t.Run(r.name, r.endsByReset)
			}
		})
	}
}

// A rememberer is a limiter that remembers denials, and the same in another process.
type rememberer struct {
	kind
	here, other limiter
	events      []string
}

func remember(t *testing.T, k kind, nodes *redistest.Nodes) rememberer {
	t.Helper()
	cfg := window.Config{Name: redistest.Key(t), Limits: []window.Limit{months(1)}, DenialCache: 100}
	known, _ := movedEvents()
	r := rememberer{k, must(k.make(nodes.NewClient(t, nil), cfg)), must(k.make(nodes.NewClient(t, nil), cfg)), known[:6]}
	for _, event := range r.events {
		for n := range 5 {
			if d := must(r.here.Allow(t.Context(), event)); d.Allowed != (n == 0) {
				t.Fatalf("%s, %s, %d: %+v", k.name, event, n, d)
			}
		}
	}
	return r
}

func (r rememberer) endsByReset(t *testing.T) {
	for _, event := range r.events {
		answers := func(allowed bool) func() bool {
			return func() bool {
				d, err := r.here.Allow(t.Context(), event)
				if err == nil && d.Allowed && !allowed {
					t.Fatalf("%s is admitted: %+v", event, d)
				}
				return err == nil && d.Allowed == allowed
			}
		}
		eventually(t, event+" is denied", answers(false))
		eventually(t, event+" is reset", func() bool { return r.other.Reset(t.Context(), event) == nil })
		eventually(t, event+" is admitted", answers(true))
	}
}
