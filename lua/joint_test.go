package lua_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// jointTwin holds two copies of some events. On one copy, joint calls are for several events. On
// the other, each call is for one event.
type jointTwin struct {
	*twin
	client       rueidis.Client
	joint, alone string // the prefixes of their keys
}

// A jointAsk is the part of a joint call for one event.
type jointAsk struct {
	event  string
	units  int64
	limits []string // as arguments of the script
}

// TestJoint compares random joint calls, each for one to three groups of events, with calls for
// each single event: either all events of a group are counted or none, and the replies, bytes and
// times to live are the same. The clock also steps back. If an event fails, nothing may be written
// for its group. A denied group must be allowed after exactly its longest wait.
func TestJoint(t *testing.T) {
	for seed := range redistest.Share(20) {
		e := newJointTwin(t, rand.New(rand.NewPCG(6, uint64(seed))))
		for range 60 {
			e.passTime()
			e.step(t)
		}
	}
}

// newJointTwin returns two copies with random values of Per, on which two events fail.
func newJointTwin(tb testing.TB, random *rand.Rand) *jointTwin {
	tb.Helper()
	key := redistest.Key(tb)
	e := &jointTwin{newTwin(window, random), redistest.Client(tb), key + ":joint:", key + ":alone:"}
	for _, prefix := range []string{e.joint, e.alone} {
		for _, r := range e.client.DoMulti(tb.Context(),
			e.client.B().Set().Key(prefix+"foreign").Value("hello").Build(),
			e.client.B().Rpush().Key(prefix+"list").Element("hello").Build()) {
			must("", r.Error())
		}
	}
	return e
}

// step makes a joint call for random events.
func (e *jointTwin) step(tb testing.TB) {
	tb.Helper()
	size, groups := 1+e.IntN(4), 1+e.IntN(3)
	events := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
	e.Shuffle(len(events), func(i, k int) { events[i], events[k] = events[k], events[i] })
	if e.IntN(8) == 0 {
		events[e.IntN(size*groups)] = []string{"foreign", "list"}[e.IntN(2)]
	}
	asks := make([][]jointAsk, groups)
	for position := range size {
		var limits []string
		least := int64(math.MaxInt64)
		for _, l := range e.limits() {
			limit := e.limit(l)
			limits = append(limits, limit...)
			least = min(least, must(strconv.ParseInt(limit[1], 10, 64)))
		}
		for g := range asks {
			asks[g] = append(asks[g], jointAsk{events[g*size+position], 1 + e.Int64N(least), limits})
		}
	}
	before := e.states(tb, e.joint, asks)
	reply := e.ask(tb, asks)
	for g, group := range asks {
		reply = e.check(tb, group, before[g], reply)
	}
	if len(reply) > 0 {
		tb.Fatalf("%d integers too many", len(reply))
	}
}

// ask makes the call.
func (e *jointTwin) ask(tb testing.TB, asks [][]jointAsk) []rueidis.RedisMessage {
	tb.Helper()
	var keys, units, limits []string
	for g, group := range asks {
		for _, a := range group {
			keys, units = append(keys, e.joint+a.event), append(units, digits(a.units))
			if g == 0 {
				limits = append(append(limits, strconv.Itoa(len(a.limits)/3)), a.limits...)
			}
		}
	}
	args := slices.Concat([]string{"joint", digits(e.now)}, units, []string{strconv.Itoa(len(asks[0]))}, limits)
	return must(e.lua(args, script.shipped).Exec(tb.Context(), e.client, keys, args).ToArray())
}

// on makes a call for one event.
func (e *jointTwin) on(tb testing.TB, prefix, verb string, now int64, a jointAsk) []int64 {
	tb.Helper()
	args := append([]string{verb, digits(now), digits(a.units)}, a.limits...)
	return must(e.lua(args, script.shipped).Exec(tb.Context(), e.client, []string{prefix + a.event}, args).AsIntSlice())
}

// check verifies a group's part of the reply, and what the call wrote. It returns the part of the
// reply that follows.
func (e *jointTwin) check(tb testing.TB, group []jointAsk, before []string, reply []rueidis.RedisMessage) (rest []rueidis.RedisMessage) {
	tb.Helper()
	var parts [][]rueidis.RedisMessage
	fits, broken := true, false
	for _, a := range group {
		width := 2 + len(a.limits)
		parts, reply = append(parts, reply[:width]), reply[width:]
		if a.event == "foreign" || a.event == "list" {
			broken = true
		} else {
			fits = e.on(tb, e.alone, "peek", e.now, a)[0] == 1 && fits
		}
	}
	longest := int64(0)
	for i, a := range group {
		if a.event == "foreign" || a.event == "list" {
			if text, err := parts[i][0].ToString(); err != nil || !strings.Contains(text, e.joint+a.event) {
				tb.Errorf("%s: %q, %v", a.event, text, err)
			}
			continue
		}
		got := make([]int64, len(parts[i]))
		for k, m := range parts[i] {
			got[k] = must(m.AsInt64())
		}
		want, wait := e.want(tb, a, fits && !broken)
		longest = max(longest, wait)
		equal(tb, fmt.Sprintf("the reply about %+v, now %d", a, e.now), got, want)
		switch after := e.state(tb, e.joint, a); {
		case broken:
			equal(tb, "what a failed call leaves", after, before[i])
		case fits || wait > 0:
			equal(tb, "the record", after, e.state(tb, e.alone, a))
		default: // nothing is counted, but a timestamp may be repaired
			for _, later := range []int64{0, e.Int64N(2 * e.pers[0]), e.Int64N(2 * e.pers[len(e.pers)-1])} {
				if later > 0 && !e.repair(tb, a) {
					break
				}
				equal(tb, "the state", e.on(tb, e.joint, "inspect", e.now+later, a), e.on(tb, e.alone, "inspect", e.now+later, a))
			}
		}
		e.synchronize(tb, a)
	}
	if longest > 0 && !broken {
		equal(tb, "allowed after the longest wait, and before", []bool{e.fits(tb, group, e.now+longest), e.fits(tb, group, e.now+longest-1)}, []bool{true, false})
	}
	return reply
}

