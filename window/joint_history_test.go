package window_test

import (
	"cmp"
	"context"
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

	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// jointLimits holds the limits of the keys that callers share. Each key has one more limit that
// never denies. Its counts show in which order concurrent callers were decided, and what is left in
// the end.
var (
	jointLimits = [][]window.Limit{withAll("3/40ms"), withAll("2/15ms", "9/200ms"), withAll("30/1s@100ms"), withAll("4/60ms", "200/2s"), withAll("1/5ms")}
	onlyAll     = withAll()
)

func withAll(texts ...string) []window.Limit {
	return append(parsed(texts...), window.Limit{Max: 1 << 53, Per: time.Hour})
}

// jointSetting says who plays a joint history. Callers are spread over processes, each of which has
// its own Connection, and over subjects, each of which has five keys and ten callers. If there are
// ten processes, no two callers of one process use the same keys, so all decisions are joint.
type jointSetting struct {
	name               string
	callers, processes int
	calls              int  // number of calls in total; a short run makes a tenth of them
	exact              bool // exact logs replay all answers, because their order is known
	ahead              bool // single attempts use a clock that is ahead, as if the server's clock had stepped back
}

var (
	jointSettings = []jointSetting{
		{name: "one caller", callers: 1, processes: 1, exact: true, calls: 12_000},
		{name: "100 callers", callers: 100, processes: 10, exact: true, calls: 70_000},
		{name: "100 callers of one process", callers: 100, processes: 1, calls: 10_000},
		{name: "one caller and a clock ahead", callers: 1, processes: 1, exact: true, ahead: true, calls: 8_000},
	}
	inMemory = []jointSetting{
		{name: "one caller", callers: 1, processes: 1, exact: true, calls: 10_000},
		{name: "100 callers", callers: 100, processes: 1, calls: 10_000},
	}
	whileSlotsMove = []jointSetting{
		// Not exact: a call that was not sent makes a process ask key by key for a second.
		{name: "one caller", callers: 1, processes: 1, calls: 5_000},
		{name: "100 callers", callers: 100, processes: 10, calls: 10_000},
		{name: "100 callers of one process", callers: 100, processes: 1, calls: 10_000},
	}
	amidFaults = []jointSetting{
		{name: "one caller", callers: 1, processes: 1, calls: 80}, // most faults take a second each
		{name: "100 callers", callers: 100, processes: 10, calls: 6_000},
	}
)

// TestJointAgainstLogs mixes random joint decisions with single decisions, Refund and Settle, on
// the server's clock. If the setting is exact, an exact log of each key replays the decisions in
// their order, and must agree with all answers. Otherwise calls refund units while others ask. In
// the end, the keys must count exactly what was allowed, and no interval of length Per may hold
// more than Max units.
func TestJointAgainstLogs(t *testing.T) {
	t.Parallel()
	for _, s := range jointSettings {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			h := s.history(t)
			h.onServer(t, server, time.Minute)
			h.play(t)
		})
	}
}

// TestJointAgainstLogsInMemory is TestJointAgainstLogs in memory.
func TestJointAgainstLogsInMemory(t *testing.T) {
	t.Parallel()
	for _, s := range inMemory {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			h := s.history(t)
			h.memory = true
			for i := range 2 {
				cfg := window.Config{Name: fmt.Sprint("local", i), Limits: onlyAll, Observe: noteCharge}
				h.limiters[0] = append(h.limiters[0], must(window.NewLocal(cfg)))
			}
			h.play(t)
		})
	}
}

// TestJointAgainstLogsWhileSlotsMove plays the same histories on a cluster in which the slot of all
// keys moves from one master to another and back. While the keys of a call are on two masters, the
// call is refused.
func TestJointAgainstLogsWhileSlotsMove(t *testing.T) {
	t.Parallel()
	nodes := redistest.Replicated(t)
	for _, s := range whileSlotsMove {
		t.Run(s.name, func(t *testing.T) {
			h, before := s.history(t), tryAgains(t, nodes)
			for i := range h.limiters {
				conn := window.On(nodes.NewClient(t, nil))
				h.limiters[i] = h.newLimiters(conn, time.Minute)
			}
			stop := moveSlot(t, nodes)
			h.play(t)
			stop()
			if refused := tryAgains(t, nodes) - before; refused == 0 && s.processes > 1 {
				t.Error("weak test: no call was refused because its keys were on two masters")
			} else {
				t.Logf("%d calls were refused for a moment", refused)
			}
		})
	}
}

