package window_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// TestAllowUpTo checks that AllowUpTo grants as many units as every limit allows, and returns the
// wait for one more unit.
func TestAllowUpTo(t *testing.T) {
	both(t, limits("10/1m", "25/1h"), func(b bench) {
		for _, step := range []struct{ ask, granted, used int64 }{{7, 7, 7}, {7, 3, 10}, {1 << 60, 0, 10}} {
			d := b.good(b.AllowUpTo(b.Context(), "e", step.ask))
			if d.Granted != step.granted || d.Counted != step.granted || d.Allowed != (step.granted > 0) || d.Usage[0].Used != step.used {
				b.Errorf("%d: %+v", step.ask, d)
			}
			if whole := step.granted == step.ask; whole != (d.RetryAfter == 0) {
				b.Errorf("%d: a wait of %v", step.ask, d.RetryAfter)
			}
		}
		b.clock.pass(time.Minute)
		if d := b.good(b.AllowUpTo(b.Context(), "e", 100)); d.Granted != 10 {
			b.Errorf("a minute later: %+v", d)
		}
		b.clock.pass(time.Minute)
		if d := b.good(b.AllowUpTo(b.Context(), "e", 100)); d.Granted != 5 || d.Tightest().Limit != window.PerHour(25) {
			b.Errorf("the hour denies: %+v", d)
		}
		if _, err := b.AllowUpTo(b.Context(), "e", 0); !errors.Is(err, window.ErrInvalidCost) {
			b.Error(err)
		}
	})
}

// TestAllowUpToCountsDenied checks that with CountDenied, all units count, and Granted says how
// many of them may be used.
func TestAllowUpToCountsDenied(t *testing.T) {
	cfg := limits("10/1m")
	cfg.CountDenied = true
	both(t, cfg, func(b bench) {
		if d := b.good(b.AllowUpTo(b.Context(), "e", 13)); d.Granted != 10 || d.Counted != 13 || !d.Allowed || d.RetryAfter != time.Minute {
			b.Errorf("%+v", d)
		}
		if d := b.good(b.AllowUpTo(b.Context(), "e", 2)); d.Granted != 0 || d.Counted != 2 || d.Allowed || d.Usage[0].Used != 15 {
			b.Errorf("%+v", d)
		}
	})
}

// TestCharge charges units above Max. Nothing may be allowed until enough units are forgotten.
func TestCharge(t *testing.T) {
	both(t, limits("5/1h"), func(b bench) {
		if d := b.good(b.Charge(b.Context(), "e", 3)); !d.Allowed || d.Granted != 3 || d.Counted != 3 || d.RetryAfter != 0 {
			b.Errorf("within Max: %+v", d)
		}
		b.clock.pass(30 * time.Minute)
		if d := b.good(b.Charge(b.Context(), "e", 6)); d.Allowed || d.Granted != 2 || d.Counted != 6 || d.Usage[0].Used != 9 || d.RetryAfter != time.Hour {
			b.Errorf("above Max: %+v", d)
		}
		b.clock.pass(30 * time.Minute) // three units are forgotten, and six are left
		if d := b.allow("e", 1); d.Allowed || d.RetryAfter != 30*time.Minute {
			b.Errorf("half an hour later: %+v", d)
		}
		b.clock.pass(30 * time.Minute)
		if d := b.allow("e", 5); !d.Allowed {
			b.Errorf("an hour later: %+v", d)
		}
	})
}

// TestChargesStayFew checks that charges never fill more buckets than a limit may have, whatever
// its Resolution.
func TestChargesStayFew(t *testing.T) {
	both(t, limits("5/1h", "9/1m@1ms"), func(b bench) {
		for range 700 {
			b.good(b.Charge(b.Context(), "e", 1))
			b.clock.pass(7 * time.Second)
		}
		for _, l := range must(b.Inspect(b.Context(), "e")).Limits {
			if len(l.Buckets) > 256 || len(l.Buckets) < 5 {
				b.Errorf("%v: %d buckets", l.Limit, len(l.Buckets))
			}
		}
	})
}

