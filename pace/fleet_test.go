package pace_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// booked records the turns that a limiter gives to its waiters.
type booked struct {
	mu    sync.Mutex
	turns []time.Time
}

func (b *booked) observe(_ context.Context, o window.Observation) {
	if o.Kind != window.KindAllowed {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turns = append(b.turns, o.Decision.At)
}

// TestFleet lets the callers of three processes wait for turns that come every 20 ms. Turns must
// come evenly, every process must get its share, and a turn must cost hardly more than one script
// call, even if there are four times as many waiters as can book within MaxAhead.
func TestFleet(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		callers int // callers in each process
		ahead   time.Duration
		share   int // the minimum share of each process, in percent
	}{
		"all book":  {20, 10 * time.Second, 25},
		"most wait": {67, time.Second, 5}, // callers book freed turns in the order in which they arrive, which depends on the machine
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newRedisFleet(t, pace.Config{Name: redistest.Key(t), Limits: parsed("1/20ms"), MaxAhead: test.ahead, Timeout: time.Minute})
			all := f.play(t, test.callers, 10*time.Second)
			for i := range f.seen {
				if n := len(f.seen[i].turns); n < len(all)*test.share/100 {
					t.Errorf("process %d got %d of %d turns", i, n, len(all))
				}
			}
			pauses := 0 // how often the machine stalled all processes
			for i := 1; i < len(all); i++ {
				if gap := all[i].Sub(all[i-1]); gap < 20*time.Millisecond {
					t.Errorf("turns %v apart", gap)
				} else if gap > 20*time.Millisecond {
					pauses++
				}
			}
			if pauses > len(all)/20 {
				t.Errorf("%d of %d turns come later than 20 ms after the one before", pauses, len(all))
			}
			if n := f.calls.Scripts.Load(); n > int64(len(all))*12/10+int64(3*test.callers) {
				t.Errorf("%d script calls for %d turns", n, len(all))
			}
			t.Logf("%d turns, %d script calls", len(all), f.calls.Scripts.Load())
		})
	}
}

// A redisFleet represents three processes.
type redisFleet struct {
	limiters []*pace.Limiter
	seen     [3]booked
	calls    redistest.Calls
}

func newRedisFleet(t *testing.T, cfg pace.Config) *redisFleet {
	t.Helper()
	f := &redisFleet{}
	for i := range f.seen {
		cfg.Observe = f.seen[i].observe
		f.limiters = append(f.limiters, must(pace.New(window.On(redistest.NewClient(t, f.calls.Count)), cfg)))
	}
	return f
}

// play lets the given number of callers in each process wait repeatedly. It returns their turns, in
// order.
func (f *redisFleet) play(t *testing.T, callers int, span time.Duration) (all []time.Time) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(span, cancel).Stop()
	var group sync.WaitGroup
	for _, l := range f.limiters {
		for range callers {
			group.Go(func() {
				for l.Wait(ctx, "e") == nil {
				}
			})
		}
	}
	group.Wait()
	all = f.turns()
	want := int(span / (20 * time.Millisecond))
	if len(all) < want*9/10 || len(all) > want+1+int(time.Since(began)-span)/int(20*time.Millisecond) {
		t.Errorf("%d turns in %v", len(all), span)
	}
	return all
}

// turns returns all turns that were taken, in order.
func (f *redisFleet) turns() (all []time.Time) {
	for i := range f.seen {
		f.seen[i].mu.Lock()
		all = append(all, f.seen[i].turns...)
		f.seen[i].mu.Unlock()
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}