// moveSlot keeps moving the slot of all keys to another master and back, until the returned stop is
// called. It waits between moves, because a slot that moves twice within milliseconds can be lost.
func moveSlot(t *testing.T, nodes *redistest.Nodes) (stop func()) {
	home, other := nodes.MasterOf(t, jointSlot), nodes.MasterOf(t, 0)
	over := make(chan struct{})
	var moving sync.WaitGroup
	moving.Go(func() {
		pace := time.NewTicker(50 * time.Millisecond)
		defer pace.Stop()
		for to, back := other, home; ; to, back = back, to {
			nodes.Move(t, jointSlot, to)
			select {
			case <-pace.C:
				continue
			case <-over:
			}
			if to == other {
				nodes.Move(t, jointSlot, home)
			}
			return
		}
	})
	return func() {
		close(over)
		moving.Wait()
	}
}

// tryAgains returns how many calls the nodes refused because their keys were on two masters.
func tryAgains(t *testing.T, nodes *redistest.Nodes) (sum int) {
	for _, s := range nodes.All {
		var n int
		_, rest, _ := strings.Cut(must(s.Do(t.Context(), "INFO", "errorstats").ToString()), "errorstat_TRYAGAIN:count=")
		_, _ = fmt.Sscan(rest, &n) // 0 if there is none
		sum += n
	}
	return sum
}

// A jointFault breaks something while callers ask, and repairs it once they are done.
type jointFault struct {
	name   string
	strike func(t *testing.T, h *jointHistory)
	mend   func(t *testing.T, h *jointHistory) // may be nil
}

var jointFaults = []jointFault{
	{name: "lost reply", strike: func(_ *testing.T, h *jointHistory) { h.faults.LoseReply("EVALSHA") }},
	{name: "cut", strike: func(_ *testing.T, h *jointHistory) { h.faults.Cut() }},
	{name: "clients killed", strike: func(t *testing.T, h *jointHistory) { h.do(t, "CLIENT", "KILL", "TYPE", "normal") }},
	{
		name:   "hang",
		strike: func(t *testing.T, h *jointHistory) { h.server.Pause(t) },
		mend:   func(t *testing.T, h *jointHistory) { h.server.Resume(t) },
	},
	{
		name:   "server killed",
		strike: func(t *testing.T, h *jointHistory) { h.server.Kill(t) },
		mend: func(t *testing.T, h *jointHistory) { // all counts are lost
			h.server.Restart(t)
			for _, c := range h.callers {
				h.failed.Add(int64(len(slices.DeleteFunc(c.calls, func(call jointCall) bool { return call.err == nil }))))
			}
			h.each(func(k *jointKey) { k.allowed, k.units, k.slack = nil, 0, 0 })
			h.together(func(c *jointCaller) { c.calls, c.given = nil, nil })
		},
	},
	{
		name: "foreign value",
		strike: func(t *testing.T, h *jointHistory) {
			h.do(t, "EVAL", "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('RENAME', KEYS[1], 'kept') end return redis.call('RPUSH', KEYS[1], 'foreign')", "1", h.subjects[0][2].name)
		},
		mend: func(t *testing.T, h *jointHistory) {
			h.do(t, "EVAL", "redis.call('DEL', KEYS[1]) if redis.call('EXISTS', 'kept') == 1 then redis.call('RENAME', 'kept', KEYS[1]) end return 1", "1", h.subjects[0][2].name)
		},
	},
	{
		name:   "OOM",
		strike: func(t *testing.T, h *jointHistory) { h.do(t, "CONFIG", "SET", "maxmemory", "1") },
		mend:   func(t *testing.T, h *jointHistory) { h.do(t, "CONFIG", "SET", "maxmemory", "0") },
	},
	{
		name: "ACL",
		strike: func(t *testing.T, h *jointHistory) { // makes one key inaccessible
			command := []string{"ACL", "SETUSER", "default", "resetkeys", "~*:{warm-*", "~*:p"}
			h.each(func(k *jointKey) {
				if k != h.subjects[0][2] {
					command = append(command, "~"+k.name)
				}
			})
			h.do(t, command...)
		},
		mend: func(t *testing.T, h *jointHistory) { h.do(t, "ACL", "SETUSER", "default", "~*") },
	},
}

