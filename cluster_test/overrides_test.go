package cluster_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// overridesEvery is the age at which a process rereads its copy of the overrides.
const overridesEvery = 5 * time.Second

// overrideSteps lists what decides on each event, one step after another.
var overrideSteps = []inForce{
	{max: 30},
	{mode: window.OverrideLimits, max: 60},
	{mode: window.OverrideBlock},
	{mode: window.OverrideLimits, max: 120},
	{mode: window.OverrideUnlimited},
	{max: 30},
	{mode: window.OverrideLimits, max: 180},
	{mode: window.OverrideLimits, max: 90},
	{mode: window.OverrideLimits, max: 240},
}

// inForce is what decides on an event: an override or, if mode is empty, the limiter's own limit.
type inForce struct {
	mode       window.OverrideMode
	max        int64
	from, till time.Time // when the call that set it began and ended; zero if it was in force from the start
}

func (f inForce) String() string {
	return fmt.Sprintf("%s%d from %s", f.mode, f.max, f.from.Format(time.TimeOnly+".000"))
}

// decided reports whether f can have made the given decision.
func (f inForce) decided(d *window.Decision) bool {
	return d.Override == f.mode && (f.max == 0 || d.Usage[0].Limit == perMonth(f.max))
}

// overrideProcess represents a limiter in a process of its own, under load.
type overrideProcess struct {
	name string
	*window.Limiter
	*callerGroup
}

// startOverrideProcesses starts processes whose limiters have the same name: one without a
// DenialCache, one with it, and one on go-redis with it.
func startOverrideProcesses(t *testing.T, nodes *redistest.Nodes, events []string) (all []*overrideProcess) {
	t.Helper()
	name := redistest.Key(t)
	for _, p := range []struct {
		name  string
		open  faulttest.Open
		cache int
	}{{"plain", faulttest.Rueidis, 0}, {"cached", faulttest.Rueidis, 100}, {"go-redis", goRedis, 100}} {
		cfg := window.Config{
			Name: name, Limits: []window.Limit{perMonth(overrideSteps[0].max)}, DenialCache: p.cache, Overrides: true, Timeout: time.Minute,
		}
		l := must(window.New(p.open(t, nodes.Options(nil)), cfg))
		all = append(all, &overrideProcess{p.name, l, startLoad(t, 4, l.Allow, roundRobin(events))})
	}
	return all
}

// change changes what decides on an event.
func (p *overrideProcess) change(t *testing.T, event string, to inForce) inForce {
	to.from = time.Now()
	var err error
	if to.mode == "" {
		_, err = p.EndOverride(t.Context(), event)
	} else {
		o := window.Override{Mode: to.mode, Why: "on call"}
		if to.max > 0 {
			o.Limits = []window.Limit{perMonth(to.max)}
		}
		err = p.Override(t.Context(), event, o, time.Hour)
	}
	if err != nil {
		t.Errorf("%s, %+v: %v", event, to, err)
	}
	to.till = time.Now()
	return to
}

// TestOverridesUnderLoad moves the slots of events and the slot of the overrides, while processes
// decide and one of them changes the overrides. Each decision must be made by what was in force
// when the process could last read the overrides, and never by anything older than what an earlier
// decision of that process used. Under the limits that decided, each denial and each allowed
// attempt must be right.
func TestOverridesUnderLoad(t *testing.T) {
	nodes, steps := redistest.Replicated(t), overrideSteps[:redistest.UnlessShort(len(overrideSteps), 3)]
	known, _ := movedEvents()
	events, before := known[:6], askRedirects(t, nodes)
	all, history := startOverrideProcesses(t, nodes, events), map[string][]inForce{}
	for _, event := range events {
		history[event] = []inForce{steps[0]}
	}
	var changes sync.WaitGroup
	var changed atomic.Bool
	changes.Go(func() {
		defer changed.Store(true)
		pace := time.NewTicker(redistest.UnlessShort(400*time.Millisecond, 200*time.Millisecond))
		defer pace.Stop()
		for _, step := range steps[1:] {
			for _, event := range events {
				<-pace.C
				history[event] = append(history[event], all[0].change(t, event, step))
			}
		}
	})
	t.Cleanup(changes.Wait)
	for !changed.Load() {
		moveSlots(t, nodes, 1)
		moveSlot(t, nodes, keys.Slot("{overrides}"))
	}
	var attempts []attempt
	for _, p := range all {
		p.awaitOverrides(t, events, steps[len(steps)-1])
		mine := p.end()
		checkNoErrors(t, mine)
		mine = slices.DeleteFunc(mine, func(a attempt) bool { return a.err != nil })
		attempts = append(attempts, mine...)
		p.checkHistory(t, history, mine)
	}
	for event, about := range byEvent(attempts) {
		if used := must(all[0].Inspect(t.Context(), event)).Limits[0].Used; used != checkUnderOverrides(t, about) {
			t.Errorf("%s: %d units are counted", event, used)
		}
	}
	checkOverridesSeen(t, attempts, steps)
	if askRedirects(t, nodes) == before {
		t.Error("a poor test: no call was redirected")
	}
}

// awaitOverrides waits until the process decides by what is in force.
func (p *overrideProcess) awaitOverrides(t *testing.T, events []string, last inForce) {
	t.Helper()
	for _, event := range events {
		redistest.Eventually(t, p.name+" notices the last override of "+event, func() bool {
			d := must(p.Peek(t.Context(), event))
			return last.decided(&d)
		})
	}
}

