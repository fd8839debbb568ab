package lua_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// record returns the record that two attempts leave under two limits. In window, the second attempt
// opened a bucket under one of the limits.
func (s script) record(t *testing.T) string {
	t.Helper()
	j := s.onRedis(t)
	j(t, s.with("allow", "0s", "2", "5/1m@1s", "20/1h@1m")...)
	return j(t, s.with("allow", "1s", "1", "5/1m@1s", "20/1h@1m")...).stored
}

// change makes one argument invalid.
func change(i int, bad string) func([]string) []string {
	return func(args []string) []string { args[i] = bad; return args }
}

// calls maps names to functions that make a call invalid.
type calls map[string]func(args []string) []string

// badCalls returns calls that are invalid for every verb.
func (s script) badCalls() calls {
	return calls{
		"no units":              change(2, "0"),
		"units below zero":      change(2, "-1"),
		"a fraction of units":   change(2, "1.5"),
		"too many units":        change(2, digits(s.most+2)),
		"units in words":        change(2, "one"),
		"units left out":        change(2, ""),
		"units not a number":    change(2, "nan"),
		"units without end":     change(2, "inf"),
		"time below zero":       change(1, "-1"),
		"too late a time":       change(1, digits(s.never)),
		"a fraction of time":    change(1, s.at("0s")+".5"),
		"time in words":         change(1, "now"),
		"time not a number":     change(1, "nan"),
		"unknown verb":          change(0, "alow"),
		"verb in capitals":      change(0, "ALLOW"),
		"verb left out":         change(0, ""),
		"one argument too many": func(args []string) []string { return append(args, "1") },
		"one argument too few":  func(args []string) []string { return args[:len(args)-1] },
		"no argument":           func([]string) []string { return nil },
		"32 limits":             func(args []string) []string { return slices.Insert(args, 3, s.many(30)...) },
	}
}

// noLimit makes a call that is invalid for every verb except inspect.
func (s script) noLimit(args []string) []string { return append(args[:3], args[3+2*s.limited:]...) }

// badLimits returns calls that are invalid for every verb.
func (s script) badLimits() calls {
	second := 3 + s.limited
	bad := calls{
		"Per 0":                  change(3, "0"),
		"Per below zero":         change(3, "-60000"),
		"a fraction of Per":      change(3, "60000.5"),
		"Per above 2^44":         change(3, "17592186044417"),
		"Per in words":           change(3, "minute"),
		"Per not a number":       change(3, "nan"),
		"Max 0":                  change(4, "0"),
		"a fraction of Max":      change(4, "5.5"),
		"too great a Max":        change(4, digits(s.most+2)),
		"Max in words":           change(4, "five"),
		"Max not a number":       change(4, "nan"),
		"Max without end":        change(4, "inf"),
		"the last limit's Max 0": change(second+1, "0"),
		"two limits of one Per":  change(second, "60000"),
	}
	if s.limited == 3 {
		maps.Copy(bad, badResolutions)
	}
	return bad
}

var badResolutions = calls{
	"Resolution 0":             change(5, "0"),
	"Resolution over Per":      change(5, "60001"),
	"a fraction of Resolution": change(5, "1.5"),
	"Resolution not a number":  change(5, "nan"),
}

// TestBadArguments checks that the verbs reject every invalid argument, for a new event and for a
// known one. Nothing is written.
func TestBadArguments(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		srv := s.on(t, redistest.Client(t))
		for _, value := range []string{"", s.record(t)} {
			srv.refusesAll(s.badCalls(), value, s.verbs...)
			srv.refusesAll(s.badLimits(), value, s.verbs...)
			srv.refusesAll(calls{"units over a Max": change(2, "6")}, value, "allow", "count", "peek", "inspect")
			srv.refusesAll(calls{"too many rows": change(2, "4097")}, value, s.rowVerbs()...)
			others := slices.DeleteFunc(slices.Clone(s.verbs), func(verb string) bool { return verb == "inspect" })
			srv.refusesAll(calls{"no limit": s.noLimit}, value, others...)
		}
	})
}

// rowVerbs returns the verbs that reply to each of their calls.
func (s script) rowVerbs() []string {
	return slices.DeleteFunc(slices.Clone(s.verbs), func(verb string) bool { return !strings.HasSuffix(verb, "each") })
}

// refusesAll checks that each of the given invalid calls is rejected, for each of the given verbs.
func (s server) refusesAll(bad calls, value string, verbs ...string) {
	s.Helper()
	for name, spoil := range bad {
		for _, verb := range verbs {
			s.refuses(name, value, spoil(s.with(verb, "2s", "1", "5/1m@1s", "20/1h@1m")))
		}
	}
}