// TestJointAmidFaults plays histories in which something breaks while callers ask jointly. Each
// call also counts units of a key that only its caller uses. These units are one bit of that key's
// total, so the total shows afterwards whether the call was counted. If it was, all keys of the
// call must count it, and otherwise none may.
func TestJointAmidFaults(t *testing.T) {
	t.Parallel()
	for _, f := range jointFaults {
		for _, s := range amidFaults {
			t.Run(f.name+", "+s.name, func(t *testing.T) {
				t.Parallel()
				h := s.history(t)
				h.fault = &f
				h.onServer(t, redistest.Start(t, "--maxmemory-policy", "noeviction"), 2*time.Second)
				h.play(t)
				t.Logf("%d joint calls had no answer, of which %d were counted; %d single calls had none; %d other errors", h.uncertain.Load(), h.counted.Load(), h.unclear.Load(), h.failed.Load())
				if h.unaffected() {
					t.Error("weak test: the fault affected no call")
				}
			})
		}
	}
}

// jointHistory holds what the callers have done, and what their keys must therefore count.
type jointHistory struct {
	jointSetting
	names    []string
	limiters [][]*window.Limiter // two for each process, with different names; on a server, the same two again on the test's clock
	clock    clock
	subjects [][]*jointKey // keys that callers share
	callers  []*jointCaller
	memory   bool // in memory instead of on a server
	ready    []func(*testing.T)

	server    *redistest.Server
	faults    redistest.Faults
	fault     *jointFault    // nil: none
	countdown atomic.Int64   // joint calls left until it strikes
	striking  sync.WaitGroup // done when it has struck

	done, asked, allowed                atomic.Int64 // all calls, joint calls, and allowed joint calls
	uncertain, counted, unclear, failed atomic.Int64 // see TestJointAmidFaults
}

// jointKey is a key, and what it must hold.
type jointKey struct {
	of     int // index of its limiter in each process
	event  string
	name   string // in Redis
	limits []window.Limit

	mu      sync.Mutex
	log     *exactLog
	ops     []jointOp
	refunds []jointRefund
	units   int64            // units counted by single attempts, minus units refunded
	slack   int64            // units that may be counted in addition
	allowed []allowedAttempt // refunded units are negative
}

// jointOp is a decision on a key.
type jointOp struct {
	verb   string
	n, now int64
	got    window.Decision
}

// jointRefund is a decision that was refunded by a call between these times.
type jointRefund struct {
	window.Decision
	began, ended time.Time
}

// jointCall is a joint call.
type jointCall struct {
	keys   []int // indices of the caller's keys
	checks []window.Check
	bit    int // the bit that the call counts in the total of the caller's own key
	got    window.JointDecision
	err    error
}

// jointCaller asks about the keys of its subject and about a key of its own.
type jointCaller struct {
	*jointHistory
	rng      *rand.Rand
	keys     []*jointKey // its own key comes last
	limiters []*window.Limiter
	calls    []jointCall  // in this round
	given    []jointGiven // in this phase
	bits     int          // bits that calls of this round used in the total of its own key
}

// jointGiven is a decision that the caller can refund.
type jointGiven struct {
	key int
	window.Decision
}

// jointSlot is the hash slot of all keys of a history.
const jointSlot = 6000

// jointEvents holds events whose keys are in jointSlot.
var jointEvents = sync.OnceValue(func() (events []string) {
	for i := 0; len(events) < 150; i++ {
		if event := fmt.Sprint("e", i); keys.Slot("{"+event+"}") == jointSlot {
			events = append(events, event)
		}
	}
	return events
})