// byEvent returns the attempts on each event, ordered by when they began.
func byEvent(attempts []attempt) map[string][]attempt {
	of := map[string][]attempt{}
	for _, a := range attempts {
		of[a.event] = append(of[a.event], a)
	}
	for _, about := range of {
		slices.SortFunc(about, func(a, b attempt) int { return a.began.Compare(b.began) })
	}
	return of
}

// checkHistory checks that every attempt of the process was decided by what was in force when the
// process could last read the overrides. A process rereads them after a decision that finds its
// copy too old. It can therefore be late by the longest time without decisions, plus the duration
// of its calls.
func (p *overrideProcess) checkHistory(t *testing.T, history map[string][]inForce, attempts []attempt) {
	t.Helper()
	slices.SortFunc(attempts, func(a, b attempt) int { return a.began.Compare(b.began) })
	const slack = 2 * time.Second
	late := slack
	for i, a := range attempts {
		late = max(late, slack+a.took)
		if i > 0 {
			late = max(late, slack+a.began.Sub(attempts[i-1].began))
		}
	}
	var oldest time.Duration
	for event, about := range byEvent(attempts) {
		if n, age := inOrder(history[event], about, overridesEvery+late); n < len(about) {
			a := about[n]
			t.Errorf("%s, %s, at %s: decided by %q, %v; in force were %v", p.name, event, a.began.Format(time.TimeOnly+".000"), a.decision.Override, a.decision.Usage[0].Limit, history[event])
		} else {
			oldest = max(oldest, age)
		}
	}
	t.Logf("%s: %d decisions, by something that had been in force up to %v before", p.name, len(attempts), oldest.Round(time.Millisecond))
}

// inOrder returns how many attempts were decided by what was in force no more than age before the
// attempt, and by nothing older than what decided any attempt that had ended before. It also
// returns the greatest age that it found.
func inOrder(history []inForce, attempts []attempt, age time.Duration) (n int, oldest time.Duration) {
	type seen struct {
		ended time.Time
		step  int
	}
	var open []seen
	known := 0 // the oldest step that can still decide
	for n, a := range attempts {
		open = slices.DeleteFunc(open, func(s seen) bool {
			if s.ended.Before(a.began) {
				known = max(known, s.step)
			}
			return s.ended.Before(a.began)
		})
		step := decider(history, known, a, age)
		if step < 0 {
			return n, oldest
		}
		oldest = max(oldest, passed(history, step, a.began))
		open = append(open, seen{a.ended(), step})
	}
	return len(attempts), oldest
}

// decider returns the first step, starting at first, that can have decided an attempt and was still
// in force no more than age before the attempt. It returns -1 if there is none.
func decider(history []inForce, first int, a attempt, age time.Duration) int {
	for step := first; step < len(history); step++ {
		if f := history[step]; f.decided(&a.decision) && f.from.Before(a.ended()) && passed(history, step, a.began) <= age {
			return step
		}
	}
	return -1
}

// passed returns for how long a step had no longer been in force at the given time, or 0 if it
// still was.
func passed(history []inForce, step int, at time.Time) time.Duration {
	if step+1 == len(history) {
		return 0
	}
	return max(0, at.Sub(history[step+1].till))
}

// checkUnderOverrides checks each attempt on an event against the limits that decided it. When an
// allowed attempt began, the units counted until then must have left room for it. When a denied
// attempt ended, the limit must have been reached. It returns how many units were counted.
func checkUnderOverrides(t *testing.T, attempts []attempt) (counted int64) {
	t.Helper()
	var began, ended []time.Time
	for _, a := range attempts {
		if a.allowed() && a.decision.Override != window.OverrideUnlimited {
			began, ended = append(began, a.began), append(ended, a.ended())
		}
	}
	slices.SortFunc(began, time.Time.Compare)
	slices.SortFunc(ended, time.Time.Compare)
	before := func(times []time.Time, at time.Time) int64 {
		n, _ := slices.BinarySearchFunc(times, at, time.Time.Compare)
		return int64(n)
	}
	for _, a := range attempts {
		if a.err != nil || a.decision.Override == window.OverrideUnlimited || a.decision.Override == window.OverrideBlock {
			continue
		}
		limit := a.decision.Usage[0].Limit
		if n := before(ended, a.began); a.decision.Allowed && n >= limit.Max {
			t.Errorf("%s: allowed under %v, after %d units", a.event, limit, n)
		}
		if n := before(began, a.ended()); !a.decision.Allowed && n < limit.Max {
			t.Errorf("%s: denied under %v, after %d units", a.event, limit, n)
		}
	}
	return int64(len(began))
}

// checkOverridesSeen checks that every step decided at least one attempt, and that the limits of
// overrides both allowed and denied attempts.
func checkOverridesSeen(t *testing.T, attempts []attempt, steps []inForce) {
	t.Helper()
	seen := map[string]int{}
	for _, a := range attempts {
		for _, step := range steps {
			if step.decided(&a.decision) {
				seen[fmt.Sprint(step.mode, step.max)]++
			}
		}
		seen[fmt.Sprint(a.decision.Override, " ", a.decision.Allowed)]++
	}
	for _, step := range steps {
		if seen[fmt.Sprint(step.mode, step.max)] == 0 {
			t.Errorf("a poor test: nothing was decided by %+v", step)
		}
	}
	if seen["limits true"] == 0 || seen["limits false"] == 0 {
		t.Error("a poor test: the limits of overrides did not allow, or not deny")
	}
	t.Logf("decisions: %v", seen)
}
