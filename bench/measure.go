package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// contender is one way to decide about an event, in one state and with one outcome.
type contender struct {
	name   string
	like   string // what it is faithful to
	beside string // a row that this one is also compared with, if any
	allows bool   // what it must answer
	keys   int    // keys that one event has afterwards
	hot    bool   // all decisions are about one event

	grows string // what this row shows to grow, if anything
	size  int    // and how large it is here

	commands map[string]int // that one decision makes; nil: an EVALSHA
	inside   map[string]int // of these, those that its script makes, whose time is in that of the script

	// before brings an event into the state in which it is asked about; nil: the event is new.
	before func(ctx context.Context, event string) error
	// ask is one decision.
	ask ask

	first int // its events are those from this number on
}

// event is what it is asked about the i-th time.
func (c contender) event(i int) string {
	if c.hot {
		i = 0
	}
	return event(c.first + i)
}

// distinct is how many events it is asked about, in so many decisions.
func (c contender) distinct(decisions int) int {
	if c.hot {
		return 1
	}
	return decisions
}

// bench says how much to measure, and on which servers.
type bench struct {
	servers

	rounds, events, memory int
	callers                []int          // take turns
	rows                   *regexp.Regexp // nil: all
	log                    *log.Logger    // told how far it is
}

// slice is how many decisions of one contender are measured at a time. Small slices of all contenders take turns, so that
// whatever else the machine does falls on all of them alike.
func (b bench) slice() int { return max(1, min(largest, b.events/len(b.callers))) }

// largest is how many decisions a slice has at most.
const largest = 2000

// run measures all contenders, round by round, and then the memory.
func (b bench) run(ctx context.Context) (result, error) {
	if n, err := b.countAll(ctx); err != nil || n > 0 {
		return result{}, errors.Join(fmt.Errorf("the Redis holds %d keys; give an empty one, since this empties it", n), err)
	}
	defer func() { _ = b.flush(context.WithoutCancel(ctx)) }() // it was empty
	all := slices.DeleteFunc(contenders(b.client, b.theirs), func(c contender) bool { return !b.wants(c.name) })
	if b.rows != nil && len(all) == 2 {
		return result{}, fmt.Errorf("no row is named like %q; those are named in docs/performance.md, or by a short run of all, -rounds 1 -events 768 -memory 0", b.rows)
	}
	seen := make([][]sample, len(all))
	for round := range b.rounds {
		b.log.Printf("round %d of %d", round+1, b.rounds)
		if err := b.round(ctx, all, seen, round); err != nil {
			return result{}, err
		}
	}
	res := b.result(ctx, all, seen)
	if b.memory > 0 {
		if err := b.memories(ctx, all, &res); err != nil {
			return res, err
		}
	}
	if err := b.replications(ctx, all, &res); err != nil {
		return res, err
	}
	var err error
	res.Accuracy, err = b.accuracies(ctx)
	return res, err
}

// wants says whether a row is measured.
func (b bench) wants(name string) bool {
	return b.rows == nil || name == rate || name == floor || b.rows.MatchString(name)
}

// round asks every contender about each of its events once. It appends to seen, by contender, what it measured in each slice.
func (b bench) round(ctx context.Context, all []contender, seen [][]sample, round int) error {
	states, err := b.prepare(ctx, all)
	if err != nil {
		return err
	}
	keys, slice := 0, b.slice()
	for from := 0; from < b.events; from += slice {
		callers := b.callers[(round+from/slice)%len(b.callers)]
		for i := range all {
			turn := (i + from/slice) % len(all)
			m, err := b.measure(ctx, all[turn], from, min(from+slice, b.events), callers)
			if err != nil {
				return fmt.Errorf("%s: %w", all[turn].name, err)
			}
			if before := seen[turn]; len(before) > 0 && total(before[0].executes) != total(m.executes) {
				return fmt.Errorf("%s: the server executes %v for a decision, and %v before", all[turn].name, m.executes, before[0].executes)
			}
			seen[turn] = append(seen[turn], m)
		}
	}
	if err := b.checkCounted(ctx, all, states); err != nil {
		return err
	}
	for _, c := range all {
		keys += c.keys * c.distinct(b.events)
	}
	if err := b.checkKeys(ctx, keys); err != nil {
		return fmt.Errorf("%w; some expire after five minutes: if a round takes longer, take fewer events or rows", err)
	}
	return nil
}