// want returns the expected reply for an event, and how long the event has to wait. On the other
// copy, it counts the units if the group is counted, and repairs the record if the event is denied.
func (e *jointTwin) want(tb testing.TB, a jointAsk, counted bool) (want []int64, wait int64) {
	tb.Helper()
	peeked := e.on(tb, e.alone, "peek", e.now, a)
	switch {
	case counted:
		return e.on(tb, e.alone, "allow", e.now, a), 0
	case peeked[0] == 1: // without its units
		want = []int64{1, peeked[1]}
		for rest := e.on(tb, e.alone, "inspect", e.now, a)[2:]; len(want) < 2+len(a.limits); rest = rest[4+2*rest[3]:] {
			want = append(want, rest[:3]...)
		}
		return want, 0
	}
	for i := 3; i < len(peeked); i += 3 {
		wait = max(wait, peeked[i])
	}
	return e.on(tb, e.alone, "allow", e.now, a), wait
}

// repair repairs timestamps on the other copy with a call that a lower Max denies, if a limit
// counts units.
func (e *jointTwin) repair(tb testing.TB, a jointAsk) bool {
	tb.Helper()
	rows := e.on(tb, e.alone, "peek", e.now, a)[2:]
	a.limits = slices.Clone(a.limits)
	for i := 0; i < len(rows); i += 3 {
		if used := rows[i] - a.units; used > 0 {
			a.limits[i+1] = digits(max(used, a.units))
			equal(tb, "allowed under a lower Max", e.on(tb, e.alone, "allow", e.now, a)[0], 0)
			return true
		}
	}
	return false
}

// fits reports whether all events of a group would be allowed at some time.
func (e *jointTwin) fits(tb testing.TB, group []jointAsk, now int64) bool {
	tb.Helper()
	return !slices.ContainsFunc(group, func(a jointAsk) bool { return e.on(tb, e.joint, "peek", now, a)[0] == 0 })
}

// states returns the states of the events, by group.
func (e *jointTwin) states(tb testing.TB, prefix string, asks [][]jointAsk) (all [][]string) {
	tb.Helper()
	for _, group := range asks {
		var states []string
		for _, a := range group {
			states = append(states, e.state(tb, prefix, a))
		}
		all = append(all, states)
	}
	return all
}

// state returns the record of an event, and how long it lives, in minutes.
func (e *jointTwin) state(tb testing.TB, prefix string, a jointAsk) string {
	tb.Helper()
	if a.event == "list" {
		return ""
	}
	key := prefix + a.event
	value, err := e.client.Do(tb.Context(), e.client.B().Get().Key(key).Build()).ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		tb.Fatal(err)
	}
	life := must(e.client.Do(tb.Context(), e.client.B().Pttl().Key(key).Build()).AsInt64())
	return fmt.Sprintf("%x for %v", value, (time.Duration(life) * time.Millisecond).Round(time.Minute))
}

// synchronize makes the copy for single calls equal to the other copy after a repair.
func (e *jointTwin) synchronize(tb testing.TB, a jointAsk) {
	tb.Helper()
	const script = `local value = redis.call('GET', KEYS[1])
		if value then return redis.call('SET', KEYS[2], value, 'PX', redis.call('PTTL', KEYS[1])) end
		return redis.call('DEL', KEYS[2])`
	must(e.client.Do(tb.Context(), e.client.B().Eval().Script(script).Numkeys(2).Key(e.joint+a.event, e.alone+a.event).Build()).ToAny())
}

// TestBadJoint checks that a joint call with invalid arguments is rejected as a whole, before
// anything is written.
func TestBadJoint(t *testing.T) {
	g := window.groupOn(t, redistest.Client(t))
	valid := func() []string {
		return slices.Concat([]string{"joint", window.at("2s"), "1", "1", "1", "3", "1"}, window.limit("5/1m@1s"), []string{"2"}, window.limit("5/1m@1s"), window.limit("20/1h@1m"), []string{"1"}, window.limit("5/1m@1s"))
	}
	for name, spoil := range map[string]func(args []string) []string{
		"no units of the second":      change(3, "0"),
		"a fraction of units":         change(4, "1.5"),
		"units over a Max":            change(2, "6"),
		"the last one's over a Max":   change(4, "6"),
		"groups of no event":          change(5, "0"),
		"groups of two":               change(5, "2"),
		"groups of one and a half":    change(5, "1.5"),
		"groups of four":              change(5, "4"),
		"no limit of the first":       change(6, "0"),
		"a limit more than there are": change(6, "2"),
		"a limit less than there are": change(10, "1"),
		"32 limits":                   change(10, "32"),
		"a Per twice":                 change(14, "60000"),
		"a Per of nothing":            change(18, "0"),
		"one argument too many":       func(args []string) []string { return append(args, "1") },
		"one argument too few":        func(args []string) []string { return args[:len(args)-1] },
		"no limits":                   func(args []string) []string { return args[:6] },
		"no groups":                   func(args []string) []string { return args[:5] },
		"nothing but the verb":        func(args []string) []string { return args[:1] },
	} {
		g.refuses(name, spoil(valid()))
	}
	if err := g.call(valid()).Error(); err != nil {
		t.Error(err)
	}
}

func equal[T any](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}
