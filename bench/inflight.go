package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sync/semaphore"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/window"
)

// The inflight part measures leases.
const (
	leaseCallers = 64                  // the maximum number of leases at the same time
	others       = 1000 - leaseCallers // units held by others in the rows of a full event
	places       = 5                   // places that the fleet shares
	holds        = 5 * time.Millisecond
	wakes        = 10 // per row and round
)

// leases is the result of the inflight part.
type leases struct {
	Speed *throughput `json:"throughput"`
	Wakes []wake      `json:"wakes"`
	Fleet *fleet      `json:"fleet"`
	Sizes []size      `json:"sizes"`
}

// wake records how many ms after Release a waiting Acquire returned.
type wake struct {
	Name string  `json:"name"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
}

// size records the memory of an event with a given number of one-unit leases.
type size struct {
	Leases int     `json:"leases"`
	Bytes  float64 `json:"bytes"` // growth of used_memory per event
}

// inflight measures what leases cost, how soon waiting callers get them, and which callers get
// them.
func (b bench) inflight(ctx context.Context, res *result) (err error) {
	r := &leases{}
	fast := b
	fast.callers = slices.DeleteFunc(slices.Clone(b.callers), func(n int) bool { return n > leaseCallers })
	if len(fast.callers) == 0 {
		return fmt.Errorf("give at least one number of -callers up to %d: an event has 1000 places", leaseCallers)
	}
	if err := fast.race(ctx, "inflight", leaseRows(b.ours), &r.Speed); err != nil {
		return err
	}
	if r.Wakes, err = b.wakes(ctx); err != nil {
		return err
	}
	if r.Fleet, err = b.fleets(ctx, "inflight", holders(b.ours)); err != nil {
		return err
	}
	if b.memory > 0 {
		r.Sizes, err = b.sizes(ctx)
	}
	res.InFlight = r
	return err
}

// leaseRows returns the rows of the first inflight table. Each decision takes a lease and releases
// it.
func leaseRows(client rueidis.Client) []contender {
	free := func(name string, of ask) contender {
		like := "TryAcquire and Release, Max: 1000; nobody else holds a lease"
		return contender{name: name, like: like, allows: true, keys: 1, commands: map[string]int{"evalsha": 2}, ask: of}
	}
	full := func(name string, of ask) contender {
		c := free(name, of)
		c.like, c.hot = fmt.Sprintf("the same on one event; others hold %d leases", others), true
		c.before = func(ctx context.Context, event string) error { return hold(ctx, client, event, others) }
		return c
	}
	rival := contender{allows: true, commands: map[string]int{"evalsha": 1, "zrem": 1}, ask: sortedSet(client)}
	rival.name, rival.like = "sorted set", "a script that many write themselves, and ZREM; nobody else holds a place"
	rivalFull := rival
	rivalFull.name, rivalFull.like, rivalFull.hot = "sorted set, full", fmt.Sprintf("the same on one event; others hold %d places", others), true
	rivalFull.undone = true
	rivalFull.before = func(ctx context.Context, event string) error {
		for i := range others {
			if _, err := takePlace(ctx, client, event, fmt.Sprint(i)); err != nil {
				return err
			}
		}
		return nil
	}
	return slices.Concat([]contender{oneLimit.row("window", windowMaker(client))},
		both(free, "inflight", client, leasing, earlier.inflight), both(full, "inflight, full", client, leasing, earlier.inflight),
		[]contender{rival, rivalFull})
}

// leasing takes a lease with TryAcquire and releases it.
func leasing(client rueidis.Client) ask {
	l := must(inflight.New(window.On(client), inflight.Config{Name: "jobs", Max: 1000, TTL: 3 * patience, Timeout: patience}))
	return func(ctx context.Context, event string) (bool, error) {
		lease, _, err := l.TryAcquire(ctx, event)
		if lease == nil {
			return false, err
		}
		return true, lease.Release(ctx)
	}
}

// hold takes n leases that outlive the bench without being renewed.
func hold(ctx context.Context, client rueidis.Client, event string, n int) error {
	const day = 24 * time.Hour
	l := must(inflight.New(window.On(client), inflight.Config{Name: "jobs", Max: 1000, TTL: day, MaxHold: day, Timeout: patience}))
	for range n {
		if lease, _, err := l.TryAcquire(ctx, event); lease == nil {
			return fmt.Errorf("no place is free: %w", err)
		}
	}
	return nil
}

// semaphoreScript is a semaphore as commonly written. It has a member per place, whose score is the
// time in ms at which the place is free again.
var semaphoreScript = rueidis.NewLuaScript(clock + `
	redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
	if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
	redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[3])
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
	return 1`)

func semaphoreKey(event string) string { return "jobs:{" + event + "}:s" }

// takePlace takes a place for a day, which outlives the bench.
func takePlace(ctx context.Context, client rueidis.Client, event, id string) (bool, error) {
	return semaphoreScript.Exec(ctx, client, []string{semaphoreKey(event)}, []string{"1000", "86400000", id}).AsBool()
}

// sortedSet takes a place with the script, and frees it with ZREM.
func sortedSet(client rueidis.Client) ask {
	return func(ctx context.Context, event string) (bool, error) {
		id := fmt.Sprintf("%016x", rand.Uint64())
		allowed, err := takePlace(ctx, client, event, id)
		if !allowed || err != nil {
			return false, err
		}
		return true, client.Do(ctx, client.B().Zrem().Key(semaphoreKey(event)).Member(id).Build()).Error()
	}
}

// handover consists of the holder of an event's only place and a caller that waits for it.
type handover struct {
	name           string
	holder, waiter *inflight.Limiter
}

// wakes measures how soon after Release a waiter gets the place, both with a single limiter and
// with limiters on two connections, as in two processes.
func (b bench) wakes(ctx context.Context) (all []wake, err error) {
	client, err := connect(b.addr)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	cfg := inflight.Config{Name: "wakes", Max: 1, TTL: 3 * patience, Timeout: patience}
	a, other := must(inflight.New(window.On(b.ours), cfg)), must(inflight.New(window.On(client), cfg))
	pairs := []handover{{"the same process", a, a}, {"another process", a, other}}
	took := make([][]float64, len(pairs))
	for round := range b.rounds {
		b.log.Printf("inflight: wake-ups, round %d of %d", round+1, b.rounds)
		for range wakes {
			for _, i := range rand.Perm(len(pairs)) {
				d, err := pairs[i].wake(ctx)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", pairs[i].name, err)
				}
				took[i] = append(took[i], float64(d.Microseconds())/1000)
			}
		}
	}
	for i, p := range pairs {
		all = append(all, wake{p.name, quantile(took[i], 50), quantile(took[i], 90)})
	}
	return all, nil
}

// wake returns the time between the start of Release and the moment the waiter has the place.
func (h handover) wake(ctx context.Context) (took time.Duration, err error) {
	lease, err := h.holder.Acquire(ctx, event(0))
	if err != nil {
		return 0, err
	}
	var next *inflight.Lease
	var failed error
	var group sync.WaitGroup
	var at time.Time
	group.Go(func() {
		next, failed = h.waiter.Acquire(ctx, event(0))
		at = time.Now()
	})
	// By then, the waiter has called Redis, and is somewhere between two calls.
	err = pauseUntil(ctx, time.Now().Add(50*time.Millisecond+rand.N(100*time.Millisecond)))
	began := time.Now()
	err = errors.Join(err, lease.Release(ctx))
	if group.Wait(); err != nil || failed != nil {
		return 0, errors.Join(err, failed)
	}
	return at.Sub(began), next.Release(ctx)
}

// holders returns the rows of a fleet whose callers take one of a few places and hold it briefly.
func holders(client rueidis.Client) []contender {
	like := fmt.Sprintf("Acquire and Release, Max: %d; each lease is held for %v", places, holds)
	return []contender{
		{name: "inflight", like: like, ask: holding(client)},
		{name: "x/sync/semaphore", like: "the same, in one process, without Redis", alone: true, ask: holdingAlone()},
	}
}

// holding takes a lease with inflight's Acquire, and releases it.
func holding(client rueidis.Client) ask {
	l := must(inflight.New(window.On(client), inflight.Config{Name: "fleet", Max: places, TTL: 3 * patience, Timeout: patience}))
	return func(ctx context.Context, event string) (bool, error) {
		lease, err := l.Acquire(ctx, event)
		if err != nil {
			return false, err
		}
		<-time.After(holds)
		return true, lease.Release(ctx)
	}
}

// holdingAlone is like holding, but uses a semaphore in memory.
func holdingAlone() ask {
	s := semaphore.NewWeighted(places)
	return func(ctx context.Context, _ string) (bool, error) {
		if err := s.Acquire(ctx, 1); err != nil {
			return false, err
		}
		defer s.Release(1)
		<-time.After(holds)
		return true, nil
	}
}

// sizes measures the memory of an event.
func (b bench) sizes(ctx context.Context) (all []size, err error) {
	for _, n := range []int{1, 10, 100, 1000} {
		c := contender{name: "inflight", keys: 1, ask: leasing(b.ours), before: func(ctx context.Context, event string) error { return hold(ctx, b.ours, event, n) }}
		bytes, err := b.bytesPerEvent(ctx, c, max(1, b.memory/n))
		if err != nil {
			return nil, fmt.Errorf("memory of %d leases: %w", n, err)
		}
		all = append(all, size{n, bytes})
	}
	return all, nil
}

// tables returns the result as Markdown tables.
func (l *leases) tables() string {
	var text strings.Builder
	l.Speed.writeTables(&text)
	text.WriteString("\n| from Release to the return of Acquire, ms | median | 90 % |\n|---|---:|---:|\n")
	for _, w := range l.Wakes {
		fmt.Fprintf(&text, "| %s | %.1f | %.1f |\n", w.Name, w.P50, w.P90)
	}
	text.WriteString(l.Fleet.table())
	text.WriteString("\n| leases of an event | bytes |\n|---:|---:|\n")
	for _, s := range l.Sizes {
		fmt.Fprintf(&text, "| %d | %.0f |\n", s.Leases, s.Bytes)
	}
	return text.String()
}
