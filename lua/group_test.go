package lua_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// forms holds two copies of the same events. On one copy, each call is for one event. On the other,
// one call can be for several events.
type forms struct {
	script
	alone, among spy
}

// forms returns both copies, on Redis.
func (s script) forms(tb testing.TB) forms { return forms{s, s.spyOnRedis(tb), s.spyOnRedis(tb)} }

// compare makes the same calls on both copies, and returns the answers. The answers for each event
// must be equal: the reply or error, the command, the time to live and the bytes. units[i] replaces
// the units in args for event i.
func (f forms) compare(tb testing.TB, events, units, args []string) (want []answer) {
	tb.Helper()
	for i := range events {
		want = append(want, f.alone(tb, events[i:i+1], withUnits(args, units[i])...)...)
	}
	got := f.among(tb, events, withUnits(args, units...)...)
	if !reflect.DeepEqual(want, got) { // cmp takes longer than the calls
		diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{}))
		tb.Fatalf("%q with units %q: %q (-alone +in one call)\n%s", events, units, args, diff)
	}
	return want
}

// withUnits converts the arguments of a call for one event to those of a call for several events
// with the given units.
func withUnits(args []string, units ...string) []string {
	return slices.Concat(args[:2], units, args[3:])
}

// both returns the judge of an event that makes each call in both forms.
func (f forms) both() judge {
	calls := 0
	return func(tb testing.TB, args ...string) answer {
		tb.Helper()
		calls++
		events, place := f.crowd(calls, args)
		return f.compare(tb, events, slices.Repeat(args[2:3], len(events)), args)[place]
	}
}

// mixed returns the judge of an event that alternates between the two forms.
func (s script) mixed(ask spy) judge {
	calls := 0
	return func(tb testing.TB, args ...string) answer {
		tb.Helper()
		calls++
		if calls%2 == 0 {
			return ask.about("event")(tb, args...)
		}
		events, place := s.crowd(calls, args)
		return ask(tb, events, withUnits(args, slices.Repeat(args[2:3], len(events))...)...)[place]
	}
}

// crowd returns the events of a call, and the position of the event named event. If the verb takes
// several events, there are other events too: one that is new in each call, one that is known in
// most calls, and two that fail. The position differs from call to call.
func (s script) crowd(calls int, args []string) (events []string, place int) {
	if !s.groups(args[0]) {
		return []string{"event"}, 0
	}
	place = calls % 5
	others := []string{fmt.Sprint("known", calls/20), "foreign", fmt.Sprint("new", calls), "list"}
	return slices.Insert(others, place, "event"), place
}

// groups reports whether the verb takes several events.
func (s script) groups(verb string) bool { return slices.Contains(s.verbs[:s.grouped], verb) }

// TestGroups compares random calls for 1 to 64 events with successive calls for each of these
// events at the same time. An event can be in a call more than once, and some events always fail.
// The limits of each call are random, and the clock occasionally steps back.
func TestGroups(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		for seed := range redistest.Share(20) {
			e, f := newTwin(s, rand.New(rand.NewPCG(5, uint64(seed)))), s.forms(t)
			for range 20 {
				e.passTime()
				e.group(t, f)
			}
		}
	})
}

// group makes a call for random events, with random units.
func (e *twin) group(tb testing.TB, f forms) {
	tb.Helper()
	limits := e.limits()
	least := int64(math.MaxInt64)
	for _, l := range limits {
		least = min(least, must(strconv.ParseInt(e.limit(l)[1], 10, 64)))
	}
	names := []string{"a", "b", "c", "d", "e", "f", "foreign", "list"}
	var events, units []string
	verb := e.verbs[e.IntN(e.grouped)]
	if singles[verb] != "" {
		least *= 2 // more than a limit allows
	}
	for range 1 + e.IntN(1<<e.IntN(7)) {
		events = append(events, names[e.IntN(len(names))])
		units = append(units, digits(1+e.Int64N(least)))
	}
	f.compare(tb, events, units, e.dated(verb, digits(e.now), "1", limits...))
}

// badGroups returns invalid calls for three events. The units are in the arguments 2 to 4.
func (s script) badGroups() calls {
	return calls{
		"no units of the second":        change(3, "0"),
		"the last one's below zero":     change(4, "-1"),
		"a fraction of units":           change(3, "1.5"),
		"too many units":                change(4, digits(s.most+2)),
		"units in words":                change(3, "one"),
		"units not a number":            change(4, "nan"),
		"units of the last left out":    func(args []string) []string { return slices.Delete(args, 4, 5) },
		"units of all but the first":    func(args []string) []string { return slices.Delete(args, 3, 5) },
		"units of a fourth event":       func(args []string) []string { return slices.Insert(args, 3, "1") },
		"a later limit of the same Per": change(5+s.limited, "60000"),
		"one argument too many":         func(args []string) []string { return append(args, "1") },
		"one argument too few":          func(args []string) []string { return args[:len(args)-1] },
		"no argument":                   func([]string) []string { return nil },
		"no limit":                      func(args []string) []string { return args[:5] },
	}
}

// overMax returns calls for three events that are invalid unless the verb counts part of the units.
func (s script) overMax() calls {
	return calls{
		"units over a Max":               change(3, "6"),
		"the last one's over a Max":      change(4, "6"),
		"the first one's over a Max":     change(2, "6"),
		"a limit too few for the events": func(args []string) []string { return slices.Delete(args, 3, 3+s.limited) },
	}
}

