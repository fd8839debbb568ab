package lua_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/lua"
)

var verbs = []string{"allow", "count", "peek", "inspect", "refund", "reset"}

// server is a real Redis, the script as it is shipped, and a key of the test's own.
type server struct {
	*testing.T
	client rueidis.Client
	script *rueidis.Lua
	key    string
}

func newServer(t *testing.T, client rueidis.Client) server {
	t.Helper()
	return server{t, client, lua.New(lua.Window), redistest.Key(t)}
}

func (s server) call(args ...string) rueidis.RedisResult {
	return s.script.Exec(s.Context(), s.client, []string{s.key}, args)
}

// eval runs a script of the test itself.
func (s server) eval(script string, args ...string) rueidis.RedisResult {
	s.Helper()
	r := s.client.Do(s.Context(), s.client.B().Eval().Script(script).Numkeys(1).Key(s.key).Arg(args...).Build())
	if err := r.Error(); err != nil {
		s.Fatal(err)
	}
	return r
}

// put makes a string the value of the key, for ever: whoever writes it again gives it an end, which state shows.
func (s server) put(value string) {
	s.Helper()
	s.eval(`return redis.call('SET', KEYS[1], ARGV[1])`, value)
}

// state is all that a server knows of a key, as far as it stays the same while nobody writes.
func (s server) state() string {
	s.Helper()
	const script = `return {redis.call('DUMP', KEYS[1]) or '', tostring(redis.call('PTTL', KEYS[1]))}`
	return fmt.Sprintf("%q", must(s.eval(script).AsStrSlice()))
}

// with is a good call with some limits, and one more argument for a refund.
func with(verb, now, units string, limits ...string) (args []string) {
	args = []string{verb, now, units}
	for _, l := range limits {
		args = append(args, limit(l)...)
	}
	if verb == "refund" {
		args = append(args, now)
	}
	return args
}

// Instants of these tests, as the script takes them.
const (
	start = "1700006400000"
	later = "1700006402000"
)

// record is what two attempts leave under two limits; the second opened a bucket in one of them.
func record(t *testing.T) string {
	t.Helper()
	j := onRedis(t)
	j(t, with("allow", start, "2", "5/1m@1s", "20/1h@1m")...)
	return j(t, with("allow", "1700006401000", "1", "5/1m@1s", "20/1h@1m")...).stored
}

// change spoils one argument.
func change(i int, bad string) func([]string) []string {
	return func(args []string) []string { args[i] = bad; return args }
}

// badCalls are for every verb.
var badCalls = map[string]func(args []string) []string{
	"no units":              change(2, "0"),
	"units below zero":      change(2, "-1"),
	"a fraction of units":   change(2, "1.5"),
	"units above 2^53":      change(2, "9007199254740994"),
	"units in words":        change(2, "one"),
	"units left out":        change(2, ""),
	"units not a number":    change(2, "nan"),
	"units without end":     change(2, "inf"),
	"time below zero":       change(1, "-1"),
	"time 2^47":             change(1, "140737488355328"),
	"a fraction of time":    change(1, "1700006400000.5"),
	"time in words":         change(1, "now"),
	"time not a number":     change(1, "nan"),
	"unknown verb":          change(0, "alow"),
	"verb in capitals":      change(0, "ALLOW"),
	"verb left out":         change(0, ""),
	"one argument too many": func(args []string) []string { return append(args, "1") },
	"one argument too few":  func(args []string) []string { return args[:len(args)-1] },
	"no argument":           func([]string) []string { return nil },
	"no limit":              func(args []string) []string { return append(args[:3], args[9:]...) },
	"32 limits":             func(args []string) []string { return slices.Insert(args, 3, many(30)...) },
}

