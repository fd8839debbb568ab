package lua_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// event is an event with random limits, and a clock that only the test moves. Its random numbers
// are the same in every run.
type event struct {
	script
	judge
	*rand.Rand
	limits []string
	max    int64 // the smallest Max
	per    int64 // the longest Per, in ms
	now    int64 // in the unit of the script
}

// events runs a test for some random events of a script.
func (s script) events(t *testing.T, n int, test func(tb testing.TB, e *event)) {
	for seed := range redistest.Share(n) {
		e := &event{script: s, judge: s.onRedis(t), Rand: rand.New(rand.NewPCG(1, uint64(seed))), max: math.MaxInt64, now: s.midnight()}
		for i := range 1 + e.IntN(3) {
			e.limit(10 * math.Pow(100, float64(i)))
		}
		test(t, e)
	}
}

// limit adds a limit whose Per is about ms.
func (e *event) limit(ms float64) {
	per, most := int64(ms*(1+50*e.Float64())), int64(math.Pow(1000, e.Float64()))
	e.limits = append(e.limits, fmt.Sprintf("%d/%dms@%dms", most, per, 1+per*e.Int64N(2)/10))
	e.max, e.per = min(e.max, most), max(e.per, per)
}

// ask makes a call now.
func (e *event) ask(tb testing.TB, verb string, units int64) answer {
	tb.Helper()
	a := e.judge(tb, e.dated(verb, digits(e.now), digits(units), e.limits...)...)
	if a.err != "" {
		tb.Fatalf("%s %d under %q: %s", verb, units, e.limits, a.err)
	}
	return a
}

// wait lets some ms pass.
func (e *event) wait(ms int64) { e.now += ms * int64(time.Millisecond/e.unit) }

// again returns how many ms it takes until all limits allow the same request.
func again(a answer) (ms int64) {
	for i := 3; i < len(a.reply); i += 3 {
		ms = max(ms, a.reply[i])
	}
	return ms
}

// TestAgainIsExact repeats each denied request 1 ms early, when it must be denied, and on time,
// when it must be allowed.
func TestAgainIsExact(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		s.events(t, 40, func(tb testing.TB, e *event) {
			for range 30 {
				e.now += e.Int64N(1 + e.per*int64(time.Millisecond/s.unit)/20)
				e.comesAgain(tb, 1+e.Int64N(e.max))
			}
		})
	})
}

// comesAgain makes a request, and waits if it is denied.
func (e *event) comesAgain(tb testing.TB, units int64) {
	tb.Helper()
	denied := e.ask(tb, "allow", units)
	if denied.reply[0] == 1 {
		return
	}
	w := again(denied)
	e.wait(w - 1)
	if early := e.ask(tb, "allow", units); early.reply[0] == 1 || again(early) != 1 {
		tb.Errorf("%q deny %d for %d ms, but 1 ms before that reply %v", e.limits, units, w, early.reply)
	}
	e.wait(1)
	if due := e.ask(tb, "allow", units); due.reply[0] == 0 {
		tb.Errorf("%q deny %d for %d ms, but then reply %v", e.limits, units, w, due.reply)
	}
}

// TestUsedLeavesTheRest checks that as many units as every limit has left are allowed, and that one
// more is denied.
func TestUsedLeavesTheRest(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		s.events(t, 40, func(tb testing.TB, e *event) {
			for range 30 {
				e.now += e.Int64N(1 + e.per*int64(time.Millisecond/s.unit)/20)
				e.ask(tb, "count", 1+e.Int64N(e.max))
				e.leavesTheRest(tb)
			}
		})
	})
}

// leavesTheRest peeks at the event, and asks for what is left.
func (e *event) leavesTheRest(tb testing.TB) {
	tb.Helper()
	left, state := e.left(tb)
	if left > 0 && e.ask(tb, "peek", left).reply[0] == 0 {
		tb.Errorf("%q deny the last %d at %v", e.limits, left, state)
	}
	if left < e.max && e.ask(tb, "peek", left+1).reply[0] == 1 {
		tb.Errorf("%q allow one more than %d at %v", e.limits, left, state)
	}
}

