package window_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/faulttest"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// jointLimits are those of the limiters of a joint history.
var jointLimits = []string{"3/40ms", "2/15ms 9/200ms", "30/1s@100ms", "4/60ms 200/2s", "1/5ms", "100/700ms"}

// TestJointOnOneServer plays random histories by the clock of the server, and compares each joint
// decision with exact logs: all checks are counted, or none, and waits are exact. Single attempts and
// refunds come between.
func TestJointOnOneServer(t *testing.T) {
	t.Parallel()
	calls := &redistest.Calls{}
	conn := window.On(redistest.NewClient(t, calls.Count))
	h := newJointHistory(t, conn)
	h.awaitJoint(t, calls)
	before := calls.Scripts.Load()
	h.play(t, redistest.UnlessShort(20_000, 2_000))
	if got := calls.Scripts.Load() - before; got > int64(h.calls+h.calls/100+10) { // each is one script call, apart from proofs
		t.Errorf("%d script calls for %d", got, h.calls)
	}
}

// TestJointInOneSlot plays such a history on a cluster, where the keys of one event share a slot.
func TestJointInOneSlot(t *testing.T) {
	t.Parallel()
	h := newJointHistory(t, window.On(redistest.Cluster(t)))
	h.play(t, redistest.UnlessShort(5_000, 500))
}

func newJointHistory(t *testing.T, conn *window.Connection) *jointHistory {
	t.Helper()
	h := &jointHistory{rng: rand.New(rand.NewPCG(1, 2))}
	for i, text := range jointLimits {
		cfg := window.Config{Name: fmt.Sprint(redistest.Key(t), i), Limits: parsed(strings.Split(text, " ")...), Timeout: time.Minute}
		h.limiters = append(h.limiters, must(window.New(conn, cfg)))
		h.limits, h.logs = append(h.limits, cfg.Limits), append(h.logs, newExactLog())
	}
	return h
}

func (h *jointHistory) play(t *testing.T, steps int) {
	t.Helper()
	for range steps {
		if h.step(t); t.Failed() {
			t.Fatalf("after:\n%s", strings.Join(h.steps[max(0, len(h.steps)-30):], "\n"))
		}
	}
	if h.allowed < h.asked/20 || h.allowed > h.asked*19/20 {
		t.Errorf("a poor test: %d of %d allowed", h.allowed, h.asked)
	}
	t.Logf("%d joint decisions about %d checks, %d of them allowed", h.asked, h.checks, h.allowed)
}

// jointHistory is a history of joint decisions about one event under several limiters.
type jointHistory struct {
	rng      *rand.Rand
	limiters []*window.Limiter
	limits   [][]window.Limit
	logs     []*exactLog
	given    []givenBack
	steps    []string

	calls, asked, checks, allowed int
}

// givenBack is a decision of a limiter that can be refunded.
type givenBack struct {
	limiter int
	window.Decision
}

// awaitJoint waits until it is proved, for each of the limiters as the first, that one server has the
// keys of all.
func (h *jointHistory) awaitJoint(tb testing.TB, calls *redistest.Calls) {
	tb.Helper()
	for first := range h.limiters {
		var checks []window.Check
		for _, l := range append(h.limiters[first:len(h.limiters):len(h.limiters)], h.limiters[:first]...) {
			checks = append(checks, window.Check{Limiter: l, Event: "warm"})
		}
		calls.AwaitSeveral(tb, func([]string) { must(window.AllowAll(tb.Context(), checks...)) })
	}
}

func (h *jointHistory) step(t *testing.T) {
	switch dice := h.rng.IntN(100); {
	case dice < 60:
		h.askJointly(t)
	case dice < 80:
		h.askOne(t)
	case dice < 97:
		h.refund(t)
	default:
		<-time.After(time.Duration(h.rng.IntN(20)) * time.Millisecond) // units are forgotten meanwhile
	}
}

func (h *jointHistory) askJointly(t *testing.T) {
	order := h.rng.Perm(len(h.limiters))[:2+h.rng.IntN(len(h.limiters)-1)]
	checks := make([]window.Check, len(order))
	for k, i := range order {
		checks[k] = window.Check{Limiter: h.limiters[i], Event: "e", N: h.units(i)}
	}
	got, err := window.AllowAll(t.Context(), checks...)
	h.calls, h.asked, h.checks = h.calls+1, h.asked+1, h.checks+len(checks)
	if err != nil || len(got.Decisions) != len(checks) {
		t.Fatalf("%+v, %v", got, err)
	}
	want := h.want(order, checks, got.Decisions)
	h.record("%v: %+v", order, want)
	contender{name: "joint"}.same(t, want, got, nil)
	if got.Allowed {
		h.allowed++
		for k, i := range order {
			h.given = append(h.given, givenBack{i, got.Decisions[k]})
		}
	}
}