// badLimits are for the verbs that ask what the limits are; refund may find that it needs none, and then changes nothing.
var badLimits = map[string]func(args []string) []string{
	"Per 0":                    change(3, "0"),
	"Per below zero":           change(3, "-60000"),
	"a fraction of Per":        change(3, "60000.5"),
	"Per above 2^44":           change(3, "17592186044417"),
	"Per in words":             change(3, "minute"),
	"Max 0":                    change(4, "0"),
	"a fraction of Max":        change(4, "5.5"),
	"Max above 2^53":           change(4, "9007199254740994"),
	"Max in words":             change(4, "five"),
	"Max not a number":         change(4, "nan"),
	"Resolution 0":             change(5, "0"),
	"Resolution over Per":      change(5, "60001"),
	"a fraction of Resolution": change(5, "1.5"),
	"Resolution not a number":  change(5, "nan"),
	"the last limit's Max 0":   change(7, "0"),
	"units over a Max":         change(2, "6"),
	"two limits of one Per":    change(6, "60000"),
}

// TestBadArguments gives the verbs every bad argument, for an event that is new and one that is known: an error, and
// nothing is written.
func TestBadArguments(t *testing.T) {
	s := newServer(t, redistest.Client(t))
	for _, value := range []string{"", record(t)} {
		for name, spoil := range badCalls {
			for _, verb := range verbs {
				s.refuses(name, value, spoil(with(verb, later, "1", "5/1m@1s", "20/1h@1m")))
			}
		}
		for name, spoil := range badLimits {
			for _, verb := range []string{"allow", "count", "peek", "inspect"} {
				s.refuses(name, value, spoil(with(verb, later, "1", "5/1m@1s", "20/1h@1m")))
			}
		}
	}
}

// many are limits of other Pers than those of the tests, as arguments.
func many(n int) (args []string) {
	for i := range n {
		args = append(args, limit(fmt.Sprintf("1/%dms@1ms", i+1))...)
	}
	return args
}

// refuses checks that a call is an error and writes nothing. For want of a value the key does not exist.
func (s server) refuses(name, value string, args []string) {
	s.Helper()
	s.eval(`redis.call('DEL', KEYS[1]) if ARGV[1] ~= '' then redis.call('SET', KEYS[1], ARGV[1]) end return 1`, value)
	before := s.state()
	reply, err := s.call(args...).ToAny()
	if after := s.state(); err == nil || after != before {
		s.Errorf("%s: %q is answered %v, %v, and turned %s into %s", name, args, reply, err, before, after)
		return
	}
	s.saysWhat(err)
}

// saysWhat checks that an error is the script's, and is not taken by a client for one of the server.
func (s server) saysWhat(err error) {
	s.Helper()
	if _, ok := rueidis.IsRedisErr(err); !ok {
		s.Fatal(err)
	}
	if regexp.MustCompile(`^(MOVED|ASK|TRYAGAIN|LOADING|CLUSTERDOWN|NOSCRIPT|MASTERDOWN|READONLY)`).MatchString(err.Error()) {
		s.Errorf("a client takes this for an answer of the server: %v", err)
	}
	if strings.HasPrefix(err.Error(), "SLIDEGATE") != strings.Contains(err.Error(), s.key) {
		s.Errorf("it does not name the key %s: %v", s.key, err)
	}
}

