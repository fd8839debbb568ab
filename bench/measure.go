package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
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
	merges bool   // whether several decisions about one event can be one script call
	keys   int    // keys that one event has afterwards
	hot    bool   // all decisions are about one event; only in the part of that name

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

	callers []int         // of throughput and hot
	turns   int           // of throughput and hot
	slice   time.Duration // of throughput and hot

	rounds, events, memory int // of server

	rows *regexp.Regexp // nil: all
	log  *log.Logger    // progress
}

// Decisions of one contender are measured in slices of so many at a time, by so many callers. Slices
// of all contenders take turns, so that whatever else the machine does affects all of them alike.
const (
	sliceSize    = 2000
	sliceCallers = 16
)

// The parts of a run.
var parts = map[string]func(b bench, ctx context.Context, res *result) error{
	"throughput": bench.throughput, "hot": bench.hot, "server": bench.server, "accuracy": bench.accuracies,
}

// order is that of the parts in a run of all.
var order = []string{"throughput", "hot", "server", "accuracy"}

// run measures the parts. The servers are empty before and after.
func (b bench) run(ctx context.Context, names []string, res *result) error {
	if n, err := b.countAll(ctx); err != nil || n > 0 {
		return errors.Join(fmt.Errorf("the Redis holds %d keys; give an empty one, since this empties it", n), err)
	}
	defer func() { _ = b.flush(context.WithoutCancel(ctx)) }()
	for _, name := range names {
		if err := parts[name](b, ctx, res); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// server measures the time in the server, allocations, memory and replication, round by round.
func (b bench) server(ctx context.Context, res *result) error {
	all, err := b.wanted(contenders(b.ours, b.theirs), rate, floor)
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
	res.compareAll(all, seen)
	if b.memory > 0 {
		if err := b.memories(ctx, all, res); err != nil {
			return err
		}
	}
	return b.replications(ctx, all, res)
}

// wanted returns the contenders that -rows names, and those that are always there.
func (b bench) wanted(all []contender, always ...string) ([]contender, error) {
	if b.rows == nil {
		return all, nil
	}
	some := slices.DeleteFunc(slices.Clone(all), func(c contender) bool { return !b.rows.MatchString(c.name) && !slices.Contains(always, c.name) })
	if len(some) == len(always) {
		names := make([]string, len(all))
		for i, c := range all {
			names[i] = c.name
		}
		return nil, fmt.Errorf("no row matches %q; there are: %s", b.rows, strings.Join(names, "; "))
	}
	return some, nil
}

// round asks every contender about each of its events once. It appends to seen, by contender, what it measured in each slice.
func (b bench) round(ctx context.Context, all []contender, seen [][]sample) error {
	states, err := b.prepare(ctx, all)
	if err != nil {
		return err
	}
	keys := 0
	for from := 0; from < b.events; from += sliceSize {
		for _, turn := range rand.Perm(len(all)) {
			m, err := b.measure(ctx, all[turn], from, min(from+sliceSize, b.events))
			if err != nil {
				return fmt.Errorf("%s: %w", all[turn].name, err)
			}
			if before := seen[turn]; len(before) > 0 && total(before[0].executes) != total(m.executes) {
				return fmt.Errorf("%s: the server executes %v for a decision, and %v before", all[turn].name, m.executes, before[0].executes)
			}
			seen[turn] = append(seen[turn], m)
		}
	}
	for i, c := range all {
		for _, event := range []string{c.event(0), c.event(b.events - 1)} {
			if err := b.checkCounted(ctx, c, states[i], event); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
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

// checkCounted checks that an event that was allowed is not as it was before.
func (b bench) checkCounted(ctx context.Context, c contender, state []value, name string) error {
	if len(state) == 0 || !c.allows || strings.HasPrefix(c.name, "floor") {
		return nil
	}
	for _, v := range state {
		now, err := b.client.Do(ctx, b.client.B().Dump().Key(strings.Replace(v.key, event(0), name, 1)).Build()).ToString()
		if err != nil || now != v.dump {
			return err
		}
	}
	return fmt.Errorf("event %s was allowed, and is as it was before", name)
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
	executes map[string]int // commands of the server, those of its scripts too

	server  float64 // µs in the commands, by commandstats
	process float64 // µs of CPU of the server's process
	allocs  float64 // of this program
	bytes   float64 // of these
}

// measure asks about the events of c from one number to another.
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
	cpuBefore, err := b.info(ctx, "cpu", "used_cpu_user", "used_cpu_sys")
	if err != nil {
		return sample{}, err
	}
	runtime.ReadMemStats(&before)
	if err = askAll(ctx, c, names); err != nil {
		return sample{}, err
	}
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

// askAll has callers ask about the events side by side, each event once.
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
