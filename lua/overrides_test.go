package lua_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/lua"
)

// overrides describes overrides.lua for the tests of all scripts.
var overrides = script{name: "overrides", source: lua.Overrides.Source, unit: time.Millisecond, never: 1 << 47}

// An override is a row of the reply to list, without its tag.
type override struct {
	since, till   int64
	what, why, by string
}

// overrideModel models what overrides.lua stores, as simply as possible.
type overrideModel struct {
	all     map[string]override
	version int64 // of the record, if there is one
}

// drop removes overrides that have ended.
func (m *overrideModel) drop(now int64) {
	maps.DeleteFunc(m.all, func(_ string, o override) bool { return o.till <= now })
}

// write records a change.
func (m *overrideModel) write(now int64) {
	if m.version = max(now*1000, m.version+1); len(m.all) == 0 {
		m.version = 0
	}
}

func (m *overrideModel) set(now int64, tag string, ttl int64, o override) {
	m.drop(now)
	o.since, o.till = now, now+ttl
	m.all[tag] = o
	m.write(now)
}

func (m *overrideModel) end(now int64, tag string) int64 {
	o, had := m.all[tag]
	if !had || o.till <= now {
		return 0
	}
	m.drop(now)
	delete(m.all, tag)
	m.write(now)
	return 1
}

// inForce returns the overrides that list should reply with.
func (m *overrideModel) inForce(now int64) map[string]override {
	all := maps.Clone(m.all)
	maps.DeleteFunc(all, func(_ string, o override) bool { return o.till <= now })
	return all
}

// listed decodes a reply to list into its first three integers, and the overrides by their tags.
func listed(a answer) (head []int64, all map[string]override) {
	all = map[string]override{}
	for i := 0; i+4 <= len(a.texts); i += 4 {
		times := a.reply[3+i/2:]
		all[a.texts[i]] = override{times[0], times[1], a.texts[i+1], a.texts[i+2], a.texts[i+3]}
	}
	return a.reply[:3], all
}

// TestOverridesModel makes random calls, on a clock that also steps back, and compares the script
// with the model after each call.
func TestOverridesModel(t *testing.T) {
	for seed := range redistest.UnlessShort[uint64](20, 5) {
		playOverrides(t, seed, overrides.onRedis(t))
	}
}

// TestOverridesOnOtherLuas plays the same calls on the Lua interpreters that it finds.
func TestOverridesOnOtherLuas(t *testing.T) {
	eachLua(t, func(t *testing.T, path string) {
		for seed := range uint64(20) {
			playOverrides(t, seed, overrides.spyOnLua(t, path).about("overrides"))
		}
	})
}

// playOverrides makes the random calls of a seed on a new key.
func playOverrides(t *testing.T, seed uint64, ask judge) {
	t.Helper()
	r, m, now := rand.New(rand.NewPCG(7, seed)), overrideModel{all: map[string]override{}}, overrides.midnight()
	tags, whats := []string{"alice", "~x", "\x00\xff{} %", strings.Repeat("y", 384)}, []string{"block", "unlimited", "60000 100", "1000 1 3155760000000 9007199254740992"}
	for step := range 60 {
		now += int64(r.IntN(3000)) - 500
		tag, first := tags[r.IntN(len(tags))], int64(1)
		var a answer
		switch r.IntN(8) {
		case 0:
			if a := ask(t, "set", digits(now), tag, "0", "block", "why", ""); !strings.HasPrefix(a.err, "SLIDEGATE key KEY: ") {
				t.Fatalf("seed %d, step %d: an override for no time is answered %+v", seed, step, a)
			}
			continue
		case 1, 2:
			first = m.end(now, tag)
			a = ask(t, "end", digits(now), tag)
		default:
			ttl, o := 1+int64(r.IntN(8000)), override{what: whats[r.IntN(len(whats))], why: fmt.Sprint("reason ", step), by: []string{"", "ann"}[step%2]}
			m.set(now, tag, ttl, o)
			a = ask(t, "set", digits(now), tag, digits(ttl), o.what, o.why, o.by)
		}
		if diff := cmp.Diff([]int64{first, now, m.version}, a.reply); diff != "" || a.err != "" || (a.wrote == "") != (first == 0) {
			t.Fatalf("seed %d, step %d, %q: %+v\n%s", seed, step, tag, a, diff)
		}
		head, all := listed(ask(t, "list", digits(now), "0"))
		want := m.inForce(now)
		if diff := cmp.Diff(want, all, cmp.AllowUnexported(override{})); diff != "" || !slices.Equal(head, []int64{int64(len(want)), now, m.version}) {
			t.Fatalf("seed %d, step %d: list starts with %v, version %d\n%s", seed, step, head, m.version, diff)
		}
		if _, all := listed(ask(t, "list", digits(now), digits(m.version))); m.version > 0 && len(all) != 0 {
			t.Fatalf("seed %d, step %d: a caller that has this version gets %v", seed, step, all)
		}
	}
}