// TestExtremes checks that the largest numbers that the headers allow are accepted and counted.
func TestExtremes(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		ask, most := s.onRedis(t), digits(s.most)
		args := []string{"allow", digits(s.never - 1), most, "17592186044416", most, "17592186044416"}[:3+s.limited]
		for _, want := range []int64{1, 0} {
			if a := ask(t, args...); a.err != "" || a.reply[0] != want || a.reply[2] != s.most || a.reply[3] <= 0 || a.reply[4] <= 0 {
				t.Errorf("%q is answered %+v", args, a)
			}
		}
	})
}

// many returns n limits as arguments. No Per of theirs is used elsewhere in the tests.
func (s script) many(n int) (args []string) {
	for i := range n {
		args = append(args, s.limit(fmt.Sprintf("1/%dms@1ms", i+1))...)
	}
	return args
}

// refuses checks that a call is an error and writes nothing. If the value is empty, the key does
// not exist.
func (s server) refuses(name, value string, args []string) {
	s.Helper()
	s.eval(`redis.call('DEL', KEYS[1]) if ARGV[1] ~= '' then redis.call('SET', KEYS[1], ARGV[1]) end return 1`, value)
	s.rejects(name, args)
}

// rejects is refuses for the value that the key has.
func (s server) rejects(name string, args []string) {
	s.Helper()
	s.fails(name, args, s.state, func() rueidis.RedisResult { return s.call(args...) })
}

// fails checks that a call is an error, and does not change the state.
func (s server) fails(name string, args []string, state func() string, call func() rueidis.RedisResult) {
	s.Helper()
	before := state()
	reply, err := call().ToAny()
	if after := state(); err == nil || after != before {
		s.Errorf("%s: %q returns %v, %v, and turns %s into %s", name, args, reply, err, before, after)
		return
	}
	s.saysWhat(err)
}

// saysWhat checks that an error comes from the script, and that clients cannot mistake it for an
// error of the server.
func (s server) saysWhat(err error) {
	s.Helper()
	if _, ok := rueidis.IsRedisErr(err); !ok {
		s.Fatal(err)
	}
	if regexp.MustCompile(`^(MOVED|ASK|TRYAGAIN|LOADING|CLUSTERDOWN|NOSCRIPT|MASTERDOWN|READONLY)`).MatchString(err.Error()) {
		s.Errorf("a client mistakes this for an error of the server: %v", err)
	}
	if strings.HasPrefix(err.Error(), "SLIDEGATE") != strings.Contains(err.Error(), s.key) {
		s.Errorf("it does not name the key %s: %v", s.key, err)
	}
}

// TestForeignValues checks how every verb handles a value that is not a record of this version: it
// returns an error that names the key, and the value stays. Only reset forgets a value that starts
// like a record, because it certainly does not belong to another program.
func TestForeignValues(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		srv := s.on(t, redistest.Client(t))
		for name, value := range s.foreigners(t) {
			for _, verb := range s.verbs {
				srv.put(value)
				if verb != "reset" || !s.begins(value) {
					srv.leaves(name, s.with(verb, "0s", "1", "5/1m@1s", "20/1h@1m"))
				}
			}
		}
	})
}

// foreigners returns values that are not records of the script, by name.
func (s script) foreigners(t *testing.T) map[string]string {
	t.Helper()
	r := s.record(t)
	values := s.foreign(r)
	maps.Copy(values, map[string]string{
		"text": "hello", "long text": strings.Repeat("hello", 9), "empty": "", "JSON": `{"count":1,"until":1700006400000}`,
		"number": "1700006400000", "NULs": strings.Repeat("\x00", 40), "0xff": strings.Repeat("\xff", 40), "a byte more": r + "\x00",
	})
	for i, sections := range map[string]byte{"no section": 0, "32 sections": 32, "a section too few": 1, "one too many": 3} {
		values[i] = string(s.format+sections) + r[1:]
	}
	for i := range r {
		values[fmt.Sprintf("cut to %d bytes", i)] = r[:i]
	}
	for _, other := range scripts {
		if other.name != s.name {
			values["record of "+other.name] = other.record(t)
		}
	}
	return values
}

// begins reports whether the value starts like a record.
func (s script) begins(value string) bool {
	return len(value) >= s.least && value[0] > s.format && value[0] < s.format+32
}

