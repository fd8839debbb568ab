package window_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// decisionsPerPlan is how many decisions the histories of each plan make in memory. The first
// decisionsOnRedis decisions are also made on Redis.
const (
	decisionsPerPlan = 10_000
	decisionsOnRedis = 3_000
)

// plan is a kind of history.
type plan struct {
	name    string
	callers [][]window.Limit // each caller has its own limits; all share one name
	denials bool             // denied attempts count
	jumps   bool             // the clock steps back and jumps ahead, by 1 ms to 1 year
}

var plans = []plan{
	{name: "one exact limit", callers: [][]window.Limit{{window.PerSecond(3)}}},
	{name: "three limits", callers: [][]window.Limit{{limit("1/500ms"), limit("4/5s"), limit("90/10m")}}},
	{name: "clock", callers: [][]window.Limit{{limit("2/1s"), limit("7/10s@300ms")}}, jumps: true},
	{name: "clock, four limits", callers: [][]window.Limit{{limit("1/1s"), limit("3/10s"), limit("300/1h"), limit("5/30d@1d")}}, jumps: true},
	{name: "months", callers: [][]window.Limit{{limit("40/60d"), limit("300/1d"), limit("200/90d@1d")}}},
	{name: "denials count", callers: [][]window.Limit{{limit("3/1s"), limit("20/1m@7s")}}, denials: true},
	{name: "denials count, clock", callers: [][]window.Limit{{limit("2/1s@1s"), limit("9/20s")}}, denials: true, jumps: true},
	{name: "two callers", callers: [][]window.Limit{{limit("2/1s"), limit("6/5s")}, {limit("9/5s@1s"), limit("20/1m"), limit("2/300ms")}}},
	{name: "changes, clock", jumps: true, callers: [][]window.Limit{
		{limit("2/1s"), limit("6/5s")}, {limit("6/5s"), limit("2/1s")}, {limit("3/5s@5s")}, {limit("900/5s"), limit("100000/1h"), limit("1/1s")},
	}},
	{name: "many at once", callers: [][]window.Limit{{limit("40/1s"), limit("150/10s@100ms")}}},
	{name: "many at once, denials count, clock", callers: [][]window.Limit{{limit("40/1s"), limit("150/10s")}}, denials: true, jumps: true},
	{name: "large", callers: [][]window.Limit{{{Max: 1 << 53, Per: time.Hour}, {Max: 70_000, Per: 100 * time.Second, Resolution: 400 * time.Millisecond}}}},
}

// TestHistories runs random histories in memory, and the first histories of each plan also on
// Redis. It compares every answer with the exact log.
func TestHistories(t *testing.T) {
	for _, p := range plans {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			decisions, enough := 0, redistest.UnlessShort(decisionsPerPlan, decisionsPerPlan/20)
			for seed := uint64(1); decisions < enough; seed++ {
				decisions += p.run(t, seed, decisions < decisionsOnRedis)
			}
		})
	}
}

// contender holds a limiter under test for each caller of the plan. The limiters share a clock.
type contender struct {
	name     string
	clock    *clock
	limiters []*window.Limiter
}

func (p plan) contenders(t *testing.T, c *clock, onRedis bool) []contender {
	remote, local := contender{name: "redis", clock: c}, contender{name: "local", clock: c}
	cfg := window.Config{Name: redistest.Key(t), Limits: p.callers[0], CountDenied: p.denials, Now: c.now, Timeout: time.Minute}
	remote.limiters, local.limiters = p.callersOf(must(window.New(window.On(redistest.Client(t)), cfg))), p.callersOf(must(window.NewLocal(cfg)))
	for i := 1; i < len(p.callers); i += 2 { // every second caller is in another process
		cfg.Limits = p.callers[i]
		remote.limiters[i] = must(window.New(window.On(redistest.Client(t)), cfg))
	}
	if !onRedis {
		return []contender{local}
	}
	return []contender{remote, local}
}

// callersOf returns the limiters of all callers, derived from the first caller's limiter.
func (p plan) callersOf(first *window.Limiter) (limiters []*window.Limiter) {
	for _, limits := range p.callers {
		limiters = append(limiters, must(first.With(limits...)))
	}
	return limiters
}

// run plays one history of one event, and returns how many decisions it made.
func (p plan) run(t *testing.T, seed uint64, onRedis bool) (decisions int) {
	rng := rand.New(rand.NewPCG(seed, uint64(len(p.name))))
	h := &history{plan: p, rng: rng, log: newExactLog(), event: fmt.Sprint("event ", seed)}
	h.contenders = p.contenders(t, &h.clock, onRedis)
	h.clock.ms.Store(1_700_000_000_000 + rng.Int64N(1<<40))
	for range 30 + rng.IntN(200) {
		decisions += h.step(t)
		if t.Failed() {
			t.Fatalf("seed %d, after:\n%s", seed, strings.Join(h.steps, "\n"))
		}
	}
	return decisions
}

// history is the sequence of operations on one event.
type history struct {
	plan       plan
	rng        *rand.Rand
	clock      clock
	log        *exactLog
	event      string
	contenders []contender
	decided    []window.Decision // decisions that counted something
	jumped     int64             // how far the clock has jumped ahead
	steps      []string
}

// step lets time pass and performs one operation.
func (h *history) step(t *testing.T) (decisions int) {
	h.pass()
	caller := h.rng.IntN(len(h.plan.callers))
	switch dice := h.rng.IntN(100); {
	case dice < 50:
		h.decide(t, caller, "allow")
		return 1
	case dice < 65:
		h.decide(t, caller, "peek")
		return 1
	case dice < 78:
		h.decide(t, caller, "upTo")
		return 1
	case dice < 83:
		h.decide(t, caller, "charge")
		return 1
	case dice < 88:
		h.settle(t, caller)
	case dice < 93:
		h.refund(t, caller)
	case dice < 99:
		h.inspect(t, caller)
	default:
		h.reset(t)
	}
	return 0
}