// want returns the right answer. Only the time of each decision is that of the server.
func (h *jointHistory) want(order []int, checks []window.Check, got []window.Decision) (want window.JointDecision) {
	logs := make([]*exactLog, len(order))
	want.Allowed = true
	for k, i := range order {
		logs[k] = h.logs[i].clone()
		d := logs[k].decide(h.limits[i], "allow", checks[k].N, got[k].At.UnixMilli(), false)
		want.Decisions = append(want.Decisions, d)
		want.Allowed, want.RetryAfter = want.Allowed && d.Allowed, max(want.RetryAfter, d.RetryAfter)
	}
	for k, i := range order {
		if d := &want.Decisions[k]; want.Allowed {
			h.logs[i] = logs[k]
		} else if d.Allowed { // it would fit, and is as it stands
			now := got[k].At.UnixMilli()
			for n, r := range rulesOf(h.limits[i], false) {
				d.Usage[n] = h.logs[i].usage(h.limits[i][n], r, checks[k].N, now)
			}
			d.Counted, d.Remaining = 0, slices.MinFunc(d.Usage, func(a, b window.Usage) int { return int(a.Remaining - b.Remaining) }).Remaining
		}
	}
	return want
}

func (h *jointHistory) askOne(t *testing.T) {
	i := h.rng.IntN(len(h.limiters))
	n := h.units(i)
	got, err := h.limiters[i].AllowN(t.Context(), "e", n)
	h.calls++
	want := h.logs[i].decide(h.limits[i], "allow", n, got.At.UnixMilli(), false)
	h.record("%d alone: %+v", i, want)
	contender{name: "alone"}.same(t, want, got, err)
	if got.Allowed {
		h.given = append(h.given, givenBack{i, got})
	}
}

// refund gives back one of the last decisions, unless one of its units may be forgotten just now.
func (h *jointHistory) refund(t *testing.T) {
	if len(h.given) == 0 {
		return
	}
	k := len(h.given) - 1 - h.rng.IntN(min(6, len(h.given)))
	g := h.given[k]
	h.given = slices.Delete(h.given, k, k+1)
	soonest := slices.MinFunc(h.limits[g.limiter], func(a, b window.Limit) int { return int(a.Per - b.Per) }).Per
	if time.Since(g.At) > soonest/2 {
		return
	}
	if err := h.limiters[g.limiter].Refund(t.Context(), "e", g.Decision); err != nil {
		t.Error(err)
	}
	h.calls++
	h.logs[g.limiter].refund(h.limits[g.limiter], g.Decision, g.At.UnixMilli())
	h.record("refund of %d: %d", g.limiter, g.Counted)
	if time.Since(g.At) > soonest-2*time.Millisecond { // nobody knows what that gave back
		if err := h.limiters[g.limiter].Reset(t.Context(), "e"); err != nil {
			t.Error(err)
		}
		h.calls++
		h.logs[g.limiter] = newExactLog()
		h.given = slices.DeleteFunc(h.given, func(other givenBack) bool { return other.limiter == g.limiter })
		h.record("reset of %d", g.limiter)
	}
}

func (h *jointHistory) units(limiter int) int64 {
	least := slices.MinFunc(h.limits[limiter], func(a, b window.Limit) int { return int(a.Max - b.Max) }).Max
	return 1 + h.rng.Int64N(min(3, least))
}

func (h *jointHistory) record(format string, args ...any) {
	h.steps = append(h.steps, fmt.Sprintf(format, args...))
}

