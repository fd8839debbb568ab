package pace_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// booked notes the turns that a limiter gave to those who wait.
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

// TestFleet lets three processes of 20 callers each wait for turns every 20 ms. Turns come evenly, every
// process gets its share, and a turn costs hardly more than one script call.
func TestFleet(t *testing.T) {
	t.Parallel()
	const processes, callers = 3, 20
	const span = 10 * time.Second
	key, calls := redistest.Key(t), &redistest.Calls{}
	var seen [processes]booked
	var limiters []*pace.Limiter
	for i := range processes {
		cfg := pace.Config{Name: key, Limits: parsed("1/20ms"), Timeout: time.Minute, Observe: seen[i].observe}
		limiters = append(limiters, must(pace.New(window.On(redistest.NewClient(t, calls.Count)), cfg)))
	}
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(span, cancel).Stop()
	var group sync.WaitGroup
	for _, l := range limiters {
		for range callers {
			group.Go(func() {
				for l.Wait(ctx, "e") == nil {
				}
			})
		}
	}
	group.Wait()
	var all []time.Time
	for i := range seen {
		all = append(all, seen[i].turns...)
	}
	slices.SortFunc(all, time.Time.Compare)
	want := int(span / (20 * time.Millisecond))
	if len(all) < want-5 || len(all) > want+1+int(time.Since(began)-span)/int(20*time.Millisecond) {
		t.Errorf("%d turns in %v", len(all), span)
	}
	for i := range seen {
		if n := len(seen[i].turns); n < len(all)*30/100 || n > len(all)*37/100 {
			t.Errorf("process %d got %d of %d turns", i, n, len(all))
		}
	}
	for i := 1; i < len(all); i++ {
		if gap := all[i].Sub(all[i-1]); gap != 20*time.Millisecond {
			t.Errorf("turns %v apart", gap)
		}
	}
	if n := calls.Scripts.Load(); n > int64(len(all))*12/10+callers*processes {
		t.Errorf("%d script calls for %d turns", n, len(all))
	}
	t.Logf("%d turns, %d script calls", len(all), calls.Scripts.Load())
}