// pass moves the clock, usually by a little. If the plan has jumps, the clock also jumps ahead and
// back.
func (h *history) pass() {
	limits := h.plan.callers[h.rng.IntN(len(h.plan.callers))]
	per := limits[h.rng.IntN(len(limits))].Per.Milliseconds()
	h.clock.ms.Add(h.rng.Int64N(max(2, per/int64(1+h.rng.IntN(8)))))
	if h.rng.IntN(4) == 0 { // exactly at the edge of a window
		h.clock.ms.Add(per - per/2)
	}
	if !h.plan.jumps || h.rng.IntN(6) > 0 {
		return
	}
	if h.jumped == 0 || h.rng.IntN(3) == 0 {
		year := (365 * 24 * time.Hour).Milliseconds()
		jump := h.rng.Int64N(1 + year>>h.rng.IntN(35))
		h.jumped += jump
		h.clock.ms.Add(jump)
	} else {
		h.clock.ms.Add(-h.jumped)
		h.jumped = 0
	}
	if h.rng.IntN(5) == 0 {
		h.clock.ms.Add(-h.rng.Int64N(1 + per>>h.rng.IntN(10)))
	}
}

func (h *history) decide(t *testing.T, caller int, verb string) {
	limits, now := h.plan.callers[caller], h.clock.ms.Load()
	n := int64(1)
	if h.rng.IntN(3) == 0 {
		n = h.units(limits)
	}
	if (verb == "upTo" || verb == "charge") && h.rng.IntN(3) > 0 {
		n += h.rng.Int64N(8)
	}
	want := h.log.decide(limits, verb, n, now, h.plan.denials)
	h.record("%d: caller %d, %s %d: granted %d, wait %v", now, caller, verb, n, want.Granted, want.RetryAfter)
	for _, c := range h.contenders {
		got, err := decide(t.Context(), c.limiters[caller], verb, h.event, n)
		c.same(t, want, got, err)
	}
	if want.Counted > 0 {
		h.decided = append(h.decided, want)
	}
}

// settle settles a decision at another cost.
func (h *history) settle(t *testing.T, caller int) {
	d, ok := h.draw()
	if !ok {
		return
	}
	limits, now, actual := h.plan.callers[caller], h.clock.ms.Load(), h.rng.Int64N(2*d.Counted+3)
	h.record("%d: caller %d settles %d of %d to %d", now, caller, d.Counted, d.At.UnixMilli(), actual)
	want := d
	switch {
	case actual < d.Counted:
		back := d
		back.Counted -= actual
		h.log.refund(limits, back, now)
	case actual > d.Counted:
		want = h.log.decide(limits, "charge", actual-d.Counted, now, h.plan.denials)
		if d.Counted > 0 {
			want.At = d.At
		}
	}
	want.Counted = actual
	for _, c := range h.contenders {
		got, err := c.limiters[caller].Settle(t.Context(), h.event, d, actual)
		c.same(t, want, got, err)
	}
	h.decided = append(h.decided, want)
}

// draw removes and returns one of the latest decisions that counted something.
func (h *history) draw() (d window.Decision, ok bool) {
	if len(h.decided) == 0 {
		return d, false
	}
	i := len(h.decided) - 1 - h.rng.IntN(min(4, len(h.decided)))
	d = h.decided[i]
	h.decided = slices.Delete(h.decided, i, i+1)
	return d, true
}

// same fails the test unless err is nil and got equals want. It calls cmp.Diff only if they differ,
// because cmp.Diff takes longer than Redis.
func (c contender) same(t *testing.T, want, got any, err error) {
	t.Helper()
	if err == nil && reflect.DeepEqual(want, got) {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%s: %v (-want +got)\n%s", c.name, err, diff)
	}
}

// units returns how many units an attempt could ask for.
func (h *history) units(limits []window.Limit) int64 {
	most := limits[0].Max
	for _, l := range limits {
		most = min(most, l.Max)
	}
	if most > 10 && h.rng.IntN(2) == 0 {
		most = 10
	}
	return 1 + h.rng.Int64N(most)
}

func (h *history) refund(t *testing.T, caller int) {
	d, ok := h.draw()
	if !ok {
		return
	}
	h.log.refund(h.plan.callers[caller], d, h.clock.ms.Load())
	h.record("%d: caller %d refunds %d of %d", h.clock.ms.Load(), caller, d.Counted, d.At.UnixMilli())
	for _, c := range h.contenders {
		if err := c.limiters[caller].Refund(t.Context(), h.event, d); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func (h *history) inspect(t *testing.T, caller int) {
	want := h.log.inspect(h.plan.callers[caller], h.clock.ms.Load(), h.plan.denials)
	h.record("%d: caller %d inspects", h.clock.ms.Load(), caller)
	for _, c := range h.contenders {
		got, err := c.limiters[caller].Inspect(t.Context(), h.event)
		c.same(t, want, got.Limits, err)
	}
}

func (h *history) reset(t *testing.T) {
	h.log, h.decided = newExactLog(), nil
	h.record("%d: reset", h.clock.ms.Load())
	for _, c := range h.contenders {
		if err := c.limiters[0].Reset(t.Context(), h.event); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func (h *history) record(format string, args ...any) {
	h.steps = append(h.steps, fmt.Sprintf(format, args...))
}