// TestJointCrowd lets 100 callers ask at once about two of several events each, one by one or jointly.
// The window is longer than the test, so exactly the units of what was allowed must be counted.
func TestJointCrowd(t *testing.T) {
	t.Parallel()
	const callers, times, events = 100, 40, 8
	calls := &redistest.Calls{}
	conn := window.On(redistest.NewClient(t, calls.Count))
	var limiters []*window.Limiter
	for i := range 2 {
		limiters = append(limiters, must(window.New(conn, window.Config{Name: fmt.Sprint(redistest.Key(t), i), Limits: parsed("300/1h"), Timeout: time.Minute})))
	}
	(&jointHistory{limiters: limiters}).awaitJoint(t, calls)
	var mu sync.Mutex
	counted := map[string]int64{}
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 3))
			for range times {
				checks := []window.Check{
					{Limiter: limiters[0], Event: fmt.Sprint(rng.IntN(events)), N: 1 + rng.Int64N(3)},
					{Limiter: limiters[1], Event: fmt.Sprint(rng.IntN(events)), N: 1 + rng.Int64N(3)},
				}
				j, err := window.AllowAll(t.Context(), checks...)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i, d := range j.Decisions {
					if j.Allowed != (d.Counted > 0) {
						t.Errorf("%+v", j)
					}
					counted[fmt.Sprint(i, checks[i].Event)] += d.Counted
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	for key, units := range counted {
		if used := usedOf(t, limiters[key[0]-'0'], key[1:]); used != units || used > 300 {
			t.Errorf("%s counts %d, and %d were allowed", key, used, units)
		}
	}
	if calls.Several.Load() == 0 {
		t.Error("a poor test: nothing was decided jointly")
	}
}

// TestJointFailures checks that nothing is counted if one of the keys cannot be, and that the error is
// about that one.
func TestJointFailures(t *testing.T) {
	t.Parallel()
	calls := &redistest.Calls{}
	client := redistest.NewClient(t, calls.Count)
	conn := window.On(client)
	var limiters []*window.Limiter
	var checks []window.Check
	for i := range 3 {
		limiters = append(limiters, must(window.New(conn, window.Config{Name: fmt.Sprint(redistest.Key(t), i), Limits: parsed("5/1h"), Timeout: time.Minute})))
		checks = append(checks, window.Check{Limiter: limiters[i], Event: "e"})
	}
	(&jointHistory{limiters: limiters}).awaitJoint(t, calls)
	snapshot := must(limiters[1].Inspect(t.Context(), "e"))
	if err := client.Do(t.Context(), client.B().Rpush().Key(snapshot.Key).Element("foreign").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	j, err := window.AllowAll(t.Context(), checks...)
	if err == nil || !strings.Contains(err.Error(), snapshot.Key) || !strings.Contains(err.Error(), "(check 2 of AllowAll)") || errors.Is(err, window.ErrOutage) || j.Decisions != nil {
		t.Errorf("%+v, %v", j, err)
	}
	for _, i := range []int{0, 2} {
		if used := usedOf(t, limiters[i], "e"); used != 0 {
			t.Errorf("limiter %d counts %d", i, used)
		}
	}
	must(limiters[0].AllowN(t.Context(), "e", 5)) // now check 1 denies, which must not hide the error
	if j, err := window.AllowAll(t.Context(), checks...); err == nil || !strings.Contains(err.Error(), "(check 2 of AllowAll)") {
		t.Errorf("%+v, %v", j, err)
	}
}

// TestJointAmongFailures lets 100 callers ask at once, jointly and about single events, a third of which have
// a foreign value. Each gets the error about its own key, and nobody else's.
func TestJointAmongFailures(t *testing.T) {
	t.Parallel()
	calls := &redistest.Calls{}
	client := redistest.NewClient(t, calls.Count)
	conn := window.On(client)
	var limiters []*window.Limiter
	for i := range 2 {
		limiters = append(limiters, must(window.New(conn, window.Config{Name: fmt.Sprint(redistest.Key(t), i), Limits: parsed("1000000/1h"), Timeout: time.Minute})))
	}
	(&jointHistory{limiters: limiters}).awaitJoint(t, calls)
	for i := 0; i < 60; i += 3 {
		key := must(limiters[0].Inspect(t.Context(), fmt.Sprint(i))).Key
		if err := client.Do(t.Context(), client.B().Rpush().Key(key).Element("foreign").Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	for c := range 100 {
		group.Go(func() {
			for n := range redistest.UnlessShort(200, 50) {
				i := (c*7 + n) % 60
				event := fmt.Sprint(i)
				var err error
				if n%2 == 0 {
					_, err = limiters[0].Allow(t.Context(), event)
				} else {
					_, err = window.AllowAll(t.Context(), window.Check{Limiter: limiters[1], Event: event}, window.Check{Limiter: limiters[0], Event: event})
				}
				if foreign := i%3 == 0; foreign != (err != nil) || foreign && !strings.Contains(err.Error(), "{"+event+"}:w holds no string") {
					t.Errorf("%s: %v", event, err)
				}
			}
		})
	}
	group.Wait()
}

// TestJointRefusedWrites checks that a joint call is an outage of all limiters if the server refuses its
// writes, so that their circuit breakers open.
func TestJointRefusedWrites(t *testing.T) {
	t.Parallel()
	calls, server := &redistest.Calls{}, redistest.Start(t, "--maxmemory-policy", "noeviction")
	client := server.NewClient(t, calls.Count)
	var seen [2]faulttest.Outages
	conn := window.On(client)
	var limiters []*window.Limiter
	for i := range seen {
		limiters = append(limiters, must(window.New(conn, window.Config{Name: fmt.Sprint("full", i), Limits: parsed("5/1h"), Timeout: time.Minute, Observe: seen[i].Observe})))
	}
	(&jointHistory{limiters: limiters}).awaitJoint(t, calls)
	if err := client.Do(t.Context(), client.B().ConfigSet().ParameterValue().ParameterValue("maxmemory", "1").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		j, err := window.AllowAll(t.Context(), window.Check{Limiter: limiters[0], Event: "e"}, window.Check{Limiter: limiters[1], Event: "e"})
		if !errors.Is(err, window.ErrOutage) || window.ReasonOf(err) != window.ReasonOOM {
			t.Errorf("%+v, %v", j, err)
		}
	}
	for i := range seen {
		if kinds := seen[i].Kinds(); len(kinds) != 1 {
			t.Errorf("limiter %d reports %q", i, kinds)
		}
	}
}

// TestJointInAnOutage checks that the Fallbacks decide in order if a joint call fails, up to a denial, whose
// units are given back, and that without one the error names all checks.
func TestJointInAnOutage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		checks   []int // the limiters; the last one has no Fallback
		usedUp   bool  // the Fallback of the second one is
		allowed  bool
		asked    int
		counted0 int64 // by the Fallback of the first one
	}{
		{[]int{0, 1}, false, true, 2, 1},
		{[]int{0, 1}, true, false, 2, 0},
		{[]int{1, 0}, true, false, 1, 0},
		{[]int{0, 2}, false, false, 0, 0},
	} {
		calls, server := &redistest.Calls{}, redistest.Start(t)
		conn := window.On(server.NewClient(t, calls.Count))
		var limiters, fallbacks []*window.Limiter
		for i := range 3 {
			cfg := window.Config{Name: fmt.Sprint("outage", i), Limits: parsed("9/1h")}
			fallbacks = append(fallbacks, must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1/1h")})))
			if i < 2 {
				cfg.Fallback = fallbacks[i]
			}
			limiters = append(limiters, must(window.New(conn, cfg)))
		}
		(&jointHistory{limiters: limiters}).awaitJoint(t, calls)
		if test.usedUp {
			must(fallbacks[1].Allow(t.Context(), "e"))
		}
		server.Pause(t)
		var checks []window.Check
		for _, i := range test.checks {
			checks = append(checks, window.Check{Limiter: limiters[i], Event: "e"})
		}
		j, err := window.AllowAll(t.Context(), checks...)
		server.Resume(t)
		if fails := test.asked == 0; fails != (err != nil) || fails && !strings.Contains(err.Error(), "(checks 1 to 2 of AllowAll)") {
			t.Errorf("%+v: %v", test, err)
		}
		if j.Allowed != test.allowed || len(j.Decisions) != test.asked || (j.RetryAfter > 0) != test.usedUp {
			t.Errorf("%+v: %+v", test, j)
		}
		if used := usedOf(t, fallbacks[0], "e"); used != test.counted0 {
			t.Errorf("%+v: the Fallback counts %d", test, used)
		}
	}
}

// TestJointAsksTheDenialCache checks that a denial that is remembered costs Redis nothing, and has the wait
// of its own check.
func TestJointAsksTheDenialCache(t *testing.T) {
	t.Parallel()
	calls := &redistest.Calls{}
	conn := window.On(redistest.NewClient(t, calls.Count))
	plain := must(window.New(conn, window.Config{Name: redistest.Key(t) + "a", Limits: parsed("9/1h"), Timeout: time.Minute}))
	cached := must(window.New(conn, window.Config{Name: redistest.Key(t) + "b", Limits: parsed("1/1h"), Timeout: time.Minute, DenialCache: 10}))
	(&jointHistory{limiters: []*window.Limiter{plain, must(cached.With(parsed("1000000/1h")...))}}).awaitJoint(t, calls)
	for range 4 {
		must(cached.Allow(t.Context(), "e"))
	}
	before := calls.Scripts.Load()
	j, err := window.AllowAll(t.Context(), window.Check{Limiter: plain, Event: "e"}, window.Check{Limiter: cached, Event: "e"})
	if err != nil || j.Allowed || j.RetryAfter < 59*time.Minute || len(j.Decisions) != 2 || j.Decisions[0].Usage != nil || j.Decisions[1].Usage == nil {
		t.Errorf("%+v, %v", j, err)
	}
	if n := calls.Scripts.Load() - before; n != 0 {
		t.Errorf("%d script calls", n)
	}
}

// BenchmarkJoint measures what a joint call about five keys costs the server, beside five calls of Allow,
// from callers with events of their own: CPU of the server and time, as the median ratio of rounds that
// alternate. With 64 callers, the script calls of both are about many events.
func BenchmarkJoint(b *testing.B) {
	for _, limits := range [][]string{{"1000000/1h"}, {"1000000/1s", "1000000/1m", "1000000/1h"}} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("limits=%d,callers=%d", len(limits), callers), func(b *testing.B) { benchmarkJoint(b, limits, callers) })
		}
	}
}