// TestOverridesLast checks that an override can be set, listed and ended at the latest valid time.
func TestOverridesLast(t *testing.T) {
	ask, now := overrides.onRedis(t), digits(overrides.never-1)
	set := ask(t, "set", now, "alice", "31622400000", "block", "why", "")
	again := ask(t, "set", now, "bob", "31622400000", "block", "why", "")
	if set.err != "" || again.err != "" || again.reply[2] != set.reply[2]+1 {
		t.Errorf("%+v, %+v", set, again)
	}
	if a := ask(t, "list", now, digits(set.reply[2])); len(a.texts) != 8 || a.reply[2] != again.reply[2] {
		t.Errorf("%+v", a)
	}
	if a := ask(t, "end", now, "alice"); a.err != "" || a.reply[0] != 1 {
		t.Errorf("%+v", a)
	}
}

// TestOverridesLife checks that the key lives as long as its last override on the server's clock,
// and a day longer on a caller's clock, and that it is removed when the last override is ended.
func TestOverridesLife(t *testing.T) {
	srv := overrides.on(t, redistest.Client(t))
	lives := func(least, most int64) {
		t.Helper()
		if left := must(srv.eval(`return redis.call('PTTL', KEYS[1])`).AsInt64()); left <= least || left > most {
			t.Errorf("the key lives for %d ms, not %d to %d", left, least, most)
		}
	}
	for _, tag := range []string{"alice", "bob"} {
		must("", srv.call("set", "", tag, map[string]string{"alice": "7200000", "bob": "3600000"}[tag], "block", "why", "").Error())
	}
	lives(7_100_000, 7_200_000)
	must("", srv.call("end", "", "alice").Error())
	lives(3_500_000, 3_600_000)
	if reply := must(srv.call("end", "", "bob").AsIntSlice()); reply[0] != 1 || reply[2] != 0 {
		t.Errorf("the last end replies %v", reply)
	}
	lives(-3, -2)
	must("", srv.call("set", overrides.at("1s"), "alice", "1000", "block", "why", "").Error())
	lives(86_300_000, 86_401_000)
}

// overrideCalls returns valid calls of each verb.
func overrideCalls() map[string][]string {
	now := overrides.at("2s")
	return map[string][]string{
		"set":  {"set", now, "alice", "60000", "60000 100 1000 5", "why", "ann"},
		"end":  {"end", now, "alice"},
		"list": {"list", now, "0"},
	}
}

// TestOverridesBadArguments checks that each verb rejects every invalid argument, and writes
// nothing.
func TestOverridesBadArguments(t *testing.T) {
	srv := overrides.on(t, redistest.Client(t))
	must("", srv.call("set", overrides.at("1s"), "alice", "9000", "block", "why", "").Error())
	srv.eval(`return redis.call('PERSIST', KEYS[1])`) // a write adds an expiry, which state shows
	many := make([]string, 0, 64)
	for i := range 32 {
		many = append(many, strconv.Itoa(i+1), "5")
	}
	long := strings.Repeat("x", 400)
	bad := []struct {
		verb   string
		at     int
		values []string
	}{
		{"set", 2, []string{"", long}},
		{"set", 3, []string{"0", "-1", "1.5", "31622400001", "nan", "inf", "", "soon"}},
		{"set", 4, []string{
			"", "BLOCK", "deny", "60000", "60000 100 1000", "0 5", "5 0", "1.5 5", "-1 5", "60000  100", " 60000 100", "60000 100 ", "60000 1e3", "060000 100",
			"60000 100 60000 5", "3155760000001 5", "60000 9007199254740993", "60000 99999999999999999", strings.Join(many, " "), "60000 100\n",
		}},
		{"set", 5, []string{"", long}},
		{"set", 6, []string{long}},
		{"end", 2, []string{"", long}},
		{"list", 2, []string{"", "-1", "1.5", "nan", "new"}},
	}
	for verb, args := range overrideCalls() {
		for _, now := range []string{"0", "-1", "1.5", "140737488355328", "nan", "noon"} {
			srv.rejects("the time", change(1, now)(slices.Clone(args)))
		}
		srv.rejects("the verb", change(0, "show")(slices.Clone(args)))
		srv.rejects(verb+": one argument more", append(slices.Clone(args), "1"))
		srv.rejects(verb+": one argument less", args[:len(args)-1])
	}
	for _, b := range bad {
		for _, value := range b.values {
			srv.rejects(b.verb, change(b.at, value)(slices.Clone(overrideCalls()[b.verb])))
		}
	}
}

