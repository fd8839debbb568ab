package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// pool is how many events a contender has in a slice. The callers share them among themselves, so
// that no two callers use the same event, unless there is only one.
const pool = 2048

// throughput compares ways of deciding on many events.
func (b bench) throughput(ctx context.Context, res *result) error {
	return b.race(ctx, "throughput", throughputRows(b.ours, b.theirs), &res.Throughput)
}

// hot compares ways of deciding on one event that all callers use.
func (b bench) hot(ctx context.Context, res *result) error {
	return b.race(ctx, "hot", hotRows(b.ours, b.theirs), &res.Hot)
}

// race measures the contenders with each number of callers, in short slices that alternate. The
// first pass opens connections and is not counted.
func (b bench) race(ctx context.Context, part string, all []contender, to **throughput) error {
	all, err := b.wanted(all)
	if err != nil {
		return err
	}
	states, err := b.statesBefore(ctx, all)
	if err != nil {
		return err
	}
	seen := slicesOf{}
	for _, c := range all {
		seen[c.name] = map[int][]slice{}
	}
	for pass := range b.passes + 1 {
		b.log.Printf("%s: pass %d of %d", part, pass, b.passes)
		for _, callers := range b.callers {
			for _, i := range rand.Perm(len(all)) {
				s, err := b.measureSlice(ctx, all[i], states[i], callers)
				if err != nil {
					return fmt.Errorf("%s, %d callers: %w", all[i].name, callers, err)
				}
				if of := seen[all[i].name]; pass > 0 {
					of[callers] = append(of[callers], s)
				}
			}
		}
	}
	*to = b.summarize(all, seen)
	return nil
}

// slice records what a contender did in a slice. All fields except the first are per decision.
type slice struct {
	rate     float64 // decisions per second of all callers
	p50, p99 float64 // µs per call
	client   float64 // µs of CPU of this process
	server   float64 // µs of CPU of the server processes, including their sockets
	allocs   float64 // of this process
	scripts  float64 // script calls

	ping50, ping99 float64 // µs taken by a neighbour's PING; 0 if there is none
}

// measureSlice puts the events of c into the given state, and makes the callers use them.
func (b bench) measureSlice(ctx context.Context, c contender, state []value, callers int) (s slice, err error) {
	if err = errors.Join(b.flush(ctx), b.copyToAll(ctx, c, state, pool), b.resetStats(ctx)); err != nil {
		return s, err
	}
	cpu, err := b.cpu(ctx)
	if err != nil {
		return s, err
	}
	took, err := b.askFor(ctx, c, callers, &s)
	if err != nil {
		return s, err
	}
	cpuAfter, err1 := b.cpu(ctx)
	stats, err2 := b.commandStats(ctx)
	if err := errors.Join(err1, err2); err != nil {
		return s, err
	}
	slices.Sort(took)
	n := len(took)
	s.p50, s.p99 = micros(took[n/2]), micros(took[n*99/100])
	s.server, s.scripts = (cpuAfter-cpu)/float64(n), float64(scriptCalls(stats))/float64(n)
	return s, b.checkSlice(ctx, c, state, stats, n)
}

// checkSlice checks the commands and the keys, and that the first event was counted.
func (b bench) checkSlice(ctx context.Context, c contender, state []value, stats map[string]stat, decisions int) error {
	err := errors.Join(c.checkCalls(stats, decisions), b.checkCounted(ctx, c, state, c.event(0)))
	if c.before == nil && c.keys > 0 { // it is random which events were used
		return err
	}
	return errors.Join(err, b.checkKeys(ctx, len(state)*c.distinct(pool)))
}

// askFor makes the callers decide until the slice is over. It returns how long each call took.
func (b bench) askFor(ctx context.Context, c contender, callers int, s *slice) ([]time.Duration, error) {
	names := make([]string, pool)
	for i := range names {
		names[i] = c.event(i)
	}
	took, errs := room(callers), make([]error, callers)
	var group sync.WaitGroup
	runtime.GC() // so that each contender pays for its own garbage
	before := spent()
	until := before.at.Add(b.slice)
	for i := range callers {
		share := names[i*pool/callers : (i+1)*pool/callers]
		group.Go(func() { took[i], errs[i] = c.askUntil(ctx, until, share, took[i]) })
	}
	group.Wait()
	after := spent()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if b.beside != nil {
		s.ping50, s.ping99 = b.beside.between(before.at, after.at)
	}
	all := slices.Concat(took...)
	n := float64(len(all))
	s.rate = n / after.at.Sub(before.at).Seconds()
	s.client, s.allocs = micros(after.cpu-before.cpu)/n, float64(after.allocs-before.allocs)/n
	return all, nil
}

// askUntil decides on the events in turn until the given time, at least once. It appends the
// duration of each call to took.
func (c contender) askUntil(ctx context.Context, until time.Time, events []string, took []time.Duration) ([]time.Duration, error) {
	begin := time.Now()
	for i := 0; i == 0 || begin.Before(until); i++ {
		if err := c.mustAnswer(ctx, events[i%len(events)]); err != nil {
			return took, err
		}
		end := time.Now()
		took, begin = append(took, end.Sub(begin)), end
	}
	return took, nil
}

// durations is the memory in which callers record how long their calls took. It is allocated before
// the slice, so that it is not counted as their allocation.
var durations = make([]time.Duration, 1<<20)

// room divides durations among the callers.
func room(callers int) [][]time.Duration {
	took, each := make([][]time.Duration, callers), len(durations)/callers
	for i := range took {
		took[i] = durations[i*each : i*each : (i+1)*each]
	}
	return took
}

// spending records what this process has used up to a point in time.
type spending struct {
	at     time.Time
	cpu    time.Duration
	allocs uint64
}

func spent() spending {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return spending{time.Now(), cpuTime(), m.Mallocs}
}

// cpuTime returns the CPU time that this process has used.
func cpuTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r) // it cannot fail for this process
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