func benchmarkJoint(b *testing.B, limits []string, callers int) {
	calls := &redistest.Calls{}
	client := must(rueidis.NewClient(redistest.Start(b).Options(calls.Count)))
	b.Cleanup(client.Close)
	conn := window.On(client)
	var limiters []*window.Limiter
	for i := range 5 {
		limiters = append(limiters, must(window.New(conn, window.Config{Name: fmt.Sprint("joint", i), Limits: parsed(limits...)})))
	}
	(&jointHistory{limiters: limiters}).awaitJoint(b, calls)
	var cpu, took []float64
	for range max(b.N, 21) {
		var round [2][2]float64
		for i, ask := range []func(event string){jointly(b, limiters), oneByOne(b, limiters)} {
			round[i][0], round[i][1] = cost(b, client, callers, ask)
		}
		cpu, took = append(cpu, round[0][0]/round[1][0]), append(took, round[0][1]/round[1][1])
	}
	b.ReportMetric(median(cpu), "server-CPU")
	b.ReportMetric(median(took), "time")
	b.ReportMetric(0, "ns/op")
}

func jointly(b *testing.B, limiters []*window.Limiter) func(event string) {
	return func(event string) {
		checks := make([]window.Check, len(limiters))
		for i, l := range limiters {
			checks[i] = window.Check{Limiter: l, Event: event}
		}
		if j, err := window.AllowAll(b.Context(), checks...); err != nil || !j.Allowed {
			b.Errorf("%+v, %v", j, err)
		}
	}
}

