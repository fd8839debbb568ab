package inflight_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

const (
	processes = 3
	ttl       = 3 * time.Second // a busy machine can stop everything for a second
)

// TestHistoriesUnderLoad lets 200 callers of three processes take units of few events, release some of them
// twice or late, hold some for longer than TTL, and abandon some. Each lease was certainly held from the
// answer to the call for release, on the clock of the server, which is that of this machine. At no time may
// more than Max be held so. A denial is right only if units may be held that do not fit.
func TestHistoriesUnderLoad(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func() []*inflight.Limiter{
		"memory": func() []*inflight.Limiter { return []*inflight.Limiter{must(inflight.NewLocal(config(t)))} },
		"Redis": func() (all []*inflight.Limiter) {
			cfg := config(t)
			for range processes {
				all = append(all, must(inflight.New(window.On(redistest.NewClient(t, nil)), cfg)))
			}
			return all
		},
		"cluster": func() (all []*inflight.Limiter) {
			cfg := config(t)
			for range processes {
				all = append(all, must(inflight.New(window.On(redistest.Cluster(t)), cfg)))
			}
			return all
		},
		"cluster whose slots move": func() (all []*inflight.Limiter) {
			nodes, cfg := redistest.Replicated(t), config(t)
			for range processes {
				all = append(all, must(inflight.New(window.On(nodes.NewClient(t, nil)), cfg)))
			}
			moveSlot(t, nodes, keys.Slot("{e0}"))
			return all
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &history{T: t, limiters: open(), events: make([]log, 8), calls: redistest.Share(150)}
			h.play()
		})
	}
}

// moveSlot moves a slot to another master and back, until the test ends. It waits between, since a slot that moves
// twice within milliseconds can be lost.
func moveSlot(t *testing.T, nodes *redistest.Nodes, slot int) {
	home, other := nodes.MasterOf(t, slot), nodes.MasterOf(t, (slot+8192)%16384)
	over := make(chan struct{})
	var moving sync.WaitGroup
	moving.Go(func() {
		for {
			for _, to := range []*redistest.Server{other, home} {
				nodes.Move(t, slot, to)
				<-time.After(50 * time.Millisecond)
			}
			select {
			case <-over:
				return
			default:
			}
		}
	})
	t.Cleanup(func() {
		close(over)
		moving.Wait()
	})
}

func config(t *testing.T) inflight.Config {
	return inflight.Config{Name: redistest.Key(t), Max: 40, TTL: ttl, Timeout: ttl / 3}
}

type history struct {
	*testing.T
	limiters []*inflight.Limiter
	events   []log
	calls    int          // of each caller
	failed   atomic.Int64 // calls, on a busy machine
}

// log is what is known of an event.
type log struct {
	mu      sync.Mutex
	leases  []held
	denials []denial
}

// held is a lease: certainly from taken to surely, and perhaps from began to perhaps.
type held struct {
	n                             int64
	began, taken, surely, perhaps time.Time
}

type denial struct {
	inflight.Decision
	n int64
}

func (h *history) play() {
	var group sync.WaitGroup
	for i := range 200 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(5, uint64(i)))
			for range h.calls {
				h.call(rng, h.limiters[i%len(h.limiters)])
			}
		})
	}
	group.Wait()
	taken, denied := 0, 0
	for i := range h.events {
		taken, denied = taken+len(h.events[i].leases), denied+len(h.events[i].denials)
		h.check(fmt.Sprint("e", i), &h.events[i])
	}
	for _, l := range h.limiters {
		equal(h, "events for which somebody waits", inflight.Waiting(l), 0)
	}
	failed := int(h.failed.Load())
	if h.Logf("%d taken, %d denied, %d failed", taken, denied, failed); min(taken, denied) < 200*h.calls/20 || failed > taken/10 {
		h.Error("a poor test")
	}
}

