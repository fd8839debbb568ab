package ar1_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/redistest"
)

// TestMergedUnderLoad plays the histories of TestHistories. Between the operations, up to 200
// callers ask for one unit each at the same time, while the clock stands still. Each counted unit
// raises the levels, so the answers show their order. The test compares them with the reference in
// that order.
func TestMergedUnderLoad(t *testing.T) {
	t.Parallel()
	for _, p := range plans {
		if p.cluster {
			continue // each plan runs both on one server and on a cluster
		}
		for name, onCluster := range map[string]bool{"redis": false, "cluster": true} {
			t.Run(p.name+", "+name, func(t *testing.T) {
				t.Parallel()
				there := p
				there.cluster = onCluster
				decisions, enough := 0, redistest.UnlessShort(decisionsPerPlan/2, decisionsPerPlan/40)
				for seed := uint64(1); decisions < enough; seed++ {
					decisions += there.runTogether(t, seed)
				}
			})
		}
	}
}

// runTogether plays one history of one event, and returns how many decisions it made.
func (p plan) runTogether(t *testing.T, seed uint64) (decisions int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, uint64(len(p.name))))
	h := &history{plan: p, rng: rng, ref: newReference(), event: fmt.Sprint("event ", seed)}
	h.contenders = p.contenders(t, &h.clock, true)
	h.clock.us.Store(noon + rng.Int64N(1<<50))
	for range 20 {
		h.pass()
		if h.ref.nearMinimum(h.clock.us.Load()) {
			break
		}
		h.step(t)
		n, ambiguous := h.together(t)
		if decisions += n; ambiguous {
			break
		}
		if t.Failed() {
			t.Fatalf("seed %d, after:\n%s", seed, strings.Join(h.steps, "\n"))
		}
	}
	return decisions + h.decisions
}

// together lets many callers ask at once, and compares each answer with the reference. It stops
// early if an answer depends on less than 10 µs.
func (h *history) together(t *testing.T) (decisions int, ambiguous bool) {
	t.Helper()
	who, before := h.rng.IntN(len(h.plan.callers)), h.ref
	attempts := 1 + h.rng.IntN(200)>>h.rng.IntN(4)
	h.record("%d: caller %d asks %d times at once", h.clock.us.Load(), who, attempts)
	for _, c := range h.contenders {
		h.ref = before.clone()
		for _, d := range inOrder(askAtOnce(t, c.limiters[who], h.event, attempts)) {
			if h.place(t, c.name, h.plan.callers[who], d) {
				return decisions, true
			}
			decisions++
		}
	}
	return decisions, false
}

// askAtOnce makes the given number of attempts of one unit at the same time.
func askAtOnce(t *testing.T, l *ar1.Limiter, event string, attempts int) []ar1.Decision {
	t.Helper()
	answers := make([]ar1.Decision, attempts)
	redistest.AtOnce(attempts, func(i int) { answers[i] = must(l.Allow(t.Context(), event)) })
	return answers
}

// inOrder sorts answers to attempts of one unit at the same time.
func inOrder(answers []ar1.Decision) []ar1.Decision {
	slices.SortFunc(answers, earlier)
	return answers
}

// earlier compares answers by their order: levels only rise, and once a unit is denied, all later
// units are.
func earlier(a, b ar1.Decision) int {
	for i := range a.Usage {
		if c := cmp.Compare(a.Usage[i].ResetAfter, b.Usage[i].ResetAfter); c != 0 {
			return c
		}
	}
	switch {
	case a.Allowed == b.Allowed:
		return 0
	case a.Allowed:
		return -1
	}
	return 1
}

// place compares an answer with the reference, and counts the unit in the reference. It reports
// whether the answer depends on less than 10 µs.
func (h *history) place(t *testing.T, name string, limits []ar1.Limit, d ar1.Decision) (ambiguous bool) {
	t.Helper()
	now := h.clock.us.Load()
	fits, ambiguous := h.ref.fits(limits, 1, now)
	if ambiguous {
		return true
	}
	counts := fits || h.plan.denials
	switch {
	case counts:
		h.ref.count(limits, 1, now)
		compact(h.ref)
	case now < h.ref.written && len(h.ref.counted) > 0:
		h.ref.write(now)
	}
	h.judge(t, name, limits, d, 1, fits, counts)
	return false
}

// compact merges units of the same age, so that the reference does not grow without bound.
func compact(r *reference) {
	for per, log := range r.counted {
		if n := len(log); n > 1 && log[n-1].age == log[n-2].age {
			log[n-2].units += log[n-1].units
			r.counted[per] = log[:n-1]
		}
	}
}
