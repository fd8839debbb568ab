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

// TestFleet lets the callers of three processes wait for turns that come every 20 ms. Each turn that
// Redis books must be taken by a caller, no process may be refused again and again, and a turn must
// cost hardly more than one script call, even if there are four times as many waiters as can book
// within MaxAhead. How long the machine takes must not matter.
func TestFleet(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		callers int // callers in each process
		ahead   time.Duration
		refused int // how often in a row a process may be refused; a third of the calls get turns
	}{
		"all book":  {20, 10 * time.Second, 0},
		"most wait": {67, time.Second, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleetOn(t, pace.Config{Name: redistest.Key(t), Limits: parsed("1/20ms"), MaxAhead: test.ahead, Timeout: time.Minute})
			began := time.Now()
			f.play(test.callers, 500)
			possible := int64(time.Since(began) / turn)
			var all []time.Time
			for i := range f.processes {
				p := &f.processes[i]
				p.check(t, test.refused)
				all = append(all, p.taken...)
				t.Logf("process %d: %d of 500 turns, refused %d times in a row", i, len(p.taken), p.mostRefused)
			}
			slices.SortFunc(all, time.Time.Compare)
			for i := 1; i < len(all); i++ {
				if gap := all[i].Sub(all[i-1]); gap < turn {
					t.Errorf("turns %v apart", gap)
				}
			}
			if n := f.calls.Scripts.Load(); n > possible*12/10+int64(3*test.callers) {
				t.Errorf("%d script calls in the time of %d turns", n, possible)
			}
			t.Logf("%d turns in the time of %d, %d script calls", len(all), possible, f.calls.Scripts.Load())
		})
	}
}

// A redisFleet represents three processes.
type redisFleet struct {
	processes [3]process
	calls     redistest.Calls
}

// A process records what happens to its turns.
type process struct {
	limiter *pace.Limiter

	mu          sync.Mutex
	open        map[time.Time]bool // turns that were booked, but neither taken nor cancelled
	taken       []time.Time
	early       []time.Duration // how late turns were that were cancelled although callers were waiting
	ending      bool            // callers give up
	refused     int             // how often, up to now, the process was refused in a row
	mostRefused int
}

func newFleetOn(t *testing.T, cfg pace.Config) *redisFleet {
	t.Helper()
	f := &redisFleet{}
	for i := range f.processes {
		p := &f.processes[i]
		p.open = map[time.Time]bool{}
		cfg.Observe = func(_ context.Context, o window.Observation) {
			if o.Kind == window.KindAllowed {
				p.take(o.Decision.At)
			}
		}
		p.limiter = must(pace.New(window.On(redistest.NewClient(t, f.calls.Count)), cfg))
		pace.Record(p.limiter, p.book, p.cancel)
	}
	return f
}

func (p *process) book(_ int64, turns []time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range turns {
		p.open[at] = true
	}
	if p.refused++; len(turns) > 0 {
		p.refused = 0
	}
	p.mostRefused = max(p.mostRefused, p.refused)
}

func (p *process) take(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = append(p.taken, at)
	delete(p.open, at)
}

func (p *process) cancel(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if late := time.Since(at); !p.ending && late < time.Second {
		p.early = append(p.early, late)
	}
	delete(p.open, at)
}

// check checks that turns were only cancelled when they were missed, or after callers gave up.
func (p *process) check(t *testing.T, refused int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) > 0 {
		t.Errorf("%d turns were booked, but neither taken nor cancelled", len(p.open))
	}
	if len(p.early) > 0 {
		t.Errorf("turns were cancelled although callers were waiting: %v late", p.early)
	}
	if p.mostRefused > refused {
		t.Errorf("a process was refused %d times in a row", p.mostRefused)
	}
}

// play lets the given number of callers in each process wait repeatedly, until they have taken the
// given number of turns. It returns after the other turns have been given back.
func (f *redisFleet) play(callers, turns int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	slots := make(chan struct{}, turns)
	var group sync.WaitGroup
	for i := range f.processes {
		p := &f.processes[i]
		for range callers {
			group.Go(func() {
				for p.limiter.Wait(ctx, "e") == nil {
					select {
					case slots <- struct{}{}:
					default:
						f.end(cancel)
					}
				}
			})
		}
	}
	group.Wait()
	for i := range f.processes {
		for pace.Lines(f.processes[i].limiter) > 0 {
			<-time.After(time.Millisecond)
		}
	}
}

// end makes all callers give up.
func (f *redisFleet) end(cancel func()) {
	for i := range f.processes {
		p := &f.processes[i]
		p.mu.Lock()
		p.ending = true
		p.mu.Unlock()
	}
	cancel()
}
