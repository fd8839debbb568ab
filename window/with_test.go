package window_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestWithTooManyLimits checks that one event is counted under limits with at most 31 different
// values of Per.
func TestWithTooManyLimits(t *testing.T) {
	both(t, limits("1/1h"), func(b bench) {
		b.allow("e", 1)
		for i := range 30 {
			must(with(b.Limiter, fmt.Sprintf("1/%dm", i+1)).Allow(b.Context(), "e"))
		}
		one := with(b.Limiter, "1/31m")
		if _, err := one.Allow(b.Context(), "e"); err == nil || !strings.Contains(err.Error(), "would count for more than 31 limits; wait until some are forgotten, or ") {
			b.Errorf("the 32nd: %v", err)
		}
		b.clock.pass(time.Minute) // one is forgotten
		if d := must(one.Allow(b.Context(), "e")); !d.Allowed {
			b.Errorf("%+v", d)
		}
	})
}

// TestWithRefuses checks that With rejects the limits that New rejects.
func TestWithRefuses(t *testing.T) {
	l := must(window.NewLocal(window.Config{Name: "plans", Limits: parsed("1/1h")}))
	for want, limits := range map[string][]window.Limit{
		`slidegate: With for limiter "plans" has no limits; give at least one, such as window.PerHour(5)`:                       nil,
		`slidegate: With for limiter "plans" has limit 2 with a Max of 0; choose 1 to 2^53 units`:                               {window.PerHour(1), window.PerDay(0)},
		`slidegate: With for limiter "plans" has two limits with a Per of 1h0m0s, 2/1h and 5/1h; keep the tighter one`:          {window.PerHour(2), window.PerHour(5)},
		`slidegate: With for limiter "plans" has limit 1 with a Per of 60ns; did you forget time.Second? A Per is in whole mil`: {{Max: 1, Per: 60}},
	} {
		if with, err := l.With(limits...); with != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestWithFallback checks that the Fallback decides under the limits passed to With, and refunds
// units that it counted under them.
func TestWithFallback(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	server.Kill(t)
	for _, countDenied := range []bool{false, true} {
		local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1/1m"), CountDenied: countDenied}))
		l := must(window.New(window.On(client), window.Config{Name: "plans", Limits: parsed("2/1h"), Fallback: local}))
		pro := with(l, "3/1h")
		d := must(pro.AllowN(t.Context(), "e", 2))
		if !d.Allowed || !d.Degraded || d.Usage[0].Limit != window.PerHour(3) || d.Remaining != 1 {
			t.Fatalf("%+v", d)
		}
		if d = must(pro.Settle(t.Context(), "e", d, 3)); !d.Degraded || d.Counted != 3 || d.Remaining != 0 {
			t.Errorf("settled to %+v", d)
		}
		d.Counted = 2 // one bucket holds them
		if err := pro.Refund(t.Context(), "e", d); err != nil {
			t.Error(err)
		}
		if used := must(with(local, "3/1h").Peek(t.Context(), "e")).Usage[0].Used; used != 2 {
			t.Errorf("the Fallback counts %d and this one", used-1)
		}
	}
}

// TestWithPlan checks that observations carry the plan: after With, and for decisions of the
// Fallback under its own limits or under those of With.
func TestWithPlan(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	server.Kill(t)
	var seen []string
	l := must(window.New(window.On(client), window.Config{
		Name: "plans", Limits: parsed("2/1h"), Fallback: must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1/1m")})),
		Observe: func(_ context.Context, o window.Observation) {
			if o.Took > 0 { // skips the events of an outage
				seen = append(seen, fmt.Sprint(o.Plan, " ", o.Kind, " ", o.Decision.Degraded))
			}
		},
	}))
	pro := l.WithPlan("pro")
	for _, of := range []*window.Limiter{pro, with(with(pro, "5/1h"), "3/1h"), with(pro, "5/1h").WithPlan("free"), l} {
		must(of.Peek(t.Context(), "e"))
	}
	must(with(pro, "9/1h").Settle(t.Context(), "e", window.Decision{Degraded: true}, 1))
	want := []string{"pro peeked true", "pro peeked true", "free peeked true", " peeked true", "pro charged true"}
	if !slices.Equal(seen, want) {
		t.Errorf("got  %q\nwant %q", seen, want)
	}
}

// TestWithSharesBreaker checks that an outage costs three timeouts in total, however many plans
// there are.
func TestWithSharesBreaker(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := must(window.New(window.On(server.Client(t)), window.Config{Name: "plans", Limits: parsed("2/1h"), Timeout: 200 * time.Millisecond}))
	faulttest.AwaitAnswer(t, l, "e")
	server.Pause(t)
	begin, waited := time.Now(), 0
	for i := range 1000 {
		_, err := with(l, fmt.Sprintf("%d/1h", i+3)).Allow(t.Context(), fmt.Sprint("customer ", i))
		if !errors.Is(err, window.ErrOutage) && !errors.Is(err, window.ErrUncertain) {
			t.Fatal(err)
		}
		if errors.Is(err, window.ErrUncertain) || strings.Contains(err.Error(), "not sent within") {
			waited++
		}
	}
	if most := 3 + int(time.Since(begin)/time.Second); waited < 3 || waited > most { // one more probe each second
		t.Errorf("%d calls waited in %v", waited, time.Since(begin))
	}
}

// TestWithCost checks that With makes three allocations.
func TestWithCost(t *testing.T) {
	if redistest.Race {
		t.Skip("under the race detector, more is allocated")
	}
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("2/1h")}))
	l := must(window.New(window.On(redistest.Client(t)), window.Config{Name: redistest.Key(t), Limits: parsed("2/1h"), Fallback: local, DenialCache: 10}))
	for _, texts := range [][]string{{"5/1h"}, {"1/5s", "100000/1h", "20/1d", "1000000/30d"}} {
		plan := parsed(texts...)
		if n := testing.AllocsPerRun(1000, func() { must(l.With(plan...)) }); n > 3 {
			t.Errorf("%d limits: %v allocations", len(plan), n)
		}
	}
}