// noWindow returns invalid values derived from a record of window.
func noWindow(r string) map[string]string {
	return map[string]string{
		"two sections of one Per": "\x82" + r[1:7] + strings.Repeat("\x00\x00\x00\x00\xea\x60", 2),
		"Per 0":                   "\x81" + r[1:7] + "\x00\x00\x00\x00\x00\x00",
		"unknown flag":            "\x81" + r[1:7] + "\x40" + r[8:13],
		"unknown Resolution":      "\x81" + r[1:7] + "\x0c" + "\x00\x00\x00\xea\x60",
		"a last time too far off": "\x81\x00\x00\x00\x00\x00\x00" + "\x10\x00\x00\x00\xea\x60" + "\x00\x00\x00\x00\xea\x61",
	}
}

// noAR1 returns invalid values derived from a record of ar1, whose second section is wrong.
func noAR1(r string) map[string]string {
	const minute, hour, wide = "\x00\x00\xea\x60", "\x00\x36\xee\x80", "\x00\x00\x00\x00\x00\x00"
	one := level(1)
	values := map[string]string{
		"two sections of one Per": minute + one,
		"Per 0":                   wide[:4] + one,
		"wide Per 0":              wide + wide[:4] + one,
		"wide Per of a minute":    wide + minute + one,
		"wide Per below 2^32":     wide + "\xff\xff\xff\xff" + one,
		"wide Per cut short":      wide + "\xff\xff\xff\xff" + one[:6],
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, math.Copysign(0, -1), 2.1e7, math.MaxFloat64} {
		values[fmt.Sprint("level ", x)] = hour + level(x)
	}
	for name, section := range values {
		values[name] = r[:20] + section
	}
	return values
}

// level encodes a level as in a record.
func level(x float64) string {
	return string(binary.BigEndian.AppendUint64(nil, math.Float64bits(x)))
}

// TestUnitsThatDoNotAddUp stores a section that claims 3 units in total, although it has an expired
// bucket of 9 units. Subtracting these 9 would leave fewer units than the 2 in the last bucket.
func TestUnitsThatDoNotAddUp(t *testing.T) {
	srv := window.on(t, redistest.Client(t))
	srv.put("\x81" + window.record(t)[1:7] + "\x01\x01\x00\x00\x0b\xb8" + "\x03\x02" + "\x00\x00\x09")
	for _, verb := range []string{"allow", "count", "peek", "some", "countsome", "counteach", "inspect"} {
		srv.leaves("units that do not add up", srv.with(verb, "1s", "1", "5/3s@1ms"))
	}
}

// TestWrongType checks how every verb handles each type that is not a string: it returns an error
// that names the key, and the value stays.
func TestWrongType(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		srv := s.on(t, redistest.Client(t))
		for _, command := range []string{"'RPUSH', KEYS[1], 1", "'HSET', KEYS[1], 1, 1", "'SADD', KEYS[1], 1", "'ZADD', KEYS[1], 1, 1", "'XADD', KEYS[1], '1-1', 1, 1"} {
			srv.eval(`redis.call('DEL', KEYS[1]) return redis.call(` + command + `)`)
			for _, verb := range s.verbs {
				srv.leaves(command, s.with(verb, "0s", "1", "5/1m@1s", "20/1h@1m"))
			}
		}
	})
}

// leaves checks that a call returns an error that names the key, and does not change the value.
func (s server) leaves(what string, args []string) {
	s.Helper()
	before := s.state()
	reply, err := s.call(args...).ToAny()
	if after := s.state(); err == nil || after != before {
		s.Errorf("%s: %s returns %v, %v, and turns %s into %s", what, args[0], reply, err, before, after)
		return
	}
	if e := err.Error(); !strings.Contains(e, s.key) || !strings.HasPrefix(e, "SLIDEGATE") && !strings.HasPrefix(e, "WRONGTYPE") {
		s.Errorf("%s: %s says %q", what, args[0], e)
	}
}

// TestResetForgetsDamaged checks that reset forgets a value that starts like a record, even if it
// is truncated.
func TestResetForgetsDamaged(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		srv, r := s.on(t, redistest.Client(t)), s.record(t)
		for _, damaged := range []string{r[:s.least], r[:len(r)-1], r + "x"} {
			srv.put(damaged)
			if got := must(srv.call(s.with("reset", "0s", "1", "5/1m@1s")...).AsIntSlice()); got[0] != 1 || srv.state() != `["" "-2"]` {
				t.Errorf("%x: %v, then %s", damaged, got, srv.state())
			}
		}
	})
}