// TestOverridesForeignValues checks that each verb rejects a value that is not a record of
// overrides.lua, and leaves it unchanged.
func TestOverridesForeignValues(t *testing.T) {
	srv := overrides.on(t, redistest.Client(t))
	must("", srv.call("set", overrides.at("1s"), "alice", "9000", "block", "why", "ann").Error())
	record := must(srv.eval(`return redis.call('GET', KEYS[1])`).ToString())
	values := []string{"", "hello", strings.Repeat("x", 60), "\xd9" + record[1:], record + "x", record + record[8:20], record[:8]}
	for end := 9; end < len(record); end++ {
		values = append(values, record[:end])
	}
	for _, value := range values {
		srv.put(value)
		for _, args := range overrideCalls() {
			srv.leaves(fmt.Sprintf("%q", value), args)
		}
	}
	for _, command := range []string{`'RPUSH', KEYS[1], 1`, `'HSET', KEYS[1], 1, 1`} {
		srv.eval(`redis.call('DEL', KEYS[1]) return redis.call(` + command + `)`)
		for _, args := range overrideCalls() {
			srv.leaves(command, args)
		}
	}
}

// TestOverridesMost checks that a Name has at most 1,000 overrides, that any of them can still be
// replaced, and that an override that has ended makes room. It logs how much memory the overrides
// take.
func TestOverridesMost(t *testing.T) {
	srv := overrides.on(t, redistest.Client(t))
	set := func(now, tag string) error {
		return srv.call("set", now, tag, "5000", "60000 100", "a reason of some length", "ann").Error()
	}
	for i := range 1000 {
		must("", set(overrides.at("1s"), fmt.Sprintf("198.51.100.%d", i)))
	}
	srv.eval(`return redis.call('PERSIST', KEYS[1])`)
	before := srv.state()
	if err := set(overrides.at("2s"), "one more"); err == nil || !strings.Contains(err.Error(), " holds 1000 overrides, and no more fit; end some of them") || srv.state() != before {
		t.Errorf("one more: %v", err)
	}
	if err := set(overrides.at("5s"), "198.51.100.7"); err != nil {
		t.Error(err)
	}
	size := must(srv.client.Do(t.Context(), srv.client.B().MemoryUsage().Key(srv.key).Build()).AsInt64())
	t.Logf("1,000 overrides take %d bytes", size)
	if err := set(overrides.at("6s"), "one more"); err != nil {
		t.Error(err)
	}
	if left := must(must(srv.call("list", overrides.at("6s"), "0").ToArray())[0].AsInt64()); left != 2 {
		t.Errorf("%d overrides are left", left)
	}
}

// TestOverridesWrites checks that a call that changes nothing writes nothing.
func TestOverridesWrites(t *testing.T) {
	srv := overrides.on(t, redistest.Client(t))
	must("", srv.call("set", overrides.at("1s"), "alice", "9000", "block", "why", "").Error())
	srv.eval(`return redis.call('PERSIST', KEYS[1])`)
	before := srv.state()
	for _, args := range [][]string{{"end", overrides.at("2s"), "bob"}, {"list", overrides.at("2s"), "0"}, {"list", overrides.at("20s"), "0"}} {
		if _, err := srv.call(args...).ToArray(); rueidis.IsRedisNil(err) || err != nil || srv.state() != before {
			t.Errorf("%q: %v, and it leaves %s", args, err, srv.state())
		}
	}
}
