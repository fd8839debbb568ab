package ar1_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestBurstFromRestIsMax checks that at a level of 0, exactly Max units are allowed: one by one,
// all at once, and in two parts.
func TestBurstFromRestIsMax(t *testing.T) {
	for _, text := range []string{"1/1ms", "1/1s", "2/1s", "5/1h", "100/1m", "1000000/1ms", "1000000/1h", "10000000/36500d", "10000000/1s"} {
		t.Run(text, func(t *testing.T) {
			l := limits(text)
			both(t, ar1.Config{Limits: l}, func(b bench) {
				most := l[0].Max
				for k := range most {
					if most > 100 {
						break
					}
					if d := b.allow("singly", 1); !d.Allowed || d.Remaining != most-k-1 || d.Usage[0].Used != k+1 {
						b.Fatalf("unit %d: %+v", k+1, d)
					}
				}
				if !b.allow("at once", most).Allowed || !b.allow("in parts", most-most/2).Allowed || most > 1 && !b.allow("in parts", most/2).Allowed {
					b.Error("a part of Max is denied")
				}
				for _, event := range []string{"singly", "at once", "in parts"} {
					if d := b.peek(event, 1); d.Allowed && (most <= 100 || event != "singly") {
						b.Errorf("%s: one more than Max: %+v", event, d)
					}
				}
			})
		})
	}
}

// TestLongestWaits checks that waits too long for a time.Duration are reported as 290 years.
func TestLongestWaits(t *testing.T) {
	both(t, ar1.Config{Limits: limits("1000000/36500d")}, func(b bench) {
		d := b.allow("e", 1_000_000)
		if again := d.Usage[0]; again.RetryAfter != 290*365*24*time.Hour || again.ResetAfter != again.RetryAfter {
			b.Errorf("%+v", d)
		}
	})
}

// entry holds units that were allowed at a time in µs.
type entry struct{ at, units int64 }

// worst returns the most units in an interval of length Per that is open at one end.
func worst(log []entry, per time.Duration) (worst int64) {
	sum, first := int64(0), 0
	for _, e := range log {
		for sum += e.units; log[first].at+per.Microseconds() <= e.at; first++ {
			sum -= log[first].units
		}
		worst = max(worst, sum)
	}
	return worst
}

var flows = []string{"1/1ms", "1/1s", "2/1s", "5/10s", "7/1h", "100/1m", "100/1ms", "1000/1d", "100000/1h"}

// TestNoIntervalHoldsMoreThanTwiceMax takes every unit in the first microsecond in which it is
// available. It must get exactly 2 x Max units, because the documentation says that an interval can
// hold that many.
func TestNoIntervalHoldsMoreThanTwiceMax(t *testing.T) {
	for _, text := range redistest.UnlessShort(append(flows, "20000/10ms"), flows[:len(flows)-1]) {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			l := limits(text)
			b := inMemory(t, ar1.Config{Limits: l})
			var log []entry
			for end := b.clock.us.Load() + 2*l[0].Per.Microseconds(); b.clock.us.Load() < end; b.first() {
				n := b.allow("e", 1).Remaining
				if n > 0 && !b.allow("e", n).Allowed {
					t.Fatalf("Remaining is %d, but they are denied", n)
				}
				log = append(log, entry{b.clock.us.Load(), 1 + n})
			}
			got := worst(log, l[0].Per)
			if t.Logf("%d units in %v", got, l[0].Per); got > 2*l[0].Max || got < 2*l[0].Max-1-l[0].Max/10_000 {
				t.Errorf("that is not 2 x Max")
			}
		})
	}
}

// first moves the clock to the first microsecond at which a unit of "e" is allowed.
func (b bench) first() {
	d := b.peek("e", 1)
	if d.Allowed {
		b.Fatalf("there was more to take: %+v", d)
	}
	late := b.clock.us.Load() + d.RetryAfter.Microseconds()
	early := late - 1000
	for early+1 < late {
		b.clock.us.Store((early + late) / 2)
		if b.peek("e", 1).Allowed {
			late = b.clock.us.Load()
		} else {
			early = b.clock.us.Load()
		}
	}
	b.clock.us.Store(late)
}

