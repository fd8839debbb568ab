package ar1_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// decisionsPerPlan is the total number of decisions in the histories of each plan. For a plan that
// runs in memory, only the first decisionsOnRedis of them are also made on Redis.
const (
	decisionsPerPlan = 8_000
	decisionsOnRedis = 2_500
)

// plan is a kind of history.
type plan struct {
	name    string
	callers [][]window.Limit // each caller has its own limits; all share one name
	denials bool             // denied attempts count
	jumps   bool             // the clock steps back and jumps ahead, by 1 µs to 1 year
	cluster bool
}

var plans = []plan{
	{name: "one limit", callers: [][]window.Limit{limits("3/1s")}},
	{name: "three limits", callers: [][]window.Limit{limits("1/500ms", "4/5s", "90/10m")}},
	{name: "three limits on a cluster", callers: [][]window.Limit{limits("1/500ms", "4/5s", "90/10m")}, cluster: true},
	{name: "clock", callers: [][]window.Limit{limits("2/1s", "7/10s")}, jumps: true},
	{name: "clock, four limits", callers: [][]window.Limit{limits("1/1s", "3/10s", "300/1h", "5/60d")}, jumps: true},
	{name: "denials count", callers: [][]window.Limit{limits("3/1s", "20/1m")}, denials: true},
	{name: "denials count, clock", callers: [][]window.Limit{limits("2/1s", "9/20s")}, denials: true, jumps: true},
	{name: "two callers", callers: [][]window.Limit{limits("2/1s", "6/5s"), limits("9/5s", "20/1m", "2/300ms")}},
	{name: "changes, clock", jumps: true, callers: [][]window.Limit{
		limits("2/1s", "6/5s"), limits("6/5s", "2/1s"), limits("3/5s"), limits("900/5s", "100000/1h", "1/1s"),
	}},
	{name: "large", callers: [][]window.Limit{limits("1000000/1h", "70000/100s")}},
}

// TestHistories runs random histories in memory, and the first histories of each plan also on Redis
// or on a cluster. It compares every answer with the reference.
func TestHistories(t *testing.T) {
	for _, p := range plans {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			decisions, enough, ambiguous := 0, redistest.UnlessShort(decisionsPerPlan, decisionsPerPlan/10), 0
			for seed := uint64(1); decisions < enough; seed++ {
				d, h := p.run(t, seed, decisions < decisionsOnRedis)
				decisions, ambiguous = decisions+d, ambiguous+h
			}
			if t.Logf("%d decisions; %d depend on less than 10 µs", decisions, ambiguous); ambiguous > decisions/50 {
				t.Error("weak test: too many decisions are ambiguous")
			}
		})
	}
}

// contender is a limiter under test, for each caller of the plan.
type contender struct {
	name     string
	limiters []*ar1.Limiter
}

func (p plan) contenders(t *testing.T, c *clock, onRedis bool) []contender {
	remote, local := contender{name: "redis"}, contender{name: "local"}
	name, client := redistest.Key(t), redistest.Client(t)
	if p.cluster {
		client = redistest.Cluster(t)
	}
	for _, limits := range p.callers {
		cfg := ar1.Config{Name: name, Limits: limits, CountDenied: p.denials, Now: c.now, Timeout: time.Minute}
		remote.limiters = append(remote.limiters, must(ar1.New(window.On(client), cfg)))
		local.limiters = append(local.limiters, must(ar1.NewLocal(cfg)))
	}
	switch {
	case len(p.callers) > 1: // in memory, callers do not share levels
		return []contender{remote}
	case onRedis:
		return []contender{remote, local}
	}
	return []contender{local}
}

// run plays one history of one event. It returns how many decisions it made, and how many of them
// were ambiguous.
func (p plan) run(t *testing.T, seed uint64, onRedis bool) (decisions, ambiguous int) {
	rng := rand.New(rand.NewPCG(seed, uint64(len(p.name))))
	h := &history{plan: p, rng: rng, ref: newReference(), event: fmt.Sprint("event ", seed)}
	h.contenders = p.contenders(t, &h.clock, onRedis)
	h.clock.us.Store(noon + rng.Int64N(1<<50))
	for range 30 + rng.IntN(200) {
		h.pass()
		if h.ref.nearMinimum(h.clock.us.Load()) {
			break // less than 10 µs would decide whether a level is forgotten
		}
		h.step(t)
		if t.Failed() {
			t.Fatalf("seed %d, after:\n%s", seed, strings.Join(h.steps, "\n"))
		}
	}
	return h.decisions, h.ambiguous
}

