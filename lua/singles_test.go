package lua_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// singles maps each verb that stands for n calls of one unit to the verb of these calls.
var singles = map[string]string{"some": "allow", "each": "allow", "countsome": "count", "counteach": "count"}

// twin is one event under two keys. Each attempt of n units reaches one key as n calls of one unit,
// and the other as one call.
type twin struct {
	script
	*rand.Rand
	single, merged judge
	now            int64 // in the unit of the script
	pers           []int64
}

// newTwin returns an event with up to four random values of Per, without keys.
func newTwin(s script, random *rand.Rand) *twin {
	e := &twin{script: s, Rand: random, now: s.midnight()}
	for i := range 1 + e.IntN(4) {
		e.pers = append(e.pers, 10+e.Int64N([]int64{100, 10_000, 100_000, 1 << 33}[i]))
	}
	return e
}

// TestSingles compares some, countsome, each and counteach with the calls that they stand for:
// replies, bytes and times to live must be the same. The histories are random, and so are the
// limits of each call, including limits that other calls do not have. The clock is random too, and
// also steps back.
func TestSingles(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		for seed := range redistest.Share(30) {
			e := newTwin(s, rand.New(rand.NewPCG(2, uint64(seed))))
			e.single, e.merged = s.onRedis(t), s.onRedis(t)
			for range 40 {
				e.step(t)
			}
		}
	})
}

// step lets some time pass and makes calls.
func (e *twin) step(tb testing.TB) {
	tb.Helper()
	e.passTime()
	limits := e.limits()
	if e.IntN(4) == 0 {
		e.both(tb, []string{"allow", "count", "refund", "peek"}[e.IntN(4)], limits)
		return
	}
	n := 1 + e.Int64N(int64(1)<<e.IntN(6))
	for _, verb := range []string{"some", "each", "countsome", "counteach"} {
		if slices.Contains(e.verbs, verb) && e.IntN(4) == 0 {
			e.compare(tb, verb, n, limits)
		}
	}
}

// passTime moves the clock, sometimes back.
func (e *twin) passTime() {
	per := e.pers[e.IntN(len(e.pers))] * int64(time.Millisecond/e.unit)
	e.now += []int64{0, 1, e.Int64N(per), per / 7, -e.Int64N(per), -2 * per, 3 * per}[e.IntN(7)]
	e.now = min(max(e.now, 0), e.never-1)
}

// limits returns at least one limit, with a Per of the event and a random Max and Resolution each.
func (e *twin) limits() (limits []string) {
	for len(limits) == 0 {
		for _, i := range e.Perm(len(e.pers)) {
			if per := e.pers[i]; e.IntN(4) > 0 {
				width := []int64{1, (per + 59) / 60, 1 + e.Int64N(per)}[e.IntN(3)]
				limits = append(limits, fmt.Sprintf("%d/%dms@%dms", 1+e.Int64N(int64(1)<<e.IntN(9)), per, width))
			}
		}
	}
	return limits
}

// both makes the same call on both keys.
func (e *twin) both(tb testing.TB, verb string, limits []string) {
	tb.Helper()
	args := e.dated(verb, digits(e.now), "1", limits...)
	if diff := cmp.Diff(e.single(tb, args...), e.merged(tb, args...), cmp.AllowUnexported(answer{})); diff != "" {
		tb.Fatalf("%q (-single +merged)\n%s", args, diff)
	}
}

// compare makes n calls of one unit on one key, and on the other key the call that stands for them.
func (e *twin) compare(tb testing.TB, verb string, n int64, limits []string) {
	tb.Helper()
	want := e.calls(tb, verb, n, limits)
	args := e.dated(verb, digits(e.now), digits(n), limits...)
	got := e.merged(tb, args...)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); diff != "" {
		tb.Fatalf("%q (-single +merged)\n%s", args, diff)
	}
}

// calls makes n calls of one unit, and returns what the verb that stands for them must reply.
func (e *twin) calls(tb testing.TB, verb string, n int64, limits []string) (all answer) {
	tb.Helper()
	var allowed int64
	var rows []int64
	for k := range n {
		a := e.single(tb, e.dated(singles[verb], digits(e.now), "1", limits...)...)
		if a.err != "" {
			tb.Fatal(a.err)
		}
		allowed += a.reply[0]
		if verb == "some" || verb == "countsome" {
			rows = nil
		}
		if verb != "each" || a.reply[0] == 1 || allowed == k { // the first denial, but no later one
			rows = append(rows, a.reply[2:]...)
		}
		all.reply, all.stored = []int64{allowed, a.reply[1]}, a.stored
		if a.wrote != "" {
			all.wrote, all.px = a.wrote, a.px
		}
	}
	all.reply = append(all.reply, rows...)
	return all
}

