package pace_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// TestRandomWaitsUnderLoad lets callers of three processes wait for turns of one to three units,
// with random contexts, while others reserve, cancel and pause. Each caller that does not give up
// must get a turn, no turn may come early, no interval of length Per may hold more than Max units,
// and no line may remain at the end.
func TestRandomWaitsUnderLoad(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits := [][]string{{"1/20ms"}, {"5/1s"}, {"4/100ms", "20/1s"}, {"300/10s"}}[seed%4]
				w := &randomWaits{T: t, Rand: rand.New(rand.NewPCG(3, seed)), limits: parsed(limits...), pauses: seed%8 < 4, slow: seed%16 < 8}
				w.play()
			})
		})
	}
}

type randomWaits struct {
	*testing.T
	*rand.Rand
	limits   []window.Limit
	limiters []*pace.Limiter
	pauses   bool
	slow     bool  // replies are delayed
	most     int64 // the most units of a turn

	mu    sync.Mutex
	gone  []logged // turns that were taken, when Wait returned
	ended int
}

func (w *randomWaits) play() {
	observe := func(_ context.Context, o window.Observation) {
		if o.Kind == window.KindAllowed && time.Now().Before(o.Decision.At) {
			w.Errorf("a caller goes %v before its turn", time.Until(o.Decision.At))
		}
	}
	first := must(pace.NewLocal(pace.Config{Name: "api", Limits: w.limits, MaxAhead: 2 * time.Second, Observe: observe}))
	w.limiters = []*pace.Limiter{first, pace.Sharing(first, 2*time.Second), pace.Sharing(first, 10*time.Second)}
	if w.slow {
		for i, l := range w.limiters {
			pace.Slow(l, time.Duration(i*w.IntN(100))*time.Millisecond)
		}
	}
	w.most = 3
	for _, l := range w.limits {
		w.most = min(w.most, l.Max)
	}
	var group sync.WaitGroup
	for i := range 200 {
		n, life, start := 1+w.Int64N(w.most), time.Duration(w.IntN(20_000))*time.Millisecond, time.Duration(w.IntN(3000))*time.Millisecond
		group.Go(func() {
			<-time.After(start)
			w.wait(i, n, life)
		})
	}
	for range 10 {
		<-time.After(time.Duration(w.IntN(800)) * time.Millisecond)
		w.disturb()
	}
	group.Wait()
	synctest.Wait()
	if !w.pauses && !w.slow { // a turn can come up to 100 ms into another process's pause, or be as late as the reply
		w.checkBound()
	}
	for _, l := range w.limiters {
		equal(w, "remaining lines", pace.Lines(l), 0)
	}
	w.Logf("%d went, %d left", len(w.gone), w.ended)
}

// wait lets a caller wait. A third of the callers wait without a limit, a third until a deadline,
// and a third until they give up.
func (w *randomWaits) wait(caller int, n int64, life time.Duration) {
	ctx, cancel := context.WithCancel(w.Context())
	switch caller % 3 {
	case 1:
		ctx, cancel = context.WithTimeout(w.Context(), life)
	case 2:
		defer time.AfterFunc(life, cancel).Stop()
	}
	defer cancel()
	began := time.Now()
	err := w.limiters[caller%len(w.limiters)].WaitN(ctx, "e", n)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		e := logged{at: time.Now()}
		e.N = n
		w.gone = append(w.gone, e)
	case caller%3 == 0 || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled):
		w.Errorf("caller %d: %v", caller, err)
	case time.Since(began) > life:
		w.Errorf("caller %d left after %v, not %v", caller, time.Since(began), life)
	default:
		w.ended++
	}
}

// disturb either reserves a turn, which it may cancel, or pauses.
func (w *randomWaits) disturb() {
	l := w.limiters[1+w.IntN(2)] // these have no Observe
	if w.pauses && w.IntN(3) == 0 {
		if err := l.Pause(w.Context(), "e", time.Duration(1+w.IntN(1500))*time.Millisecond); err != nil {
			w.Error(err)
		}
		return
	}
	r := must(l.Reserve(w.Context(), "e"))
	if r.OK && w.IntN(2) == 0 {
		if err := l.Cancel(w.Context(), r); err != nil {
			w.Error(err)
		}
	}
}

// checkBound checks what the called service sees if callers are up to a millisecond late.
func (w *randomWaits) checkBound() {
	slices.SortFunc(w.gone, func(a, b logged) int { return a.at.Compare(b.at) })
	for _, l := range w.limits {
		for i, last := range w.gone {
			units := int64(0)
			for _, e := range w.gone[:i+1] {
				if last.at.Sub(e.at) < l.Per-time.Millisecond {
					units += e.N
				}
			}
			if units > l.Max {
				w.Errorf("%d units within %v under %v", units, l.Per, l)
			}
		}
	}
}