// TestChargedBuckets checks that charged units are kept in buckets of a sixtieth of the window,
// together with units that are allowed in between. Units are forgotten together with the last unit
// of their bucket.
func TestChargedBuckets(t *testing.T) {
	both(t, limits("9/1h"), func(b bench) {
		b.good(b.Charge(b.Context(), "e", 1))
		b.clock.pass(59 * time.Second)
		b.allow("e", 1)
		b.clock.pass(time.Second)
		b.allow("e", 1)
		for _, step := range []struct {
			pass time.Duration
			used int64
		}{{59*time.Minute + 58999*time.Millisecond, 3}, {time.Millisecond, 1}, {time.Second, 0}} {
			b.clock.pass(step.pass)
			if used := usedOf(b.T, b.Limiter, "e"); used != step.used {
				b.Errorf("%d used, not %d", used, step.used)
			}
		}
	})
}

// TestSettle checks that surplus units are given back, and that missing units are charged.
func TestSettle(t *testing.T) {
	both(t, limits("10/1h"), func(b bench) {
		for _, step := range []struct{ estimate, actual, used int64 }{{4, 1, 1}, {3, 3, 4}, {2, 5, 9}, {1, 0, 9}, {1, 9, 18}} {
			d := b.allow("e", step.estimate)
			s := b.good(b.Settle(b.Context(), "e", d, step.actual))
			if used := usedOf(b.T, b.Limiter, "e"); s.Counted != step.actual || used != step.used || s.At != d.At {
				b.Errorf("%+v: %d used after %+v", step, used, s)
			}
		}
		denied := b.allow("e", 1)
		if d := b.good(b.Settle(b.Context(), "e", denied, 2)); d.Counted != 2 || d.Usage[0].Used != 20 {
			b.Errorf("a denied attempt that happened anyway: %+v", d)
		}
		if _, err := b.Settle(b.Context(), "e", denied, -1); !errors.Is(err, window.ErrInvalidCost) || !strings.Contains(err.Error(), "-1") {
			b.Error(err)
		}
	})
}

// TestChargeTooMuch checks that a Charge that one call cannot count is an error, and counts
// nothing.
func TestChargeTooMuch(t *testing.T) {
	both(t, limits("5/1h"), func(b bench) {
		_, charge := b.Charge(b.Context(), "e", 1<<53+1)
		_, settle := b.Settle(b.Context(), "e", window.Decision{}, 1<<62)
		for _, err := range []error{charge, settle} {
			if err == nil || !strings.Contains(err.Error(), "in one call, which counts at most 9007199254740992; count them in several") {
				b.Error(err)
			}
		}
		if used := usedOf(b.T, b.Limiter, "e"); used != 0 {
			b.Errorf("%d used", used)
		}
	})
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, "nil or zero; create one with window.New") {
			t.Error(said)
		}
	}()
	_, _ = (*window.Limiter)(nil).Settle(t.Context(), "e", window.Decision{Counted: 1, Degraded: true}, 2)
}

// TestSettleOfFallbackObserved checks that the limiter itself reports a Settle in its Fallback.
func TestSettleOfFallbackObserved(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	server.Kill(t)
	var kinds []string
	l := must(window.New(window.On(client), window.Config{
		Name: "settled", Limits: parsed("5/1h"), Fallback: must(window.NewLocal(window.Config{Name: "local", Limits: parsed("5/1h")})),
		Observe: func(_ context.Context, o window.Observation) {
			if o.Decision.Degraded {
				kinds = append(kinds, fmt.Sprint(o.Kind, " ", o.Units))
			}
		},
	}))
	d := must(l.AllowN(t.Context(), "e", 2))
	if d = must(l.Settle(t.Context(), "e", d, 10)); !d.Degraded || d.Counted != 10 {
		t.Errorf("%+v", d)
	}
	if got := strings.Join(kinds, ", "); got != "allowed 2, charged 8" {
		t.Error(got)
	}
}