// call takes units, now and then by waiting for them, or under a plan of fewer, and gives them back in some way.
func (h *history) call(rng *rand.Rand, l *inflight.Limiter) {
	event, n := rng.IntN(len(h.events)), 1+rng.Int64N(4)
	if rng.IntN(10) == 0 {
		l = must(l.With(20))
	}
	began, name := time.Now(), fmt.Sprint("e", event)
	lease, d, err := l.TryAcquireN(h.Context(), name, n)
	if err == nil && lease == nil && rng.IntN(20) == 0 {
		lease, err = l.AcquireN(h.Context(), name, n)
		d.At = time.Now() // or sooner
	}
	log := &h.events[event]
	switch e := (held{n: n, began: began, taken: d.At}); {
	case !h.knows(err): // it may be held until it ends
		e.perhaps = time.Now().Add(ttl)
		log.add(e)
	case lease == nil:
		log.deny(denial{d, n})
		<-time.After(time.Duration(rng.IntN(2)) * time.Millisecond)
	default:
		h.end(rng, lease, &e)
		log.add(e)
	}
}

func (l *log) add(e held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases = append(l.leases, e)
}

func (l *log) deny(d denial) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.denials = append(l.denials, d)
}

// knows reports whether a call had an answer. On a busy machine, some have none in time.
func (h *history) knows(err error) bool {
	if err != nil {
		h.failed.Add(1)
	}
	if err != nil && !errors.Is(err, inflight.ErrOutage) && !errors.Is(err, inflight.ErrUncertain) {
		h.Error(err)
	}
	return err == nil
}

// end ends a lease in a random way.
func (h *history) end(rng *rand.Rand, lease *inflight.Lease, e *held) {
	hold := time.Duration(rng.ExpFloat64() * float64(3*time.Millisecond))
	if rng.IntN(400) == 0 { // it has to be renewed
		hold = ttl * 3 / 2
	}
	if rng.IntN(400) == 0 {
		inflight.Abandon(lease)
		e.surely = e.taken.Add(ttl)
		e.perhaps = time.Now().Add(ttl)
		return
	}
	<-time.After(hold)
	if e.surely = time.Now(); lease.Left() == 0 { // it was lost on a busy machine
		e.surely = e.taken
	}
	if e.perhaps = time.Now(); !h.knows(lease.Release(h.Context())) {
		e.perhaps = e.perhaps.Add(ttl)
	}
	if e.perhaps = latest(e.perhaps, time.Now()); rng.IntN(10) == 0 {
		h.knows(inflight.ReleaseAgain(lease))
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// check sweeps over the leases of an event in the order of time.
func (h *history) check(name string, log *log) {
	surely, perhaps := changes(log.leases, held.sure), changes(log.leases, held.possible)
	used := int64(0)
	for _, c := range surely {
		if used += c.units; used > 40 {
			h.Errorf("%s: %d units at %v", name, used, c.at)
			return
		}
	}
	slices.SortFunc(log.denials, func(a, b denial) int { return a.At.Compare(b.At) })
	used = 0
	for _, d := range log.denials {
		for len(perhaps) > 0 && !perhaps[0].at.After(d.At) {
			used += perhaps[0].units
			perhaps = perhaps[1:]
		}
		if used+d.n <= d.Max {
			h.Errorf("%s: %d units denied at %v, though at most %d of %d were held", name, d.n, d.At, used, d.Max)
			return
		}
	}
}

func (e held) sure() (from, to time.Time)     { return e.taken, e.surely }
func (e held) possible() (from, to time.Time) { return e.began, e.perhaps.Add(time.Millisecond) }

// change is that units come or go.
type change struct {
	at    time.Time
	units int64
}

// changes returns those of leases in order. At the same time, units go first.
func changes(all []held, span func(held) (from, to time.Time)) (changes []change) {
	for _, e := range all {
		if from, to := span(e); to.After(from) {
			changes = append(changes, change{from.Round(0), e.n}, change{to.Round(0), -e.n})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.units, b.units)) })
	return changes
}
