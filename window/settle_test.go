package window_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestSettleOfDenial checks that a denied attempt that happened anyway is charged, and that a
// negative cost is an error.
func TestSettleOfDenial(t *testing.T) {
	both(t, limits("2/1h"), func(b bench) {
		b.allow("e", 2)
		denied := b.allow("e", 1)
		if d := b.good(b.Settle(b.Context(), "e", denied, 2)); d.Counted != 2 || d.Usage[0].Used != 4 {
			b.Errorf("%+v", d)
		}
		if _, err := b.Settle(b.Context(), "e", denied, -1); !errors.Is(err, window.ErrInvalidCost) || !strings.Contains(err.Error(), "-1") {
			b.Error(err)
		}
	})
}

// TestChargesStayFew checks that charges never fill more buckets than a limit may have, whatever
// its Resolution.
func TestChargesStayFew(t *testing.T) {
	both(t, limits("5/1h", "9/10m@1ms"), func(b bench) {
		for range 700 {
			b.good(b.Charge(b.Context(), "e", 1))
			b.clock.pass(time.Second)
		}
		for _, l := range must(b.Inspect(b.Context(), "e")).Limits {
			if len(l.Buckets) > 256 || len(l.Buckets) < 5 {
				b.Errorf("%v: %d buckets", l.Limit, len(l.Buckets))
			}
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
