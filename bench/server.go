package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
)

// The server part measures each contender in slices of sliceSize decisions, with sliceCallers
// callers at a time. The slices of all contenders alternate, so that other work on the machine
// affects all contenders equally.
const (
	sliceSize    = 2000
	sliceCallers = 16
)

// server measures the time in the server, allocations, memory and replication.
func (b bench) server(ctx context.Context, res *result) error {
	all, err := b.contenders(ctx)
	if err == nil {
		all, err = b.wanted(all, rate)
	}
	if err != nil {
		return err
	}
	seen := make([][]sample, len(all))
	for round := range b.rounds {
		b.log.Printf("server: round %d of %d", round+1, b.rounds)
		if err := b.round(ctx, all, seen); err != nil {
			return err
		}
	}
	res.Rounds, res.Events, res.Rows = b.rounds, b.events, compareAll(all, seen)
	if b.memory > 0 {
		if err := b.memories(ctx, all, res); err != nil {
			return err
		}
	}
	return b.replications(ctx, all, res)
}

// round makes one decision on each event of every contender, and appends the samples to seen.
func (b bench) round(ctx context.Context, all []contender, seen [][]sample) error {
	states, err := b.prepare(ctx, all, b.events)
	if err != nil {
		return err
	}
	for from := 0; from < b.events; from += sliceSize {
		for _, i := range rand.Perm(len(all)) {
			s, err := b.measure(ctx, all[i], from, min(from+sliceSize, b.events))
			if err == nil && len(seen[i]) > 0 && !all[i].merges {
				err = s.sameCommands(seen[i][0])
			}
			if err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			seen[i] = append(seen[i], s)
		}
	}
	return b.checkRound(ctx, all, states)
}

// prepare gives each contender n events of its own, in the state before a decision.
func (b bench) prepare(ctx context.Context, all []contender, n int) (states [][]value, err error) {
	if states, err = b.statesBefore(ctx, all); err != nil {
		return nil, err
	}
	if err := b.flush(ctx); err != nil {
		return nil, err
	}
	for i := range all {
		all[i].first = i * n
		if err := b.copyToAll(ctx, all[i], states[i], n); err != nil {
			return nil, fmt.Errorf("%s: %w", all[i].name, err)
		}
	}
	return states, nil
}

// checkRound checks the number of keys, and that each contender's first and last event were
// counted.
func (b bench) checkRound(ctx context.Context, all []contender, states [][]value) error {
	keys := 0
	for i, c := range all {
		for _, event := range []string{c.event(0), c.event(b.events - 1)} {
			if err := b.checkCounted(ctx, c, states[i], event); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		keys += c.keys * b.events
	}
	if err := b.checkKeys(ctx, keys); err != nil {
		return fmt.Errorf("%w; some expire after five minutes: if a round takes longer, use fewer events or rows", err)
	}
	return nil
}

// sample is what was measured per decision in a slice.
type sample struct {
	executes map[string]int // commands that the server executed, including those called by scripts

	server  float64 // µs spent in the commands, according to commandstats
	process float64 // µs of CPU used by the server process
	allocs  float64 // of this program
	bytes   float64 // of these
}

// measure makes decisions on c's events from index from up to, but not including, index to.
func (b bench) measure(ctx context.Context, c contender, from, to int) (sample, error) {
	if err := b.resetStats(ctx); err != nil {
		return sample{}, err
	}
	names := make([]string, to-from)
	for i := range names {
		names[i] = c.event(from + i)
	}
	n, m := float64(len(names)), sample{}
	var before, after runtime.MemStats
	cpuBefore, err := b.cpu(ctx)
	if err != nil {
		return sample{}, err
	}
	runtime.ReadMemStats(&before)
	if err = askAll(ctx, c, names); err != nil {
		return sample{}, err
	}
	runtime.ReadMemStats(&after)
	cpuAfter, err1 := b.cpu(ctx)
	stats, err2 := b.commandStats(ctx)
	if err = errors.Join(err1, err2); err != nil {
		return sample{}, err
	}
	for command, calls := range c.sends() {
		m.server += float64(stats[command].usec) / n * float64(calls-c.inside[command]) / float64(calls)
	}
	m.process = (cpuAfter - cpuBefore) / n
	m.allocs, m.bytes = float64(after.Mallocs-before.Mallocs)/n, float64(after.TotalAlloc-before.TotalAlloc)/n
	m.executes = executes(stats, n)
	return m, c.checkCalls(stats, to-from)
}

// executes returns how often each command was executed per decision. It leaves out the commands of
// the measurement itself.
func executes(stats map[string]stat, decisions float64) map[string]int {
	all := map[string]int{}
	for name, s := range stats {
		if times := int(math.Round(float64(s.calls) / decisions)); times > 0 && name != "info" && !strings.HasPrefix(name, "config") {
			all[name] = times
		}
	}
	return all
}

// sameCommands checks that a decision executed as many commands as in another slice. Which commands
// these are can depend on whether a minute has ended.
func (s sample) sameCommands(other sample) error {
	if count(s.executes) != count(other.executes) {
		return fmt.Errorf("the server executes %v for a decision, but %v before", s.executes, other.executes)
	}
	return nil
}

func count(executes map[string]int) (n int) {
	for _, times := range executes {
		n += times
	}
	return n
}

// askAll makes one decision on each event. The callers share the events among themselves.
func askAll(ctx context.Context, c contender, names []string) error {
	errs := make([]error, sliceCallers)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() {
			for j := i; j < len(names) && errs[i] == nil; j += sliceCallers {
				errs[i] = c.mustAnswer(ctx, names[j])
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
