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
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

const (
	processes = 3
	ttl       = 3 * time.Second // a busy machine can stop everything for a second
)

// TestHistoriesUnderLoad lets 200 callers of three processes take units of a few events, release
// some of them twice or late, hold some for longer than TTL, and abandon some. Each lease was
// certainly held from the answer until the call to release it, on the server's clock, which is also
// that of this machine. At no time may more than Max units be certainly held. A denial is correct
// only if there may not have been enough free units.
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
			h := &history{T: t, limiters: open(), events: make([]log, 8), calls: redistest.Share(150), ttl: ttl, long: ttl * 3 / 2}
			h.play()
		})
	}
}

// TestHistoryOfAFailover kills a master while the same kind of callers continue until some seconds
// after its replica has taken over. Some leases last from before the failover until after it. Only
// changes made just before the failover may be lost.
func TestHistoryOfAFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a failover")
	}
	nodes, cfg := redistest.Replicated(t), config(t)
	cfg.TTL, cfg.Timeout = 10*time.Second, time.Second
	for _, s := range nodes.All {
		if err := s.Do(t.Context(), "CONFIG", "SET", "cluster-node-timeout", "1500").Error(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { nodes.Heal(t) })
	h := &history{T: t, events: make([]log, 8), calls: 20, ttl: cfg.TTL, long: time.Minute, goesOn: make(chan struct{})}
	for range processes {
		h.limiters = append(h.limiters, must(inflight.New(window.On(nodes.NewClient(t, nil)), cfg)))
	}
	master := nodes.MasterOf(t, keys.Slot("{e0}"))
	replica := nodes.ReplicaOf(t, master)
	var failover sync.WaitGroup
	failover.Go(func() {
		defer close(h.goesOn)
		<-time.After(time.Second)
		h.killed = time.Now()
		master.Kill(t)
		nodes.AwaitFailover(t, master, replica)
		h.back = time.Now()
		<-time.After(time.Second)
	})
	h.play()
	failover.Wait()
	h.Logf("%d leases from before the failover until after it", h.spanning)
	if h.spanning == 0 {
		h.Error("weak test")
	}
}

// moveSlot keeps moving a slot to another master and back, until the test ends. It waits between
// moves, because a slot that moves twice within milliseconds can be lost.
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
	calls    int           // minimum number of calls of each caller
	goesOn   chan struct{} // closed when callers may end; nil if they may end immediately
	ttl      time.Duration // TTL of the leases
	long     time.Duration // how long some leases are held, unless goesOn is closed first
	failed   atomic.Int64  // calls that failed on a busy machine or while a master is gone
	killed   time.Time     // when a master was killed, or zero
	back     time.Time     // when its replica had taken over
	spanning int           // number of leases held from before killed until after back
}

// log holds what is known about an event.
type log struct {
	mu      sync.Mutex
	leases  []held
	denials []denial
}

// held is a lease that was certainly held from taken to surely, and possibly from began to perhaps.
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
			for j := 0; j < h.calls || h.more(); j++ {
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
		equal(h, "events with waiting callers", inflight.Waiting(l), 0)
	}
	failed := int(h.failed.Load())
	if h.Logf("%d taken, %d denied, %d failed", taken, denied, failed); min(taken, denied) < 200*h.calls/20 || h.killed.IsZero() && failed > taken/10 {
		h.Error("weak test")
	}
}

func (h *history) more() bool {
	select {
	case <-h.goesOn:
		return false
	default:
		return h.goesOn != nil
	}
}

// call takes units, sometimes by waiting for them, or under a plan that has a lower Max, and then
// ends the lease in a random way.
func (h *history) call(rng *rand.Rand, l *inflight.Limiter) {
	event, n := rng.IntN(len(h.events)), 1+rng.Int64N(4)
	if rng.IntN(10) == 0 {
		l = must(l.With(20))
	}
	began, name := time.Now(), fmt.Sprint("e", event)
	lease, d, err := l.TryAcquireN(h.Context(), name, n)
	if err == nil && lease == nil && rng.IntN(20) == 0 {
		lease, err = l.AcquireN(h.Context(), name, n)
		d.At = time.Now() // or earlier
	}
	d.At = d.At.Add(time.Microsecond) // it is rounded down, and in memory a place can be released and taken within a microsecond
	log := &h.events[event]
	switch e := (held{n: n, began: began, taken: d.At}); {
	case !h.knows(err): // the lease may be held until it expires
		e.perhaps = time.Now().Add(h.ttl)
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

// knows reports whether a call got an answer. On a busy machine, some calls get none in time.
func (h *history) knows(err error) bool {
	if err != nil {
		h.failed.Add(1)
		<-time.After(5 * time.Millisecond)
	}
	if err != nil && !errors.Is(err, inflight.ErrOutage) && !errors.Is(err, inflight.ErrUncertain) {
		h.Error(err)
	}
	return err == nil
}

// end ends a lease in a random way.
func (h *history) end(rng *rand.Rand, lease *inflight.Lease, e *held) {
	hold := time.Duration(rng.ExpFloat64() * float64(3*time.Millisecond))
	if rng.IntN(400) == 0 { // held for so long that it must be renewed
		hold = h.long
	}
	if rng.IntN(400) == 0 {
		inflight.Abandon(lease)
		e.surely = e.taken.Add(h.ttl)
		e.perhaps = time.Now().Add(h.ttl)
		return
	}
	select {
	case <-time.After(hold):
	case <-h.goesOn: // never if nil
	}
	if e.surely = time.Now(); lease.Left() == 0 { // the lease was lost on a busy machine
		e.surely = e.taken
	}
	if e.perhaps = time.Now(); !h.knows(lease.Release(h.Context())) {
		e.perhaps = e.perhaps.Add(h.ttl)
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

// check goes through the leases of an event in order of time.
func (h *history) check(name string, log *log) {
	for i := range log.leases {
		h.concede(&log.leases[i])
	}
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

// concede accounts for changes that the replica of a killed master did not receive in the last 100
// ms: the start of a lease, or its end.
func (h *history) concede(e *held) {
	lately := h.killed.Add(-100 * time.Millisecond)
	switch {
	case h.killed.IsZero() || e.began.After(h.killed):
	case e.perhaps.After(lately) && e.perhaps.Before(h.killed):
		e.perhaps = e.perhaps.Add(h.ttl)
	case e.taken.After(lately):
		e.surely = e.taken
	case e.surely.After(h.back):
		h.spanning++
	}
}

func (e held) sure() (from, to time.Time)     { return e.taken, e.surely }
func (e held) possible() (from, to time.Time) { return e.began, e.perhaps.Add(time.Millisecond) }

// change is a number of units that are taken or released at the time at.
type change struct {
	at    time.Time
	units int64
}

// changes returns the changes made by leases, in order of time. Of changes at the same time,
// releases come first.
func changes(all []held, span func(held) (from, to time.Time)) (changes []change) {
	for _, e := range all {
		if from, to := span(e); to.After(from) {
			changes = append(changes, change{from.Round(0), e.n}, change{to.Round(0), -e.n})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.units, b.units)) })
	return changes
}