// TestSteadyFlowIsNeverDenied sends Max units per Per, spaced as evenly as a microsecond clock
// allows, and then slower flows. Each flow runs until the level has peaked, and no unit may be
// denied.
func TestSteadyFlowIsNeverDenied(t *testing.T) {
	for _, text := range append(flows, "3/1s", "1000000/1h", "1000000/1d", "1000000/7s") {
		for _, rate := range []float64{1, 0.999, 0.7} {
			t.Run(fmt.Sprint(text, "/", rate), func(t *testing.T) {
				t.Parallel()
				l := limits(text)
				inMemory(t, ar1.Config{Limits: l}).flow(l[0], rate, min(150_000, 25*l[0].Max))
			})
		}
	}
	t.Run("1000000/1h/after a burst", func(t *testing.T) { // brings the level as close to its peak as a flow of 15 million
		t.Parallel()
		l := limits("1000000/1h")
		b := inMemory(t, ar1.Config{Limits: l})
		if b.clock.us.Store(noon - 3600); !b.allow("e", l[0].Max).Allowed {
			t.Fatal("a burst of Max is denied")
		}
		b.flow(l[0], 1, 300_000)
	})
	for _, text := range []string{"1/1s", "2/1s", "5/7s", "100/1h"} {
		t.Run("redis/"+text, func(t *testing.T) {
			c, l := newClock(), limits(text)
			b := bench{t, must(ar1.New(window.On(redistest.Client(t)), ar1.Config{Name: redistest.Key(t), Limits: l, Now: c.now, Timeout: time.Minute})), c}
			b.flow(l[0], 1, 25*l[0].Max+100)
		})
	}
}

// flow asks for single units, one after the other, at the given multiple of Max per Per.
func (b bench) flow(l window.Limit, rate float64, units int64) {
	b.Helper()
	if testing.Short() {
		units = min(units, 30_000)
	}
	between := float64(l.Per.Microseconds()) / float64(l.Max) / rate
	for k := range units {
		b.clock.us.Store(noon + int64(float64(k)*between))
		if d := b.allow("e", 1); !d.Allowed {
			b.Fatalf("unit %d of a flow of one every %v µs: %+v", k, between, d)
		}
	}
}

// TestSteadyFlowAtItsPeak starts at the level that a flow of a million units per Per reaches after
// a long time: C - 1, as exactly as the record can hold it.
func TestSteadyFlowAtItsPeak(t *testing.T) {
	l := limits("1000000/1h")
	c, client := newClock(), redistest.Client(t)
	b := bench{t, must(ar1.New(window.On(client), ar1.Config{Name: redistest.Key(t), Limits: l, Now: c.now, Timeout: time.Minute})), c}
	b.allow("e", 1)
	key := must(b.Inspect(t.Context(), "e")).Key
	const script = `return redis.call('SET', KEYS[1], struct.pack('>BI7I4d', 161, ARGV[1], 3600000, ARGV[2]))`
	c.us.Add(-3600)
	peak := fmt.Sprintf("%.17g", peakOf(l[0])-1)
	if err := client.Do(t.Context(), client.B().Eval().Script(script).Numkeys(1).Key(key).Arg(fmt.Sprint(int64(noon)), peak).Build()).Error(); err != nil {
		t.Fatal(err)
	}
	for k := range redistest.UnlessShort[int64](5000, 2000) {
		c.us.Store(noon + k*3600)
		if d := b.allow("e", 1); !d.Allowed {
			t.Fatalf("unit %d: %+v", k, d)
		}
	}
}