// TestSettledRepeatedly settles one decision several times, each time the one that Settle returned
// last, as if the cost became known step by step.
func TestSettledRepeatedly(t *testing.T) {
	both(t, limits("100/1h"), func(b bench) {
		d := b.allow("e", 10)
		for _, cost := range []int64{12, 30, 31, 9, 0} {
			b.clock.pass(time.Second)
			d = b.good(b.Settle(b.Context(), "e", d, cost))
			if used := usedOf(b.T, b.Limiter, "e"); used < cost {
				b.Errorf("%d used, settled to %d", used, cost)
			}
		}
	})
}

// TestNeverLessThanUsedUnderLoad lets many callers allow, settle and refund at once, while replies
// are lost and connections are cut. The counted units must never be fewer than the used units that
// were settled without an error. One script call handles several events.
func TestNeverLessThanUsedUnderLoad(t *testing.T) {
	t.Parallel()
	faults, calls := &redistest.Faults{}, &redistest.Calls{}
	client := redistest.NewClient(t, func(o *rueidis.ClientOption) { faults.Break(o); calls.Count(o) })
	l := must(window.New(window.On(client), window.Config{Name: redistest.Key(t), Limits: parsed("100000000/1h"), Timeout: time.Minute}))
	faulttest.AwaitGroups(t, l, calls)
	ledger, before := &ledger{limiter: l, events: many(8)}, calls.Several.Load()
	var group sync.WaitGroup
	for caller := range 16 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(caller), 1))
			for range redistest.UnlessShort(400, 100) {
				ledger.spend(t, rng)
				switch rng.IntN(30) {
				case 0:
					faults.LoseReply("EVALSHA")
				case 1:
					faults.Cut()
				}
			}
		})
	}
	group.Wait()
	faulttest.AwaitAnswer(t, l, "other")
	used := int64(0)
	for _, event := range ledger.events {
		used += usedOf(t, l, event)
	}
	if least, most := ledger.used.Load(), ledger.used.Load()+ledger.unsure.Load(); used < least || used > most {
		t.Errorf("%d counted, %d used, and %d unsure", used, least, ledger.unsure.Load())
	}
	if together := calls.Several.Load() - before; ledger.lost.Load() == 0 || together == 0 {
		t.Errorf("weak test: %d replies lost, %d script calls for several events", ledger.lost.Load(), together)
	}
}

// A ledger records how many units of some events were used.
type ledger struct {
	limiter            *window.Limiter
	events             []string
	used, unsure, lost atomic.Int64 // unsure: units that may also be counted
}

// spend gets an estimated number of units of an event, uses some, and settles.
func (l *ledger) spend(t *testing.T, rng *rand.Rand) {
	event, estimate, actual := l.events[rng.IntN(len(l.events))], 1+rng.Int64N(20), rng.Int64N(30)
	d, err := l.limiter.AllowN(t.Context(), event, estimate)
	if err != nil { // the caller then uses nothing
		l.lose(t, err, estimate)
		return
	}
	_, err = l.limiter.Settle(t.Context(), event, d, actual)
	switch {
	case err == nil:
		l.used.Add(actual)
	case actual < estimate: // the surplus may not have been given back
		l.used.Add(actual)
		l.lose(t, err, estimate-actual)
	default: // the excess may not be counted
		l.used.Add(estimate)
		l.lose(t, err, actual-estimate)
	}
}

func (l *ledger) lose(t *testing.T, err error, units int64) {
	l.lost.Add(1)
	if l.unsure.Add(units); !errors.Is(err, window.ErrUncertain) && !errors.Is(err, window.ErrOutage) {
		t.Error(err)
	}
}

// TestChargeObserved checks that Observe receives a Charge as KindCharged, not as an attempt.
func TestChargeObserved(t *testing.T) {
	var kinds []string
	cfg := window.Config{Name: "charged", Limits: parsed("2/1h")}
	cfg.Observe = func(_ context.Context, o window.Observation) {
		kinds = append(kinds, fmt.Sprint(o.Kind, " ", o.Units, " ", o.Decision.Granted))
	}
	l := must(window.NewLocal(cfg))
	d := must(l.AllowUpTo(t.Context(), "e", 3))
	must(l.Settle(t.Context(), "e", d, 5))
	if got := strings.Join(kinds, ", "); got != "allowed 3 2, charged 3 0" {
		t.Error(got)
	}
}