// TestForeignValues has every verb meet what is no record of this version: an error that names the key, and the value stays.
// Reset alone forgets what begins as a record, since then nobody else's value is lost.
func TestForeignValues(t *testing.T) {
	s, r := newServer(t, redistest.Client(t)), record(t)
	values := map[string]string{
		"text": "hello", "long text": strings.Repeat("hello", 9), "empty": "", "JSON": `{"count":1,"until":1700006400000}`,
		"number": "1700006400000", "NULs": strings.Repeat("\x00", 40), "0xff": strings.Repeat("\xff", 40),
		"no section": "\x80" + r[1:], "32 sections": "\xa0" + r[1:], "a section too few": "\x81" + r[1:], "one too many": "\x83" + r[1:],
		"a byte more": r + "\x00", "two sections of one Per": "\x82" + r[1:7] + strings.Repeat("\x00\x00\x00\x00\xea\x60", 2),
		"Per 0": "\x81" + r[1:7] + "\x00\x00\x00\x00\x00\x00", "unknown flag": "\x81" + r[1:7] + "\x40" + r[8:13],
		"unknown Resolution": "\x81" + r[1:7] + "\x0c" + "\x00\x00\x00\xea\x60",
	}
	for i := range r {
		values[fmt.Sprintf("cut to %d bytes", i)] = r[:i]
	}
	for name, value := range values {
		for _, verb := range verbs {
			s.put(value)
			if verb == "reset" && len(value) > 12 && value[0] > 128 && value[0] < 160 {
				continue
			}
			s.leaves(name, with(verb, start, "1", "5/1m@1s", "20/1h@1m"))
		}
	}
	for _, command := range []string{"'RPUSH', KEYS[1], 1", "'HSET', KEYS[1], 1, 1", "'SADD', KEYS[1], 1", "'ZADD', KEYS[1], 1, 1", "'XADD', KEYS[1], '1-1', 1, 1"} {
		s.eval(`redis.call('DEL', KEYS[1]) return redis.call(` + command + `)`)
		for _, verb := range verbs {
			s.leaves(command, with(verb, start, "1", "5/1m@1s", "20/1h@1m"))
		}
	}
}

// leaves checks that a call names the key in an error, and leaves the value as it is.
func (s server) leaves(what string, args []string) {
	s.Helper()
	before := s.state()
	reply, err := s.call(args...).ToAny()
	if after := s.state(); err == nil || after != before {
		s.Errorf("%s: %s is answered %v, %v, and turned %s into %s", what, args[0], reply, err, before, after)
		return
	}
	if e := err.Error(); !strings.Contains(e, s.key) || !strings.HasPrefix(e, "SLIDEGATE") && !strings.HasPrefix(e, "WRONGTYPE") {
		s.Errorf("%s: %s says %q", what, args[0], e)
	}
}

// TestResetForgetsDamaged is the other side of it: what begins as a record may be cut short, and reset still helps.
func TestResetForgetsDamaged(t *testing.T) {
	s, r := newServer(t, redistest.Client(t)), record(t)
	for _, damaged := range []string{r[:13], r[:len(r)-1], r + "x"} {
		s.put(damaged)
		if got := must(s.call(with("reset", start, "1", "5/1m@1s")...).AsIntSlice()); got[0] != 1 || s.state() != `["" "-2"]` {
			t.Errorf("%x: %v, then %s", damaged, got, s.state())
		}
	}
}

// TestServerTime leaves the time out: it is then that of the server, read during the call.
func TestServerTime(t *testing.T) {
	s := newServer(t, redistest.Client(t))
	const clock = `local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)`
	for _, verb := range []string{"peek", "allow", "allow", "count", "inspect"} {
		before := must(s.eval(clock).AsInt64())
		at := must(s.call(with(verb, "", "1", "1/1h@1ms")...).AsIntSlice())[1]
		if after := must(s.eval(clock).AsInt64()); at < before || at > after {
			t.Errorf("%s is dated %d, but it was %d to %d", verb, at, before, after)
		}
	}
}

// lifeOf runs the script, and tells how long the key lives, how long all that took at most, and the time of the decision.
var lifeOf = `
local function clock() local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000) end
local before = clock()
local reply = (function() ` + lua.Window + `
end)()
local life = redis.call('PTTL', KEYS[1])
return {life, clock() - before, reply[2]}
`

// TestLife checks when the key ends: when its last unit is forgotten, over all sections, those carried along too, and a day
// later where the time was given.
func TestLife(t *testing.T) {
	const minute, hour, day = 60_000, 3_600_000, 86_400_000
	s := newServer(t, redistest.Client(t))
	s.lives(with("allow", "", "1", "9/1m@1s"), 0, minute)
	s.lives(with("allow", "", "1", "9/1m@1s", "9/1h@1m"), 0, hour)
	s.lives(with("allow", "", "1", "9/24h@24m", "9/1m@1s", "9/1h@1m"), 0, day)
	at := s.lives(with("count", "", "1", "9/1h@1m", "1/24h@24m"), 0, day)
	s.lives(with("allow", "", "1", "9/1m@1s"), at, day) // carried along
	s.lives(with("allow", "", "1", "1/876000h@8760h"), 0, 876_000*hour)

	s = newServer(t, s.client)
	s.lives(with("allow", start, "1", "9/1m@1s"), 0, minute+day)
	s.lives(with("allow", later, "1", "9/1h@1m"), 0, hour+day)
	s.lives(with("allow", later, "1", "9/1m@1s"), midnight+2000, hour+day)
	s.lives(with("allow", start, "1", "9/1h@1m"), midnight+2000, hour+day) // the clock stepped back
	s.lives(with("refund", start, "1", "9/1h@1m"), midnight+2000, hour+day)
}