// TestServerTime checks calls without a time. The script must use the server's time at the time of
// the call.
func TestServerTime(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		srv := s.on(t, redistest.Client(t))
		const clock = `local t = redis.call('TIME') return math.floor((t[1] * 1000000 + t[2]) / ARGV[1])`
		unit := digits(s.unit.Microseconds())
		for _, verb := range []string{"peek", "allow", "allow", "count", "some", "countsome", "counteach", "inspect"} {
			before := must(srv.eval(clock, unit).AsInt64())
			at := must(srv.call(s.with(verb, "", "1", "1/1h@1ms")...).AsIntSlice())[1]
			if after := must(srv.eval(clock, unit).AsInt64()); at < before || at > after {
				t.Errorf("%s is dated %d, but it was %d to %d", verb, at, before, after)
			}
		}
	})
}

// lifeOf returns a script that runs s. It replies with how long the key lives and how long the run
// took at most, both in ms; when the run began, in µs; and the time of the decision.
func (s script) lifeOf() string {
	return `
local function clock() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end
local before = clock()
local reply = (function() ` + s.sent("allow").source + `
end)()
local life = redis.call('PTTL', KEYS[1])
return {life, math.ceil((clock() - before) / 1000), before, reply[2]}
`
}

// TestLife checks when the key expires: when its last unit is forgotten, in any section, including
// sections of other callers. If the caller gave the time, the key expires a day later.
func TestLife(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		srv, peak := s.on(t, redistest.Client(t)), math.E/(math.E-1) // the highest level of 1/24h
		srv.lives(s.with("allow", "", "1", "9/1m@1s"), 0, s.life(minute, 1))
		srv.lives(s.with("allow", "", "1", "9/1m@1s", "9/1h@1m"), 0, s.life(hour, 1))
		at := srv.lives(s.with("allow", "", "1", "9/24h@24m", "9/1m@1s", "9/1h@1m"), 0, s.life(day, 1))
		srv.lives(s.with("allow", "", "1", "9/1m@1s"), at, s.life(day, 1)) // copied unchanged, the longest first
		at = srv.lives(s.with("count", "", "1", "9/1h@1m", "1/24h@24m"), 0, s.life(day, peak))
		srv.lives(s.with("allow", "", "1", "9/1m@1s"), at, s.life(day, peak)) // copied unchanged
		srv.lives(s.with("allow", "", "1", "1/876000h@8760h"), 0, s.life(876_000*hour, 1))

		srv = s.on(t, srv.client)
		srv.lives(s.with("allow", "0s", "1", "9/1m@1s"), 0, s.life(minute, 1)+day)
		srv.lives(s.with("allow", "2s", "1", "9/1h@1m"), 0, s.life(hour, 1)+day)
		srv.lives(s.with("allow", "2s", "1", "9/1m@1s"), s.instant("2s"), s.life(hour, 1)+day)
	})
}

// TestLifeAfterStepBack checks when the key expires after the clock stepped back. A window keeps
// the times of its buckets, whereas a level moves to the time of the clock.
func TestLifeAfterStepBack(t *testing.T) {
	srv := window.on(t, redistest.Client(t))
	srv.lives(srv.with("allow", "2s", "1", "9/1h@1m"), 0, hour+day)
	srv.lives(srv.with("allow", "0s", "1", "9/1h@1m"), srv.instant("2s"), hour+day)
	srv.lives(srv.with("refund", "0s", "1", "9/1h@1m"), srv.instant("2s"), hour+day)

	const clock = `return redis.call('TIME')[1] * 1000`
	srv = window.on(t, srv.client)
	later := must(srv.eval(clock).AsInt64()) + minute
	srv.lives(srv.dated("allow", digits(later), "1", "9/1h@1m"), 0, hour+day)
	srv.lives(srv.with("allow", "", "1", "9/1h@1m"), later, hour)

	srv = ar1.on(t, srv.client)
	srv.lives(srv.with("allow", "2s", "1", "9/1h"), 0, srv.life(hour, 1)+day)
	srv.lives(srv.with("allow", "0s", "1", "9/1h"), 0, srv.life(hour, 2)+day)
	srv.lives(srv.with("refund", "0s", "1", "9/1h"), 0, srv.life(hour, 1)+day)
}

const minute, hour, day = 60_000, 3_600_000, 86_400_000