// history is the sequence of operations on one event.
type history struct {
	plan                 plan
	rng                  *rand.Rand
	clock                clock
	ref                  *reference
	event                string
	contenders           []contender
	decided              []window.Decision // decisions that counted something
	jumped               int64             // how far the clock has jumped ahead, in µs
	steps                []string
	decisions, ambiguous int
}

func (h *history) record(format string, args ...any) {
	h.steps = append(h.steps, fmt.Sprintf(format, args...))
}

// step performs one operation.
func (h *history) step(t *testing.T) {
	caller := h.rng.IntN(len(h.plan.callers))
	switch dice := h.rng.IntN(100); {
	case dice < 70:
		h.decide(t, caller, false)
	case dice < 85:
		h.decide(t, caller, true)
	case dice < 93:
		h.refund(t, caller)
	case dice < 99:
		h.inspect(t, caller)
	default:
		h.reset(t)
	}
}

// pass moves the clock, usually by a little. If the plan has jumps, the clock also jumps ahead and
// back.
func (h *history) pass() {
	limits := h.plan.callers[h.rng.IntN(len(h.plan.callers))]
	l := limits[h.rng.IntN(len(limits))]
	h.clock.us.Add(h.rng.Int64N(2 * l.Per.Microseconds() / min(l.Max, 40)))
	if !h.plan.jumps || h.rng.IntN(6) > 0 {
		return
	}
	if h.jumped == 0 || h.rng.IntN(3) == 0 {
		jump := h.rng.Int64N(1 + (365*24*time.Hour).Microseconds()>>h.rng.IntN(45))
		h.jumped += jump
		h.clock.us.Add(jump)
	} else {
		h.clock.us.Add(-h.jumped)
		h.jumped = 0
	}
	if h.rng.IntN(5) == 0 {
		h.clock.us.Add(-h.rng.Int64N(1 + l.Per.Microseconds()>>h.rng.IntN(20)))
	}
}

// units returns how many units an attempt asks for.
func (h *history) units(limits []window.Limit) int64 {
	if h.rng.IntN(3) > 0 {
		return 1
	}
	most := limits[0].Max
	for _, l := range limits {
		most = min(most, l.Max)
	}
	return 1 + h.rng.Int64N(max(1, most>>h.rng.IntN(8)))
}

func (h *history) decide(t *testing.T, caller int, look bool) {
	limits, now := h.plan.callers[caller], h.clock.us.Load()
	n := h.units(limits)
	fits, ambiguous := h.ref.fits(limits, n, now)
	h.decisions++
	if ambiguous {
		h.ambiguous++
		return
	}
	h.record("%d: caller %d asks for %d (peek %v): fits %v", now, caller, n, look, fits)
	counts := fits || h.plan.denials && !look
	before := h.ref.clone()
	switch {
	case counts:
		h.ref.count(limits, n, now)
	case !look && now < h.ref.written && len(h.ref.counted) > 0:
		h.ref.write(now)
	}
	var first window.Decision
	for i, c := range h.contenders {
		d := h.ask(t, c, caller, n, look)
		if i > 0 && !reflect.DeepEqual(first, d) { //nolint:govet // neither has a Cause
			t.Errorf("%s and %s differ:\n%s", h.contenders[0].name, c.name, cmp.Diff(first, d))
		}
		h.judge(t, c.name, limits, d, n, fits, counts && !look)
		first = d
	}
	if first.Allowed && !look {
		h.decided = append(h.decided, first)
	}
	if look {
		h.ref = before
	}
}

func (h *history) ask(t *testing.T, c contender, caller int, n int64, look bool) window.Decision {
	ask := c.limiters[caller].AllowN
	if look {
		ask = c.limiters[caller].PeekN
	}
	d, err := ask(t.Context(), h.event, n)
	if err != nil {
		t.Errorf("%s: %v", c.name, err)
	}
	return d
}