// lives checks that a call which writes makes the key end so long after an instant, or after now if that is 0. It returns
// the time of the decision.
func (s server) lives(args []string, from, life int64) (at int64) {
	s.Helper()
	told := must(s.eval(lifeOf, args...).AsIntSlice())
	now := told[len(told)-1]
	if args[1] != "" {
		now = must(strconv.ParseInt(args[1], 10, 64))
	}
	if from > 0 {
		life -= now - from
	}
	if got, took := told[0], told[1]; got > life || got < life-took-1 {
		s.Errorf("%q makes the key live for %s, not %s", args, span(got), span(life))
	}
	return now
}

// TestWrites counts what a server executes, and so replicates: one SET where something is counted, one DEL where nothing
// is left, and else nothing.
func TestWrites(t *testing.T) {
	s := newServer(t, redistest.Start(t).Client(t))
	s.call(with("peek", start, "1", "2/1m@1s")...) // which loads the script
	for _, step := range []struct {
		args []string
		want string
	}{
		{with("allow", start, "2", "2/1m@1s", "9/1h@1m"), "set"},
		{with("allow", start, "1", "2/1m@1s", "9/1h@1m"), ""},
		{with("peek", start, "1", "2/1m@1s", "9/1h@1m"), ""},
		{with("inspect", start, "1", "2/1m@1s", "9/1h@1m"), ""},
		{with("count", start, "1", "2/1m@1s", "9/1h@1m"), "set"},
		{with("refund", start, "1", "2/1m@1s", "9/1h@1m"), "set"},
		{with("refund", "1700092800000", "1", "2/1m@1s", "9/1h@1m"), ""},
		{with("refund", start, "2", "2/1m@1s", "9/1h@1m"), "del"},
		{with("allow", start, "2", "2/1m@1s", "9/1h@1m"), "set"},
		{with("allow", "1690000000000", "1", "2/1m@1s", "9/1h@1m"), "set"}, // a repair
		{with("peek", "1680000000000", "1", "2/1m@1s", "9/1h@1m"), ""},
		{with("reset", start, "1", "2/1m@1s", "9/1h@1m"), "del"},
		{with("allow", start, "3", "2/1m@1s", "9/1h@1m"), ""}, // an error
	} {
		s.client.Do(t.Context(), s.client.B().ConfigResetstat().Build())
		s.call(step.args...)
		if got := s.executed(); got != step.want {
			t.Errorf("%q executes %q, not %q", step.args, got, step.want)
		}
	}
}

// executed are the commands that the server ran since its statistics were reset, without those that write nothing.
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

// TestHeadNamesVerbs holds the contract in the head of the script against what it does.
func TestHeadNamesVerbs(t *testing.T) {
	head, _, _ := strings.Cut(lua.Window, "\n\n")
	var named []string
	for _, m := range regexp.MustCompile(`(?m)^-- {12}([a-z]+) `).FindAllStringSubmatch(head, -1) {
		named = append(named, m[1])
	}
	if !slices.Equal(named, verbs) {
		t.Errorf("the head names the verbs %q, these tests know %q", named, verbs)
	}
	for _, m := range regexp.MustCompile(`\bop [=~]= '(\w+)'`).FindAllStringSubmatch(lua.Window, -1) {
		if !slices.Contains(named, m[1]) {
			t.Errorf("the head does not name the verb %q", m[1])
		}
	}
}