func (s jointSetting) history(t *testing.T) *jointHistory {
	h := &jointHistory{jointSetting: s, limiters: make([][]*window.Limiter, s.processes), names: []string{redistest.Key(t), redistest.Key(t)}}
	h.calls = redistest.Share(s.calls)
	events := jointEvents()
	add := func(of int, limits []window.Limit) *jointKey {
		k := &jointKey{of: of, event: events[0], name: fmt.Sprintf("%s:{%s}:w", h.names[of], events[0]), limits: limits, log: newExactLog()}
		events = events[1:]
		return k
	}
	for i := range max(1, s.callers/10) {
		h.subjects = append(h.subjects, nil)
		for k, limits := range jointLimits {
			h.subjects[i] = append(h.subjects[i], add(k%2, limits))
		}
	}
	for i := range s.callers {
		shared := h.subjects[i/s.processes%len(h.subjects)]
		c := &jointCaller{jointHistory: h, rng: rand.New(rand.NewPCG(uint64(i), 2)), keys: append(shared[:len(shared):len(shared)], add(1, onlyAll))}
		h.callers = append(h.callers, c)
	}
	return h
}

// chargedAt is the context key of a *time.Time that receives the time at which Settle charged,
// because the decision that Settle returns keeps the time of the settled decision.
type chargedAt struct{}

func noteCharge(ctx context.Context, o window.Observation) {
	if at, ok := ctx.Value(chargedAt{}).(*time.Time); ok && o.Kind == window.KindCharged {
		*at = o.Decision.At
	}
}

func (h *jointHistory) newLimiters(conn *window.Connection, timeout time.Duration) (all []*window.Limiter) {
	for _, now := range []func() time.Time{nil, h.clock.now} {
		for _, name := range h.names {
			all = append(all, must(window.New(conn, window.Config{Name: name, Limits: onlyAll, Timeout: timeout, Observe: noteCharge, Now: now})))
		}
	}
	return all
}

func (h *jointHistory) onServer(t *testing.T, s *redistest.Server, timeout time.Duration) {
	h.server = s
	for i := range h.limiters {
		calls := &redistest.Calls{}
		client := s.NewClient(t, func(o *rueidis.ClientOption) {
			h.faults.Break(o)
			calls.Count(o)
		})
		two := h.newLimiters(window.On(client), timeout)
		h.limiters[i] = two
		h.ready = append(h.ready, func(t *testing.T) { awaitJoint(t, calls, two[0], two[0], two[1], two[1]) })
	}
}

// awaitReady waits until all processes decide jointly.
func (h *jointHistory) awaitReady(t *testing.T) {
	var group sync.WaitGroup
	for _, ready := range h.ready {
		group.Go(func() { ready(t) })
	}
	group.Wait()
}

func (h *jointHistory) do(t *testing.T, command ...string) {
	if err := h.server.Do(t.Context(), command...).Error(); err != nil {
		t.Errorf("%q: %v", command, err)
	}
}

// each calls do for each key, one by one.
func (h *jointHistory) each(do func(*jointKey)) {
	for _, s := range h.subjects {
		for _, k := range s {
			do(k)
		}
	}
	for _, c := range h.callers {
		do(c.keys[len(c.keys)-1])
	}
}

// together calls do for all callers concurrently.
func (h *jointHistory) together(do func(*jointCaller)) {
	var group sync.WaitGroup
	for _, c := range h.callers {
		group.Go(func() { do(c) })
	}
	group.Wait()
}

// play plays rounds until there have been enough calls. In each round, all keys are new. A fault that
// has affected no call yet, by chance, gets more rounds.
func (h *jointHistory) play(t *testing.T) {
	for i, c := range h.callers {
		for _, k := range c.keys {
			c.limiters = append(c.limiters, must(h.limiters[i%h.processes][k.of].With(k.limits...)))
		}
	}
	h.awaitReady(t)
	began := time.Now()
	for enough := int64(h.calls); h.done.Load() < enough || h.unaffected() && h.done.Load() < 20*enough; {
		if h.round(t); t.Failed() {
			return
		}
	}
	asked, allowed := h.asked.Load(), h.allowed.Load()
	t.Logf("%d calls in %v, %d of them joint, of which %d were allowed", h.done.Load(), time.Since(began).Round(time.Millisecond), asked, allowed)
	if h.fault == nil && allowed < asked/20 || allowed > asked*19/20 {
		t.Error("weak test")
	}
}

// unaffected reports whether there is a fault that has affected no call of many callers.
func (h *jointHistory) unaffected() bool {
	return h.fault != nil && len(h.callers) > 1 && h.uncertain.Load()+h.unclear.Load()+h.failed.Load() == 0
}