// prepare gives each contender events of its own, in the state before.
func (b bench) prepare(ctx context.Context, all []contender) (states [][]value, err error) {
	states = make([][]value, len(all))
	for i, c := range all {
		if states[i], err = b.stateBefore(ctx, c); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		all[i].first = i * b.events
	}
	if err := b.flush(ctx); err != nil {
		return nil, err
	}
	for i, c := range all {
		if err := b.copyToAll(ctx, c, states[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return states, nil
}

// checkCounted is about what decisions left: an admitted event is not as it was. It looks at the first and the last.
func (b bench) checkCounted(ctx context.Context, all []contender, states [][]value) error {
	for i, c := range all {
		if len(states[i]) == 0 || !c.allows || strings.HasPrefix(c.name, "floor") {
			continue
		}
		for _, e := range []string{c.event(0), c.event(b.events - 1)} {
			changed := false
			for _, v := range states[i] {
				now, err := b.client.Do(ctx, b.client.B().Dump().Key(strings.Replace(v.key, event(0), e, 1)).Build()).ToString()
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				changed = changed || now != v.dump
			}
			if !changed {
				return fmt.Errorf("%s: event %s was admitted, and is as it was before", c.name, e)
			}
		}
	}
	return nil
}

// value is what a key holds.
type value struct {
	key, dump string
	ttl       int64 // ms; 0: none
}

// stateBefore is what event 0 has on the server when it is asked about.
func (b bench) stateBefore(ctx context.Context, c contender) ([]value, error) {
	if err := errors.Join(b.flush(ctx), b.try(ctx, c), b.flush(ctx)); err != nil || c.before == nil {
		return nil, err
	}
	if err := c.before(ctx, event(0)); err != nil {
		return nil, err
	}
	keys, err := b.keys(ctx)
	values := make([]value, len(keys))
	for i, key := range keys {
		dump, errDump := b.client.Do(ctx, b.client.B().Dump().Key(key).Build()).ToString()
		ttl, errTTL := b.client.Do(ctx, b.client.B().Pttl().Key(key).Build()).AsInt64()
		values[i], err = value{key, dump, max(0, ttl)}, errors.Join(err, errDump, errTTL)
	}
	return values, err
}

// try asks about some new events, so that the server knows the script, and checks that each has keys of its own: after the
// measurement, when all keys were there before it, that could not be seen.
func (b bench) try(ctx context.Context, c contender) error {
	some := min(100, b.events)
	for i := range some {
		if _, err := c.ask(ctx, event(i)); err != nil {
			return err
		}
	}
	return b.checkKeys(ctx, c.keys*some)
}

// copyToAll gives every event of c the state of event 0. A value does not name its event.
func (b bench) copyToAll(ctx context.Context, c contender, state []value) error {
	var batch rueidis.Commands
	events := c.distinct(b.events)
	for i := range events {
		for _, v := range state {
			key := strings.Replace(v.key, event(0), c.event(i), 1)
			batch = append(batch, b.client.B().Restore().Key(key).Ttl(v.ttl).SerializedValue(v.dump).Build())
		}
		if len(batch) < 1000 && i+1 < events {
			continue
		}
		for _, reply := range b.client.DoMulti(ctx, batch...) {
			if err := reply.Error(); err != nil {
				return err
			}
		}
		batch = batch[:0]
	}
	return nil
}

// sample is what was measured in a slice, for one decision.
type sample struct {
	callers  int
	executes map[string]int // commands of the server, those of its scripts too

	server  float64 // µs in the commands, by commandstats
	process float64 // µs of CPU of the server's process
	rate    float64 // decisions per second, of all callers
	allocs  float64 // of this program
	bytes   float64 // of these
	took    []time.Duration
}

// measure asks about the events of c from one number to another.
func (b bench) measure(ctx context.Context, c contender, from, to, callers int) (sample, error) {
	if err := b.resetStats(ctx); err != nil {
		return sample{}, err
	}
	names := make([]string, to-from)
	for i := range names {
		names[i] = c.event(from + i)
	}
	n, m := float64(len(names)), sample{callers: callers, took: make([]time.Duration, len(names))}
	var before, after runtime.MemStats
	cpuBefore, err := b.info(ctx, "cpu", "used_cpu_user", "used_cpu_sys")
	if err != nil {
		return sample{}, err
	}
	runtime.ReadMemStats(&before)
	begin := time.Now()
	if err = askAll(ctx, c, names, m.took, callers); err != nil {
		return sample{}, err
	}
	m.rate = n / time.Since(begin).Seconds()
	runtime.ReadMemStats(&after)
	cpuAfter, err1 := b.info(ctx, "cpu", "used_cpu_user", "used_cpu_sys")
	stats, err2 := b.commandStats(ctx)
	if err = errors.Join(err1, err2); err != nil {
		return sample{}, err
	}
	for command, calls := range c.sends() {
		m.server += float64(stats[command].usec) / n * float64(calls-c.inside[command]) / float64(calls)
	}
	m.process = (cpuAfter - cpuBefore) * 1e6 / n
	m.allocs, m.bytes = float64(after.Mallocs-before.Mallocs)/n, float64(after.TotalAlloc-before.TotalAlloc)/n
	m.executes = executes(stats, n)
	return m, checkCalls(stats, c.sends(), to-from)
}

// total is how many commands there are: which ones, can depend on whether a minute is over.
func total(executes map[string]int) (n int) {
	for _, times := range executes {
		n += times
	}
	return n
}

// executes is how often each command was executed for a decision, but for those of the measurement.
func executes(stats map[string]stat, decisions float64) map[string]int {
	all := map[string]int{}
	for name, s := range stats {
		if times := int(math.Round(float64(s.calls) / decisions)); times > 0 && name != "info" && !strings.HasPrefix(name, "config") {
			all[name] = times
		}
	}
	return all
}

// sends are the commands of one decision that are measured.
func (c contender) sends() map[string]int {
	if c.commands == nil {
		return map[string]int{"evalsha": 1}
	}
	return c.commands
}

// askAll asks about the events, the callers side by side, and fills in how long each call took.
func askAll(ctx context.Context, c contender, names []string, took []time.Duration, callers int) error {
	errs := make([]error, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for j := i; j < len(names) && errs[i] == nil; j += callers {
				begin := time.Now()
				errs[i] = c.mustAnswer(ctx, names[j])
				took[j] = time.Since(begin)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// mustAnswer is one decision, with the outcome that is claimed.
func (c contender) mustAnswer(ctx context.Context, event string) error {
	allowed, err := c.ask(ctx, event)
	if err == nil && allowed != c.allows {
		err = fmt.Errorf("event %s: allowed %v, and this measures the other", event, allowed)
	}
	return err
}

// event names the events: distinct IPv4 addresses, from 198.51.100.0 on.
func event(i int) string {
	n := 198<<24 | 51<<16 | 100<<8 + uint32(i)
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}).String()
}

// checkCalls is about what was measured: the commands of each decision, and no other script.
func checkCalls(stats map[string]stat, commands map[string]int, decisions int) error {
	for name, s := range stats {
		if (strings.HasPrefix(name, "script") || strings.HasPrefix(name, "eval")) && commands[name] == 0 {
			return fmt.Errorf("%d calls of %s, of which the measured part has none", s.calls, name)
		}
	}
	for name, n := range commands {
		if calls := stats[name].calls; calls != n*decisions {
			return fmt.Errorf("%d calls of %s for %d decisions", calls, name, decisions)
		}
	}
	return nil
}
