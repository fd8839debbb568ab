package window_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestCountedUnitsEndADenial checks that units that this process counts end a cached denial, because
// they lengthen its wait.
func TestCountedUnitsEndADenial(t *testing.T) {
	client := redistest.Client(t)
	for _, verb := range []string{"allow", "upTo", "charge", "joint"} {
		l := must(window.New(window.On(client), window.Config{Name: redistest.Key(t), Limits: parsed("3/1h"), DenialCache: 10, Timeout: time.Minute}))
		must(l.AllowN(t.Context(), "e", 2))
		must(l.AllowN(t.Context(), "e", 2))
		if verb == "joint" {
			must(window.AllowAll(t.Context(), window.Check{Limiter: l, Event: "e"}, window.Check{Limiter: l, Event: "f"}))
		} else {
			must(decide(t.Context(), l, verb, "e", 1))
		}
		if d := must(l.AllowN(t.Context(), "e", 2)); d.Allowed || d.Usage[0].Used != 3 {
			t.Errorf("after %s: %+v", verb, d)
		}
	}
}

// TestOwnChangesUnderLoad runs callers that give up at random moments, and others of the same
// process that refund and reset, while another process makes attempts. Once all have ended, the
// limiter must deny only if Redis denies.
func TestOwnChangesUnderLoad(t *testing.T) {
	client, admin := redistest.Client(t), redistest.NewClient(t, nil)
	var remembered atomic.Int64
	denied, rounds := 0, redistest.UnlessShort(400, 40)
	for range rounds {
		cfg := window.Config{Name: redistest.Key(t), Limits: parsed("2/1h", "3/2h"), Timeout: 10 * time.Second}
		other := must(window.New(window.On(admin), cfg))
		cfg.DenialCache, cfg.Observe = 10, func(_ context.Context, o window.Observation) {
			if o.Trace.Remembered {
				remembered.Add(1)
			}
		}
		l := must(window.New(window.On(client), cfg))
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 30 {
					ctx, cancel := context.WithTimeout(context.Background(), rand.N(5*time.Millisecond))
					_, _ = l.Allow(ctx, "e")
					cancel()
				}
			})
		}
		for range 2 {
			callers.Go(func() {
				for range 1 + rand.IntN(20) {
					if err := changeAtRandom(l, other); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		got, now := must(l.Allow(t.Context(), "e")), must(other.Peek(t.Context(), "e"))
		if !got.Allowed && now.Allowed {
			t.Fatalf("got %+v, while Redis says %+v", got, now) // attempts of callers that gave up may still be counted, but they free nothing
		}
		if !got.Allowed {
			denied++
		}
	}
	t.Logf("%d of %d denied at the end, %d cached denials", denied, rounds, remembered.Load())
	if denied < rounds/20 || denied > rounds*19/20 || remembered.Load() < int64(rounds) {
		t.Error("this test proves too little")
	}
}

// changeAtRandom resets the event, makes an attempt and refunds or settles it, or makes an attempt
// in another process.
func changeAtRandom(l, other *window.Limiter) error {
	ctx := context.Background()
	switch rand.IntN(5) {
	case 0:
		return l.Reset(ctx, "e")
	case 1:
		return window.UndoAll(ctx, window.Undo{Limiter: l, Event: "e"})[0]
	case 2:
		_, err := other.Allow(ctx, "e")
		return err
	}
	d, err := l.Allow(ctx, "e")
	if err != nil || !d.Allowed {
		return err
	}
	if rand.IntN(2) == 0 {
		return l.Refund(ctx, "e", d)
	}
	_, err = l.Settle(ctx, "e", d, 0)
	return err
}

// BenchmarkDenied measures a cached denial with 64 callers.
func BenchmarkDenied(b *testing.B) {
	client := redistest.Client(b)
	for _, limits := range [][]string{{"1/1h"}, {"1/5m", "1/1h", "1/1d"}} {
		l := must(window.New(window.On(client), window.Config{Name: redistest.Key(b), Limits: parsed(limits...), DenialCache: 10}))
		for range 5 {
			must(l.Allow(b.Context(), "e"))
		}
		b.Run(strings.Join(limits, ","), func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if must(l.Allow(context.Background(), "e")).Allowed {
						panic("allowed")
					}
				}
			})
		})
	}
}