// lives checks that a call that writes makes the key expire life ms after from, or after now if
// from is 0. It returns the time of the decision.
func (s server) lives(args []string, from, life int64) (at int64) {
	s.Helper()
	told := must(s.eval(s.lifeOf(), args...).AsIntSlice())
	now := told[2] / s.unit.Microseconds()
	if args[1] != "" {
		now = must(strconv.ParseInt(args[1], 10, 64))
	}
	if from > 0 {
		life -= (now - from) * int64(s.unit) / int64(time.Millisecond)
	}
	if got, took := told[0], told[1]; got > life || got < life-took-1 {
		s.Errorf("%q makes the key live for %s, not %s", args, span(got), span(life))
	}
	return told[len(told)-1]
}

// TestWrites checks which writes a server executes, and therefore replicates: one SET if something
// is counted, one DEL if nothing is left, and otherwise nothing.
func TestWrites(t *testing.T) {
	client := redistest.Start(t).Client(t)
	each(t, func(t *testing.T, s script) { s.on(t, client).writes() })
}

// writes makes calls on an empty key. The state after each call determines what the next one
// writes.
func (s server) writes() {
	s.Helper()
	s.call(s.with("peek", "0s", "1", "2/1m@1s")...) // loads the script
	for _, step := range []struct {
		args []string
		want string
	}{
		{s.with("allow", "0s", "2", "2/1m@1s", "9/1h@1m"), "set"},
		{s.with("allow", "0s", "1", "2/1m@1s", "9/1h@1m"), ""},
		{s.with("peek", "0s", "1", "2/1m@1s", "9/1h@1m"), ""},
		{s.with("inspect", "0s", "1", "2/1m@1s", "9/1h@1m"), ""},
		{s.with("count", "0s", "1", "2/1m@1s", "9/1h@1m"), "set"},
		{s.with("some", "0s", "9", "2/1m@1s", "9/1h@1m"), ""},
		{s.with("countsome", "0s", "2", "2/1m@1s", "9/1h@1m"), "set"},
		{s.with("counteach", "0s", "2", "2/1m@1s", "9/1h@1m"), "set"},
		{s.with("refund", "0s", "5", "2/1m@1s", "9/1h@1m"), "set"},
		{s.with("refund", "24h", "1", "2/1m@1s", "9/1h@1m"), ""},
		{s.with("refund", "0s", "2", "2/1m@1s", "9/1h@1m"), "del"},
		{s.with("allow", "0s", "2", "2/1m@1s", "9/1h@1m"), "set"},
		{s.with("allow", "-2780h", "1", "2/1m@1s", "9/1h@1m"), "set"}, // a repair
		{s.with("peek", "-5560h", "1", "2/1m@1s", "9/1h@1m"), ""},
		{s.with("reset", "0s", "1", "2/1m@1s", "9/1h@1m"), "del"},
		{s.with("allow", "0s", "3", "2/1m@1s", "9/1h@1m"), ""}, // an error
	} {
		s.client.Do(s.Context(), s.client.B().ConfigResetstat().Build())
		s.call(step.args...)
		if got := s.executed(); got != step.want {
			s.Errorf("%q executes %q, not %q", step.args, got, step.want)
		}
	}
}

// executed returns the commands that the server ran since its statistics were reset, except those
// that write nothing.
func (s server) executed() string {
	s.Helper()
	idle := []string{"evalsha", "eval", "get", "time", "info", "config", "hello", "client"}
	stats := must(s.client.Do(s.Context(), s.client.B().Info().Section("commandstats").Build()).ToString())
	var all []string
	for _, m := range regexp.MustCompile(`cmdstat_(\w+)[^:]*:calls=(\d+)`).FindAllStringSubmatch(stats, -1) {
		for range must(strconv.Atoi(m[2])) {
			all = append(all, m[1])
		}
	}
	return strings.Join(slices.DeleteFunc(all, func(c string) bool { return slices.Contains(idle, c) }), " ")
}

// TestHeadNamesVerbs checks that the header of each script names exactly the verbs that the script
// knows.
func TestHeadNamesVerbs(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		head, _, _ := strings.Cut(s.source, "\n\n")
		var named []string
		for _, m := range regexp.MustCompile(`(?m)^-- {12}([a-z]+) `).FindAllStringSubmatch(head, -1) {
			named = append(named, m[1])
		}
		known := s.verbs
		if s.name == window.name {
			known = slices.Concat(s.verbs, groupVerbs)
		}
		if !slices.Equal(named, known) {
			t.Errorf("the header names the verbs %q, these tests know %q", named, known)
		}
		for _, m := range regexp.MustCompile(`\bop [=~]= '(\w+)'`).FindAllStringSubmatch(s.source, -1) {
			if !slices.Contains(named, m[1]) {
				t.Errorf("the header does not name the verb %q", m[1])
			}
		}
	})
}