// round plays some phases on new keys, and checks the state that they leave.
func (h *jointHistory) round(t *testing.T) {
	phases, steps := 4, 5
	if len(h.callers) == 1 {
		phases, steps = 12, 3
	}
	broken := h.callers[0].rng.IntN(phases)
	for i := range phases {
		if h.fault != nil && i == broken {
			h.breakSomething(t, max(steps, 15/len(h.callers)))
		} else {
			if len(h.callers) > 1 || h.callers[0].rng.IntN(8) == 0 {
				<-time.After(time.Duration(h.callers[0].rng.IntN(20)) * time.Millisecond) // lets units expire
			}
			h.together(func(c *jointCaller) {
				for range steps {
					c.step(t)
				}
			})
		}
		h.replay(t)
		h.together(func(c *jointCaller) { c.giveBack(t) })
		h.replayRefunds(t)
	}
	h.check(t)
	h.reset(t)
}

// breakSomething lets callers ask jointly, and lets the fault strike while they ask.
func (h *jointHistory) breakSomething(t *testing.T, steps int) {
	h.awaitReady(t)
	h.countdown.Store(1 + h.callers[0].rng.Int64N(int64(len(h.callers)*steps/2)))
	h.striking.Add(1)
	h.together(func(c *jointCaller) {
		for range steps {
			strikes := h.countdown.Add(-1) == 0
			if strikes {
				go func() {
					defer h.striking.Done()
					h.fault.strike(t, h)
				}()
			}
			c.askJointly(t)
			if strikes { // otherwise all calls can be over before a slow fault strikes
				h.striking.Wait()
				c.askJointly(t)
			}
		}
	})
	h.striking.Wait()
	if h.fault.mend != nil {
		h.fault.mend(t, h)
	}
	h.awaitReady(t)
}

func (c *jointCaller) step(t *testing.T) {
	switch dice := c.rng.IntN(100); {
	case dice < 75:
		c.askJointly(t)
	case c.ahead:
		c.askAhead(t)
	case dice < 92:
		c.askOne(t)
	default:
		c.charge(t)
	}
}

// askJointly asks about one to five shared keys and the caller's own key.
func (c *jointCaller) askJointly(t *testing.T) {
	own := len(c.keys) - 1
	call := jointCall{keys: c.rng.Perm(own)[:1+c.rng.IntN(own)], bit: c.bits}
	call.keys = slices.Insert(call.keys, c.rng.IntN(len(call.keys)+1), own)
	for _, k := range call.keys {
		n := int64(1) << c.bits
		if k != own {
			n = c.units(k)
		}
		call.checks = append(call.checks, window.Check{Limiter: c.limiters[k], Event: c.keys[k].event, N: n})
	}
	c.bits++
	call.got, call.err = window.AllowAll(t.Context(), call.checks...)
	c.calls = append(c.calls, call)
	c.done.Add(1)
	c.asked.Add(1)
	c.take(t, call)
}

// take records the answer to a joint call.
func (c *jointCaller) take(t *testing.T, call jointCall) {
	if call.err != nil && c.fault == nil {
		t.Error(call.err)
	}
	if c.exact {
		c.order(t, call)
	}
	if !call.got.Allowed {
		return
	}
	c.allowed.Add(1)
	for i, k := range call.keys {
		if d := call.got.Decisions[i]; k < len(c.keys)-1 {
			c.give(k, d)
		}
	}
}

// give records that a decision counted units of a key, so that it can be refunded.
func (c *jointCaller) give(key int, d window.Decision) {
	k := c.keys[key]
	k.mu.Lock()
	defer k.mu.Unlock()
	k.allowed = append(k.allowed, allowedAttempt{d.At, d.Counted})
	c.given = append(c.given, jointGiven{key, d})
}

// order records the decisions of a joint call for the logs. In memory they are made one by one:
// units counted before a denial are refunded, and checks after it are peeked at.
func (c *jointCaller) order(t *testing.T, call jointCall) {
	if len(call.got.Decisions) != len(call.checks) {
		t.Errorf("%+v, %v for %d checks", call.got, call.err, len(call.checks))
		return
	}
	verb, longest, all := "denied", time.Duration(0), true
	if c.memory {
		verb = "taken"
	}
	if call.got.Allowed {
		verb = "allow"
	}
	now := slices.MinFunc(call.got.Decisions, func(a, b window.Decision) int { return a.At.Compare(b.At) }).At // the times of the other keys can be later
	for i, d := range call.got.Decisions {
		k, n := c.keys[call.keys[i]], call.checks[i].N
		if c.memory {
			now = d.At
		}
		if c.memory && !d.Allowed && all {
			k.note("allow", n, now, d)
			verb = "peek"
		} else {
			k.note(verb, n, now, d)
		}
		all, longest = all && d.Allowed, max(longest, d.RetryAfter)
	}
	if call.got.Allowed != all || call.got.RetryAfter != longest {
		t.Errorf("%+v", call.got)
	}
}