// TestBadGroups checks that a call for several events with invalid arguments is rejected as a
// whole, before anything is written. So is a call with a verb that takes only one event.
func TestBadGroups(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		g := s.groupOn(t, redistest.Client(t))
		for _, verb := range s.verbs[:s.grouped] {
			bad := s.badGroups()
			if singles[verb] == "" {
				maps.Copy(bad, s.overMax())
			}
			for name, spoil := range bad {
				g.refuses(name, spoil(g.with(verb, "2s", "1", "5/1m@1s", "20/1h@1m")))
			}
		}
		for _, verb := range s.verbs[s.grouped:] {
			g.refuses(verb, g.with(verb, "2s", "1", "5/1m@1s", "20/1h@1m"))
		}
	})
}

// group is a server and a few keys of one test. The first key is that of the server. One key holds
// a record, and the others are new.
type group struct {
	server
	keys []string
}

func (s script) groupOn(t *testing.T, client rueidis.Client) group {
	t.Helper()
	g := group{server: s.on(t, client)}
	g.keys = []string{g.key, g.key + ":known", g.key + ":last"}
	g.at(g.keys[1]).put(s.record(t))
	return g
}

// at returns the server with another key.
func (s server) at(key string) server {
	s.key = key
	return s
}

// with returns the arguments of a call for all events, each with the given units.
func (g group) with(verb, at, units string, limits ...string) []string {
	args := g.script.with(verb, at, units, limits...)
	return withUnits(args, slices.Repeat([]string{units}, len(g.keys))...)
}

// call makes a call for all events.
func (g group) call(args []string) rueidis.RedisResult {
	return g.callOn(g.keys, args)
}

// state returns everything that the server stores under the keys.
func (g group) state() string {
	g.Helper()
	var all []string
	for _, key := range g.keys {
		all = append(all, g.at(key).state())
	}
	return strings.Join(all, "\n")
}

// refuses checks that a call is an error, and writes nothing.
func (g group) refuses(name string, args []string) {
	g.Helper()
	g.fails(name, args, g.state, func() rueidis.RedisResult { return g.call(args) })
}

// TestRefusedWrites checks that an event fails if the server refuses its write: with an error if it
// is alone in the call, and otherwise with a string. Nothing may be written, and events that need
// no write must be decided. In a joint call, each event fails.
func TestRefusedWrites(t *testing.T) {
	for setting, code := range map[string]string{"maxmemory": "OOM", "min-replicas-to-write": "NOREPLICAS"} {
		t.Run(setting, func(t *testing.T) {
			if code == "NOREPLICAS" {
				redistest.Needs(t, redistest.NoReplicas)
			}
			client := redistest.Start(t, "--maxmemory-policy", "noeviction").Client(t)
			each(t, func(t *testing.T, s script) {
				g := s.groupOn(t, client)
				set := func(value string) {
					must("", client.Do(t.Context(), client.B().ConfigSet().ParameterValue().ParameterValue(setting, value).Build()).Error())
				}
				set("1")
				g.refusedWrites(code)
				set("0")
			})
		})
	}
}

// refusedWrites makes calls on a server that rejects all writes.
func (g group) refusedWrites(code string) {
	g.Helper()
	before, refusal := g.state(), g.refusal(code)
	if err := g.server.call(g.script.with("allow", "1s", "4", "5/1m@1s")...).Error(); err == nil || !refusal.MatchString(err.Error()) {
		g.Errorf("a call for one event: %v", err)
	}
	all := must(g.call(g.with("allow", "1s", "4", "5/1m@1s")).ToArray())
	for i, part := range slices.Collect(slices.Chunk(all, 5)) {
		if i == 1 { // known and denied
			if granted, err := part[0].AsInt64(); err != nil || granted != 0 {
				g.Errorf("the event that is denied: %v, %v", granted, err)
			}
		} else if text, err := part[0].ToString(); err != nil || !refusal.MatchString(text) {
			g.Errorf("event %d of a call for several: %q, %v", i, text, err)
		}
	}
	if g.name == window.name {
		g.refusedJointly(refusal)
	}
	if after := g.state(); after != before {
		g.Errorf("the calls turned %s into %s", before, after)
	}
}

// refusedJointly makes a joint call, which fails for each event.
func (g group) refusedJointly(refusal *regexp.Regexp) {
	g.Helper()
	args := []string{"joint", g.script.at("2m"), "1", "1", "1", "3"}
	for range 3 {
		args = append(append(args, "1"), window.limit("5/1m@1s")...)
	}
	for i, part := range slices.Collect(slices.Chunk(must(g.call(args).ToArray()), 5)) {
		if text, err := part[0].ToString(); err != nil || !refusal.MatchString(text) {
			g.Errorf("event %d of a joint call: %q, %v", i, text, err)
		}
	}
}

// refusal matches the start of the error with which the server refuses a write. Redis 6 puts the
// line number of the script before the code.
func (s server) refusal(code string) *regexp.Regexp {
	s.Helper()
	info := must(s.client.Do(s.Context(), s.client.B().Info().Section("server").Build()).ToString())
	if strings.Contains(info, "redis_version:6.") {
		code = `@user_script: ?\d+: -` + code
	}
	return regexp.MustCompile("^" + code + " ")
}