// judge compares a decision with the levels of the reference after it.
func (h *history) judge(t *testing.T, name string, limits []window.Limit, d window.Decision, n int64, fits, counts bool) {
	counted := int64(0)
	if counts {
		counted = n
	}
	if d.Allowed != fits || d.Counted != counted || d.Degraded || len(d.Usage) != len(limits) || !d.At.Equal(h.clock.now()) {
		t.Fatalf("%s: fits %v: %+v", name, fits, d)
	}
	var longest time.Duration
	least := int64(1 << 62)
	for i, l := range limits {
		h.judgeUsage(t, name, l, d.Usage[i], n)
		longest, least = max(longest, d.Usage[i].RetryAfter), min(least, d.Usage[i].Remaining)
	}
	if fits {
		longest = 0
	}
	if d.RetryAfter != longest || d.Remaining != least {
		t.Errorf("%s: not the longest wait and the fewest units remaining in its usage: %+v", name, d)
	}
}

func (h *history) judgeUsage(t *testing.T, name string, l window.Limit, u window.Usage, n int64) {
	per := perOf(l)
	x := h.ref.level(per, h.clock.us.Load())
	if w := wait(l, x, n); !isWait(u.RetryAfter, w) {
		t.Errorf("%s: %v: level %v, so %d units fit in %v ms, not %v", name, l, x, n, w, u.RetryAfter)
	}
	if w := per * math.Log(4*x); !isWait(u.ResetAfter, max(0, w)) {
		t.Errorf("%s: %v: level %v is forgotten in %v ms, not %v", name, l, x, w, u.ResetAfter)
	}
	fit, moves := peakOf(l)-x, 1e-6+peakOf(l)*tolerance/per
	most, least := min(float64(l.Max), math.Floor(fit+moves)), min(float64(l.Max), math.Floor(fit-moves))
	if r := float64(u.Remaining); u.Limit != l || u.Used != l.Max-u.Remaining || r > max(0, most) || r < max(0, least) {
		t.Errorf("%s: %v: level %v, so %v units fit: %+v", name, l, x, fit, u)
	}
}

func (h *history) refund(t *testing.T, caller int) {
	if len(h.decided) == 0 {
		return
	}
	i := len(h.decided) - 1 - h.rng.IntN(min(4, len(h.decided)))
	d := h.decided[i]
	h.decided = append(h.decided[:i], h.decided[i+1:]...)
	h.ref.refund(h.plan.callers[caller], d, h.clock.us.Load())
	h.record("%d: caller %d refunds %d of %d", h.clock.us.Load(), caller, d.Counted, d.At.UnixMicro())
	for _, c := range h.contenders {
		if err := c.limiters[caller].Refund(t.Context(), h.event, d); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func (h *history) inspect(t *testing.T, caller int) {
	h.record("%d: caller %d inspects", h.clock.us.Load(), caller)
	for _, c := range h.contenders {
		s, err := c.limiters[caller].Inspect(t.Context(), h.event)
		if err != nil || !s.At.Equal(h.clock.now()) {
			t.Fatalf("%s: %+v %v", c.name, s, err)
		}
		for i, l := range h.plan.callers[caller] {
			h.judgeState(t, c.name, l, s.Limits[i])
		}
	}
}

func (h *history) judgeState(t *testing.T, name string, l window.Limit, s ar1.LimitState) {
	h.judgeUsage(t, name, l, s.Usage, 1)
	x := h.ref.level(perOf(l), h.clock.us.Load())
	if math.Abs(s.Level-x) > 2e-8+x*tolerance/perOf(l) {
		t.Errorf("%s: %v: a level of %v, not %v", name, l, s.Level, x)
	}
	if rate := s.Level / l.Per.Seconds(); math.Abs(s.Rate-rate) > 1e-9*rate || s.HalfLife != time.Duration(float64(l.Per)*math.Ln2) {
		t.Errorf("%s: %v: %+v", name, l, s)
	}
}

func (h *history) reset(t *testing.T) {
	h.record("%d: reset", h.clock.us.Load())
	h.ref, h.decided = newReference(), nil
	for _, c := range h.contenders {
		if err := c.limiters[0].Reset(t.Context(), h.event); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