// fails reports whether a call for n units of a key failed. Without faults, it fails the test if
// the call failed. If the units may have been counted, it adds them to the key's slack.
func (c *jointCaller) fails(t *testing.T, k *jointKey, n int64, err error) bool {
	if err != nil && c.fault == nil {
		t.Error(err)
	}
	if errors.Is(err, window.ErrUncertain) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.slack += n
	}
	return err != nil
}

func (k *jointKey) note(verb string, n int64, now time.Time, got window.Decision) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ops = append(k.ops, jointOp{verb, n, now.UnixMilli(), got})
}

func (c *jointCaller) askOne(t *testing.T) {
	key := c.rng.IntN(len(c.keys) - 1)
	n := c.units(key)
	d, err := c.limiters[key].AllowN(t.Context(), c.keys[key].event, n)
	c.takeOne(t, key, n, d.At, d, err)
}

// askAhead asks with a clock that is up to two windows ahead.
func (c *jointCaller) askAhead(t *testing.T) {
	key := c.rng.IntN(len(c.keys) - 1)
	k, n := c.keys[key], c.units(key)
	c.clock.set(time.Now().Add(time.Duration(c.rng.Int64N(int64(2 * k.limits[0].Per)))))
	d, err := must(c.jointHistory.limiters[0][len(c.names)+k.of].With(k.limits...)).AllowN(t.Context(), k.event, n)
	c.takeOne(t, key, n, c.clock.now(), d, err)
}

// takeOne records the answer to a single attempt.
func (c *jointCaller) takeOne(t *testing.T, key int, n int64, now time.Time, d window.Decision, err error) {
	k := c.keys[key]
	c.done.Add(1)
	if c.fails(t, k, n, err) {
		return
	}
	k.note("allow", n, now, d)
	if d.Allowed {
		k.add(n)
		c.give(key, d)
	}
}

// charge settles an earlier decision at a higher cost or, if there is none, charges units.
func (c *jointCaller) charge(t *testing.T) {
	g, n := jointGiven{key: c.rng.IntN(len(c.keys) - 1)}, 1+c.rng.Int64N(2)
	if last := len(c.given) - 1; last >= 0 {
		g, c.given = c.given[last], c.given[:last]
	}
	k, at := c.keys[g.key], time.Time{}
	d, err := c.limiters[g.key].Settle(context.WithValue(t.Context(), chargedAt{}, &at), k.event, g.Decision, g.Counted+n)
	c.done.Add(1)
	if c.fails(t, k, n, err) {
		return
	}
	if d.Counted != g.Counted+n {
		t.Errorf("%+v", d)
	}
	d.At, d.Counted = at, n
	k.note("charge", n, at, d)
	k.add(n)
}

func (k *jointKey) add(units int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.units += units
}

// giveBack refunds part of what was counted in this phase: some decisions together with UndoAll,
// the rest one by one with Refund or Settle.
func (c *jointCaller) giveBack(t *testing.T) {
	several := c.rng.IntN(len(c.given) + 1)
	c.giveBackTogether(t, c.given[:several])
	for _, g := range c.given[several:] {
		k, l, began := c.keys[g.key], c.limiters[g.key], time.Now()
		if !c.canGiveBack(g, began) {
			continue
		}
		actual := c.rng.Int64N(g.Counted)
		var err error
		if actual == 0 {
			err = l.Refund(t.Context(), k.event, g.Decision)
		} else {
			_, err = l.Settle(t.Context(), k.event, g.Decision, actual)
		}
		g.Counted -= actual
		c.gaveBack(t, g, began, err)
	}
	c.given = nil
}