// BenchmarkWith measures With alone, and, with 64 callers, decisions by a single limiter and by a
// new limiter from With for each of a thousand plans.
func BenchmarkWith(b *testing.B) {
	for _, plan := range [][]window.Limit{parsed("5000/1h"), parsed("1/5s", "5/1h", "20/1d")} {
		l := must(window.NewLocal(window.Config{Name: "plans", Limits: plan}))
		b.Run(fmt.Sprint("alone, limits=", len(plan)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(l.With(plan...))
			}
		})
	}
	l := must(window.New(window.On(redistest.Client(b)), window.Config{Name: redistest.Key(b), Limits: parsed("1000000/1h"), Timeout: time.Minute}))
	for name, of := range map[string]func(i int64) *window.Limiter{
		"one limiter": func(int64) *window.Limiter { return l },
		"1000 plans":  func(i int64) *window.Limiter { return must(l.With(window.PerHour(1_000_000 + i%1000))) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(32)
			var calls atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					i := calls.Add(1)
					must(of(i).Allow(context.Background(), fmt.Sprint("customer ", i%1000)))
				}
			})
		})
	}
}

// TestOthers checks that Inspect lists the limits of other callers in order of Per, and no longer
// once they count nothing.
func TestOthers(t *testing.T) {
	both(t, limits("9/1h"), func(b bench) {
		must(with(b.Limiter, "9/2m").Allow(b.Context(), "e"))
		must(with(b.Limiter, "9/3m", "9/1m", "9/2m").AllowN(b.Context(), "e", 2))
		var want []window.LimitState
		for i, used := range []int64{2, 3, 2} {
			per := time.Duration(i+1) * time.Minute
			want = append(want, window.LimitState{
				Usage: window.Usage{Limit: window.Limit{Per: per}, Used: used, ResetAfter: per}, Buckets: []window.Bucket{{Last: noon, Units: used}},
			})
		}
		if diff := cmp.Diff(want, b.inspect("e").Others); diff != "" {
			b.Errorf("(-want +got)\n%s", diff)
		}
		b.clock.pass(time.Hour)
		b.allow("e", 1)
		if others := b.inspect("e").Others; len(others) != 0 {
			b.Errorf("an hour later: %+v", others)
		}
	})
}