func oneByOne(b *testing.B, limiters []*window.Limiter) func(event string) {
	return func(event string) {
		for _, l := range limiters {
			if d, err := l.Allow(b.Context(), event); err != nil || !d.Allowed {
				b.Errorf("%+v, %v", d, err)
			}
		}
	}
}

// cost lets callers ask for 200 ms, and returns the CPU that the server used and the time, for each
// time that they asked.
func cost(b *testing.B, client rueidis.Client, callers int, ask func(event string)) (cpu, took float64) {
	before, began := serverCPU(b, client), time.Now()
	var asked atomic.Int64
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			for i := 0; time.Since(began) < 200*time.Millisecond; i++ {
				ask(fmt.Sprintf("%d of %d", i%100, c))
				asked.Add(1)
			}
		})
	}
	group.Wait()
	n := float64(asked.Load())
	return (serverCPU(b, client) - before) / n, time.Since(began).Seconds() / n
}

// serverCPU returns the seconds of CPU that the server has used.
func serverCPU(b *testing.B, client rueidis.Client) (sum float64) {
	text := must(client.Do(b.Context(), client.B().Info().Section("cpu").Build()).ToString())
	for _, field := range []string{"\nused_cpu_user:", "\nused_cpu_sys:"} {
		_, rest, _ := strings.Cut(text, field)
		var seconds float64
		if _, err := fmt.Sscan(rest, &seconds); err != nil {
			b.Fatal(err)
		}
		sum += seconds
	}
	return sum
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