// canGiveBack picks half of what was counted, at random. In an exact history, it excludes units
// that a limit may forget at about the same time, because the result could not be predicted.
func (c *jointCaller) canGiveBack(g jointGiven, now time.Time) bool {
	return c.rng.IntN(2) == 0 && (!c.exact || !c.keys[g.key].isDue(g.At, now, now.Add(5*time.Millisecond)))
}

func (c *jointCaller) giveBackTogether(t *testing.T, given []jointGiven) {
	began := time.Now()
	given = slices.DeleteFunc(slices.Clone(given), func(g jointGiven) bool { return !c.canGiveBack(g, began) })
	var undos []window.Undo
	for _, g := range given {
		undos = append(undos, window.Undo{Limiter: c.limiters[g.key], Event: c.keys[g.key].event, Decision: g.Decision})
	}
	for i, err := range window.UndoAll(t.Context(), undos...) {
		c.gaveBack(t, given[i], began, err)
	}
}

// gaveBack records that everything that a decision still counts was refunded.
func (c *jointCaller) gaveBack(t *testing.T, g jointGiven, began time.Time, err error) {
	k := c.keys[g.key]
	c.done.Add(1)
	if !c.fails(t, k, g.Counted, err) || errors.Is(err, window.ErrUncertain) {
		k.back(jointRefund{g.Decision, began, time.Now()})
	}
}

// isDue reports whether a limit forgets units counted at the given time between from and to.
func (k *jointKey) isDue(counted, from, to time.Time) bool {
	return slices.ContainsFunc(k.limits, func(l window.Limit) bool {
		due := counted.Add(l.Per)
		return due.After(from.Add(-2*time.Millisecond)) && due.Before(to.Add(2*time.Millisecond))
	})
}

func (k *jointKey) back(r jointRefund) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refunds = append(k.refunds, r)
	k.units -= r.Counted
	k.allowed = append(k.allowed, allowedAttempt{r.At, -r.Counted})
}

// units returns how many units of a key to ask for.
func (c *jointCaller) units(key int) int64 {
	least := slices.MinFunc(c.keys[key].limits, func(a, b window.Limit) int { return int(a.Max - b.Max) }).Max
	return 1 + c.rng.Int64N(min(3, least))
}

// replay compares the decisions of a phase with the exact logs.
func (h *jointHistory) replay(t *testing.T) {
	h.each(func(k *jointKey) {
		if len(h.callers) > 1 {
			slices.SortStableFunc(k.ops, jointOp.compare)
		}
		for i := 0; i < len(k.ops) && h.exact && !t.Failed(); i++ {
			op := k.ops[i]
			contender{name: op.verb}.same(t, k.want(op), op.got, nil)
			if t.Failed() {
				t.Logf("%s under %v, after %+v\n%v", k.name, k.limits, k.ops[:i], k.log)
			}
		}
		k.ops = nil
	})
}

// compare orders decisions on one key, none of which was refunded. Each decision that counted units
// shows how many units had been counted before it. The other decisions come in between.
func (a jointOp) compare(b jointOp) int {
	all := len(a.got.Usage) - 1
	return cmp.Or(cmp.Compare(a.got.Usage[all].Used, b.got.Usage[all].Used), cmp.Compare(b.got.Counted, a.got.Counted), a.got.At.Compare(b.got.At))
}

// want returns the correct answer.
func (k *jointKey) want(op jointOp) window.Decision {
	switch op.verb {
	case "taken":
		d := k.log.decide(k.limits, "allow", op.n, op.now, false)
		k.log.refund(k.limits, d, op.now)
		return asItStands(d, op.n)
	case "peek":
		if d := k.log.decide(k.limits, op.verb, op.n, op.now, false); d.Allowed {
			return asItStands(d, op.n)
		}
	case "denied":
		k.log.repair(op.now)
		d := k.log.clone().decide(k.limits, "allow", op.n, op.now, false)
		if d.Allowed { // it would fit, and Usage shows the current state
			for i, r := range rulesOf(k.limits, false) {
				d.Usage[i] = k.log.usage(k.limits[i], r, op.n, op.now)
			}
			d.Counted, d.Remaining = 0, slices.MinFunc(d.Usage, func(a, b window.Usage) int { return cmp.Compare(a.Remaining, b.Remaining) }).Remaining
		}
		return d
	}
	return k.log.decide(k.limits, op.verb, op.n, op.now, false)
}