// TestExactRetry checks that a denied request is allowed after RetryAfter, but not a millisecond
// earlier. The same must hold for the RetryAfter of an allowed request, which is for the next
// request.
func TestExactRetry(t *testing.T) {
	for _, text := range []string{"1/1s", "5/1h", "100/1m", "70000/7d", "1000000/1d"} {
		l := limits(text)
		both(t, ar1.Config{Limits: append(l, limits("3000000/30d")...)}, func(b bench) {
			rng := rand.New(rand.NewPCG(uint64(l[0].Max), 0))
			for k := range 300 {
				n := 1 + rng.Int64N(l[0].Max)
				d := b.allow("e", n)
				wait := max(d.RetryAfter, d.Usage[0].RetryAfter, d.Usage[1].RetryAfter)
				if b.clock.pass(wait - time.Millisecond); wait > 0 && b.peek("e", n).Allowed {
					b.Fatalf("%v, %d: allowed sooner than %v", l[0], k, wait)
				}
				if b.clock.pass(time.Millisecond); !b.peek("e", n).Allowed {
					b.Fatalf("%v, %d: denied after %v", l[0], k, wait)
				}
				b.clock.us.Add(-rng.Int64N(wait.Microseconds()/2 + 1)) // not written yet, so the clock does not step back
			}
		})
	}
}

// TestLoweredMaxFreesNobody alternates calls under a lowered Max and under the old Max. The old
// limit must allow no more units than it would alone. If the new limit cut a level above its own C
// down to C, the old limit would keep allowing units.
func TestLoweredMaxFreesNobody(t *testing.T) {
	c, name := newClock(), redistest.Key(t)
	old := bench{t, must(ar1.New(window.On(redistest.Client(t)), ar1.Config{Name: name, Limits: limits("100/1h"), Now: c.now, Timeout: time.Minute})), c}
	lowered := bench{t, must(ar1.New(window.On(redistest.Client(t)), ar1.Config{Name: name, Limits: limits("5/1h"), Now: c.now, Timeout: time.Minute})), c}
	var log []entry
	for range 3600 {
		for old.allow("e", 1).Allowed {
			log = append(log, entry{c.us.Load(), 1})
		}
		if d := lowered.allow("e", 1); d.Allowed {
			t.Fatalf("at a level of about 100, a Max of 5 allows: %+v", d)
		}
		c.pass(time.Second)
	}
	if got := worst(log, time.Hour); got > 200 {
		t.Errorf("%d allowed in an hour", got)
	}
	d := lowered.peek("e", 1)
	want := time.Duration(float64(time.Hour) * math.Log(lowered.level()/(peakOf(limits("5/1h")[0])-1)))
	if off := d.RetryAfter - want; off < 0 || off > 2*time.Millisecond {
		t.Errorf("a wait of %v, not %v", d.RetryAfter, want)
	}
}

// TestDenialsAreNotRefunded checks that a refund of a denied attempt that counted changes nothing.
func TestDenialsAreNotRefunded(t *testing.T) {
	both(t, ar1.Config{Limits: limits("5/10s"), CountDenied: true}, func(b bench) {
		b.allow("e", 5)
		denied := b.allow("e", 5)
		before := b.level()
		if err := b.Refund(b.Context(), "e", denied); err != nil || denied.Allowed || denied.Counted != 5 || b.level() != before {
			b.Errorf("a denial was refunded, %v: %+v", err, denied)
		}
	})
}

// TestRate checks that the rate settles at that of the flow, to within half a unit per Per: it is
// lowest just before a unit, and highest just after.
func TestRate(t *testing.T) {
	both(t, ar1.Config{Limits: limits("1000/1m")}, func(b bench) {
		var rates []float64
		for k := range 2400 {
			b.clock.us.Store(noon + int64(k)*250_000)
			rates = append(rates, must(b.Inspect(b.Context(), "e")).Limits[0].Rate)
			b.allow("e", 1)
			rates = append(rates, must(b.Inspect(b.Context(), "e")).Limits[0].Rate)
		}
		settled := rates[4200:]
		if low, high := slices.Min(settled), slices.Max(settled); low < 3.99 || low > 3.992 || high < 4.008 || high > 4.01 {
			b.Errorf("a flow of 4 per second has a rate of %v to %v", low, high)
		}
	})
}