// TestSinglesOfMany compares some and countsome of many units with calls of at most 4096 units. In
// ar1, these are each and counteach, which add one unit at a time. There every such sum is rounded, and the levels must still be equal bit for
// bit.
func TestSinglesOfMany(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		for seed := range redistest.Share(20) {
			e := &twin{script: s, Rand: rand.New(rand.NewPCG(3, uint64(seed))), single: s.onRedis(t), merged: s.onRedis(t), now: s.midnight()}
			var limits []string
			for i := range int64(1 + e.IntN(3)) {
				per := 1 + e.Int64N(1<<30)
				limits = append(limits, fmt.Sprintf("%d/%dms@%dms", 1+e.Int64N(1<<(1+e.IntN(18))), 4*per+i, per))
			}
			for range 4 {
				e.now += e.Int64N(1 << (20 + e.IntN(20)))
				e.many(t, []string{"some", "countsome"}[e.IntN(2)], 1+e.Int64N(1<<(1+e.IntN(15))), limits)
			}
		}
	})
}

// many makes one call, and the calls of at most 4096 units that stand for it.
func (e *twin) many(tb testing.TB, verb string, n int64, limits []string) {
	tb.Helper()
	var want answer
	var allowed int64
	for left := n; left > 0; left -= 4096 {
		verb := map[string]string{"some": "each", "countsome": "counteach"}[verb]
		if !slices.Contains(e.verbs, verb) {
			verb = "some"
		}
		a := e.single(tb, e.dated(verb, digits(e.now), digits(min(left, 4096)), limits...)...)
		if a.err != "" {
			tb.Fatal(a.err)
		}
		allowed += a.reply[0]
		if a.wrote == "" { // nothing was counted
			a.wrote, a.px = want.wrote, want.px
		}
		want = a
	}
	want.reply = append([]int64{allowed, want.reply[1]}, want.reply[len(want.reply)-3*len(limits):]...)
	got := e.merged(tb, e.dated(verb, digits(e.now), digits(n), limits...)...)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); diff != "" {
		tb.Fatalf("%s %d under %q (-one by one +at once)\n%s", verb, n, limits, diff)
	}
}

// TestInspectListsOthers checks what inspect replies on sections whose limits the call does not
// name. The reply must equal that to a call that names the limit: the same units, buckets or level,
// and the same time until they are forgotten.
func TestInspectListsOthers(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		for seed := range redistest.Share(20) {
			e := newTwin(s, rand.New(rand.NewPCG(4, uint64(seed))))
			e.single, e.merged = s.onRedis(t), s.onRedis(t)
			for range 20 {
				e.step(t)
				e.listsOthers(t)
			}
		}
	})
}

// listsOthers inspects the event without a limit, and with each limit alone.
func (e *twin) listsOthers(tb testing.TB) {
	tb.Helper()
	all := e.sections(e.single(tb, e.dated("inspect", digits(e.now), "1")...).reply[2:])
	for _, per := range e.pers {
		a := e.single(tb, e.dated("inspect", digits(e.now), "1", fmt.Sprintf("%d/%dms@1ms", e.most, per))...)
		shown, n := e.details(e.script, a.reply[5:])
		if want, stored := all[per]; stored {
			got := fmt.Sprintf("clear in %s%s", span(a.reply[4]), shown)
			if e.limited == 3 {
				got = fmt.Sprintf("%d used, %s", a.reply[2], got)
			}
			if got != want {
				tb.Errorf("%s: %q, but without a limit %q", span(per), got, want)
			}
		}
		others := e.sections(a.reply[5+n:])
		want := maps.Clone(all)
		delete(want, per)
		if diff := cmp.Diff(want, others); diff != "" {
			tb.Errorf("next to %s (-want +got)\n%s", span(per), diff)
		}
	}
}

// sections decodes the sections that inspect lists, by their Per.
func (e *twin) sections(rest []int64) map[int64]string {
	sections := map[int64]string{}
	for len(rest) > 0 {
		shown, n := e.other(e.script, rest[1:])
		sections[rest[0]], rest = shown, rest[1+n:]
	}
	return sections
}