// asItStands returns an allowed decision on n units as if these units had not been counted.
func asItStands(d window.Decision, n int64) window.Decision {
	for i := range d.Usage {
		u := &d.Usage[i]
		u.Used, u.Remaining, u.RetryAfter = u.Used-n, max(0, u.Limit.Max-u.Used+n), 0
	}
	d.Counted, d.Remaining = 0, slices.MinFunc(d.Usage, func(a, b window.Usage) int { return cmp.Compare(a.Remaining, b.Remaining) }).Remaining
	return d
}

// replayRefunds replays the callers' refunds in the logs. If it is unknown how many of the refunded
// units a limit still had, it resets the key.
func (h *jointHistory) replayRefunds(t *testing.T) {
	h.each(func(k *jointKey) {
		due := false
		for _, r := range k.refunds {
			due = due || k.isDue(r.At, r.began, r.ended)
			k.log.refund(k.limits, r.Decision, r.began.UnixMilli())
		}
		if k.refunds = nil; due && h.exact {
			h.forget(t, k)
		}
	})
}

func (h *jointHistory) forget(t *testing.T, k *jointKey) {
	if err := h.limiters[0][k.of].Reset(t.Context(), k.event); err != nil {
		t.Error(err)
	}
	k.log, k.allowed, k.units, k.slack = newExactLog(), nil, 0, 0
}

// reset resets all keys.
func (h *jointHistory) reset(t *testing.T) {
	h.each(func(k *jointKey) { h.forget(t, k) })
	for _, c := range h.callers {
		c.calls, c.bits = nil, 0
	}
}

// check compares what the keys count with the logs or, if the history is not exact, with the
// answers.
func (h *jointHistory) check(t *testing.T) {
	for _, c := range h.callers {
		own := c.keys[len(c.keys)-1]
		mask := h.used(t, own)
		for _, call := range c.calls {
			bit := int64(1) << call.bit
			c.account(t, call, mask&bit != 0)
			mask &^= bit
		}
		if mask != 0 {
			t.Errorf("%s counts calls that were never made: %b", own.name, mask)
		}
	}
	for _, s := range h.subjects {
		for _, k := range s {
			h.checkKey(t, k)
		}
	}
}

func (h *jointHistory) used(t *testing.T, k *jointKey) int64 {
	s := must(must(h.limiters[0][k.of].With(k.limits...)).Inspect(t.Context(), k.event))
	all, now := s.Limits[len(k.limits)-1], s.At
	if n := len(all.Buckets); n > 0 { // s.At can be later
		now = all.Buckets[n-1].Last.Add(all.Limit.Per - all.ResetAfter)
	}
	if h.exact {
		contender{name: k.name}.same(t, k.log.inspect(k.limits, now.UnixMilli(), false), s.Limits, nil)
	}
	return all.Used
}

func (h *jointHistory) checkKey(t *testing.T, k *jointKey) {
	used := h.used(t, k)
	if h.exact {
		return
	}
	if used < k.units || used > k.units+k.slack {
		t.Errorf("%s counts %d units, not %d and up to %d more", k.name, used, k.units, k.slack)
	}
	slices.SortFunc(k.allowed, func(a, b allowedAttempt) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.units, b.units)) })
	for _, l := range k.limits { // units refunded sort before all other units of the same millisecond
		holds(t, l, k.allowed)
	}
}

// account adds the units of a call to its keys, if the caller's own key counts it.
func (c *jointCaller) account(t *testing.T, call jointCall, counted bool) {
	isClear := true
	switch says := fmt.Sprint(call.err); {
	case call.err == nil:
		if counted != call.got.Allowed {
			t.Errorf("counted: %v, although the answer was %+v", counted, call.got)
		}
	case errors.Is(call.err, window.ErrUncertain) && strings.Contains(says, "(checks 1 to "):
		c.uncertain.Add(1)
		if counted {
			c.counted.Add(1)
		}
	case errors.Is(call.err, window.ErrUncertain) || strings.Contains(says, "stay counted"):
		c.unclear.Add(1)
		isClear = false
	default:
		c.failed.Add(1)
		if counted {
			t.Errorf("counted, although the answer was %v", call.err)
		}
	}
	for i, n := range call.keys {
		if k := c.keys[n]; !isClear {
			k.slack += call.checks[i].N
		} else if counted {
			k.units += call.checks[i].N
		}
	}
}