// left returns how many units all limits have left, according to the replies under each limit
// alone.
func (e *event) left(tb testing.TB) (left int64, used []int64) {
	tb.Helper()
	left, all := math.MaxInt64, e.limits
	defer func() { e.limits = all }()
	for _, l := range all {
		e.limits = []string{l}
		most := must(strconv.ParseInt(e.script.limit(l)[1], 10, 64))
		used = append(used, e.ask(tb, "inspect", 1).reply[2])
		left = min(left, max(0, most-used[len(used)-1]))
	}
	return left, used
}

// TestLevelIsTheSumOfWhatDecayed compares the level of ar1 with its definition: each allowed unit
// weighs e^(-age/Per).
func TestLevelIsTheSumOfWhatDecayed(t *testing.T) {
	ar1.events(t, 30, func(tb testing.TB, e *event) {
		e.limits = e.limits[:1]
		args := e.script.limit(e.limits[0])
		per, most := 1000*must(strconv.ParseFloat(args[0], 64)), must(strconv.ParseInt(args[1], 10, 64))
		var allowed [][2]int64
		for range 40 {
			e.now += e.Int64N(1 + int64(per/3)) // short enough that nothing is forgotten
			n := 1 + e.Int64N(most)
			want := sum(allowed, e.now, per)
			if e.ask(tb, "allow", n).reply[0] == 1 {
				allowed = append(allowed, [2]int64{e.now, n})
				want += float64(n)
			}
			if got := ar1Level(e.ask(tb, "inspect", 1)); math.Abs(got-want) > 1e-8+1e-9*want { // the reply is rounded to 10^-8
				tb.Errorf("%q: level %v, not %v", e.limits, got, want)
			}
		}
	})
}

// sum returns what is left of units that were counted at the given times.
func sum(counted [][2]int64, now int64, per float64) (level float64) {
	for _, c := range counted {
		level += float64(c[1]) * math.Exp(-float64(now-c[0])/per)
	}
	return level
}

// ar1Level returns the level of the one limit in a reply to inspect.
func ar1Level(inspected answer) float64 { return float64(inspected.reply[5]) / 1e8 }

// TestRefundGivesBackNoMoreThanIsLeft checks that after the clock stepped back, a refund does not
// give back what has already decayed in the record.
func TestRefundGivesBackNoMoreThanIsLeft(t *testing.T) {
	ask := ar1.onRedis(t)
	ask(t, ar1.with("allow", "0s", "4", "9/1m")...)
	ask(t, ar1.with("allow", "1m", "1", "9/1m")...) // 4 x e^-1 + 1
	refund := ar1.with("refund", "30s", "4", "9/1m")
	refund[len(refund)-1] = ar1.at("0s")
	ask(t, refund...)
	inspected := ask(t, ar1.with("inspect", "30s", "1", "9/1m")...)
	if got := ar1Level(inspected); math.Abs(got-1) > 1e-6 {
		t.Errorf("1 other unit was counted, and the level is %v: %v", got, inspected.reply)
	}
}

// TestRefundOfForgottenUnits checks that a refund of forgotten units changes nothing, and that the
// reply says so: e^-60 of a unit is less than the precision of a level of 1.
func TestRefundOfForgottenUnits(t *testing.T) {
	ask := ar1.onRedis(t)
	ask(t, ar1.with("allow", "0s", "1", "9/1m")...)
	ask(t, ar1.with("allow", "1h", "1", "9/1m")...)
	refund := ar1.with("refund", "1h", "1", "9/1m")
	refund[len(refund)-1] = ar1.at("0s")
	if a := ask(t, refund...); a.reply[0] != 0 || a.wrote != "" {
		t.Errorf("it replies %v, and executes %q", a.reply, a.wrote)
	}
}
