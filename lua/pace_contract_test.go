package lua_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// paceCalls returns valid calls of each verb, under two limits.
func paceCalls() map[string][]string {
	limits := []string{"1000", "5", "60000", "300"}
	call := func(verb string, last ...string) []string {
		return slices.Concat([]string{verb, pace.at("2s"), "1"}, limits, last)
	}
	return map[string][]string{
		"book": call("book", "10000", "1"), "cancel": call("cancel", pace.at("1s"), "0"), "pause": call("pause", "1000"),
		"due": call("due"), "inspect": call("inspect"), "reset": call("reset"),
	}
}

// paceRecordOf returns the record that bookings under two limits and a pause leave.
func paceRecordOf(t *testing.T) string {
	t.Helper()
	ask := pace.onRedis(t)
	ask(t, "book", pace.at("0s"), "3", "1000", "5", "60000", "300", "10000", "2")
	ask(t, "pause", pace.at("100ms"), "1", "100")
	return ask(t, "book", pace.at("100ms"), "2", "1000", "5", "10000", "1").stored
}

// TestPaceBadArguments checks that each verb rejects every invalid argument, for a new event and
// for a known one. Nothing is written.
func TestPaceBadArguments(t *testing.T) {
	srv := pace.on(t, redistest.Client(t))
	bad := maps.Clone(pace.badCalls())
	delete(bad, "32 limits")
	for _, i := range []int{3, 5} {
		for name, value := range map[string]string{"Per 0": "0", "a fraction of Per": "1.5", "Per above 2^44": "17592186044417", "the reserved Per": "4294967295", "Per not a number": "nan"} {
			bad[fmt.Sprint(name, i)] = change(i, value)
		}
		for name, value := range map[string]string{"Max 0": "0", "a fraction of Max": "5.5", "a Max above 2^53": "9007199254740994", "Max without end": "inf"} {
			bad[fmt.Sprint(name, i)] = change(i+1, value)
		}
	}
	bad["two limits of one Per"] = change(5, "1000")
	bad["32 limits"] = func(args []string) []string { return slices.Insert(args, 3, pace.many(30)...) }
	for _, value := range []string{"", paceRecordOf(t)} {
		for verb, args := range paceCalls() {
			for name, spoil := range bad {
				srv.refuses(name, value, spoil(slices.Clone(args)))
			}
			if verb == "inspect" {
				srv.refuses("units over a Max", value, change(2, "6")(slices.Clone(args)))
			}
			if verb == "book" {
				srv.refuses("too many turns", value, change(2, "4097")(slices.Clone(args)))
			}
			if verb == "book" || verb == "cancel" {
				srv.refuses("no limit", value, slices.Delete(slices.Clone(args), 3, 7))
			}
		}
		for verb, last := range map[string][][]string{
			"book":   {{"-1", "1"}, {"1.5", "1"}, {"17592186044417", "1"}, {"nan", "1"}, {"1", "0"}, {"1", "6"}, {"1", "1.5"}, {"1", "nan"}, {"1", "one"}},
			"cancel": {{"-1", "0"}, {"1.5", "0"}, {"281474976710656", "0"}, {"1", "-1"}, {"1", "0.5"}, {"1", "281474976710656"}, {"1", "nan"}},
			"pause":  {{"-1"}, {"1.5"}, {"17592186044417"}, {"nan"}, {"long"}},
		} {
			for _, words := range last {
				args := paceCalls()[verb]
				srv.refuses("last arguments", value, append(args[:len(args)-len(words)], words...))
			}
		}
	}
}

// TestPaceForeignValues checks that each verb rejects a value that is not a record of pace.lua, and
// leaves it unchanged. Only reset forgets a value that starts like a record.
func TestPaceForeignValues(t *testing.T) {
	srv, r := pace.on(t, redistest.Client(t)), paceRecordOf(t)
	values := map[string]string{
		"text": "hello", "long text": strings.Repeat("hello", 9), "empty": "", "NULs": strings.Repeat("\x00", 40), "0xff": strings.Repeat("\xff", 40),
		"a byte more": r + "\x00", "a section more": r[:1] + "\x03" + r[2:], "a section less": r[:1] + "\x01" + r[2:],
		"two sections of one Per":  "\xf8\x02" + r[2:14] + strings.Repeat("\x00\x00\x00\x00\xea\x60", 2),
		"Per 0":                    "\xf8\x01" + r[2:14] + "\x00\x00\x00\x00\x00\x00",
		"unknown flag":             "\xf8\x01" + r[2:14] + "\x40\x00\x00\x00\xea\x60",
		"a Resolution":             "\xf8\x01" + r[2:14] + "\x08\x00\x00\x00\xea\x60" + "\x00\x00\x00\x00\x07\xd0",
		"a bucket after the floor": "\xf8\x01" + r[2:14] + "\x10\x00\x00\x00\xea\x60" + "\xff\xff\xff\xff\xff\xff",
		"no units":                 "\xf8\x01" + r[2:14] + "\x01\x00\x00\x00\xea\x60" + "\x00\x00",
		"window":                   window.record(t), "ar1": ar1.record(t),
	}
	for i := range r {
		values[fmt.Sprintf("cut to %d bytes", i)] = r[:i]
	}
	for name, value := range values {
		for verb, args := range paceCalls() {
			srv.put(value)
			if begins := len(value) >= 14 && value[0] == 248 || len(value) >= 26 && value[0] == 249; verb != "reset" || !begins {
				srv.leaves(name, args)
			} else if got := must(srv.call(args...).AsIntSlice()); got[0] != 1 || srv.state() != `["" "-2"]` {
				t.Errorf("%s: reset replies %v, and leaves %s", name, got, srv.state())
			}
		}
	}
	for _, command := range []string{"'RPUSH', KEYS[1], 1", "'HSET', KEYS[1], 1, 1"} {
		srv.eval(`redis.call('DEL', KEYS[1]) return redis.call(` + command + `)`)
		for _, args := range paceCalls() {
			srv.leaves(command, args)
		}
	}
}

// TestPaceExtremes checks that the largest numbers that the header allows are accepted.
func TestPaceExtremes(t *testing.T) {
	ask, last, most := pace.onRedis(t), digits(pace.never-1), "9007199254740992"
	const per = "17592186044416"
	for _, want := range []int64{1, 1, 0} {
		if a := ask(t, "book", last, "1", per, most, per, most); a.err != "" || a.reply[0] != want {
			t.Fatalf("a booking returns %+v", a)
		}
	}
	for _, args := range [][]string{{"pause", last, "1", per}, {"cancel", last, most, per, most, digits(pace.never - 1), "0"}, {"inspect", last, most, per, most}, {"reset", last, "1"}} {
		if a := ask(t, args...); a.err != "" {
			t.Errorf("%q returns %s", args, a.err)
		}
	}
}

// TestPaceManyLimits checks that a record holds 31 limits, and no more.
func TestPaceManyLimits(t *testing.T) {
	ask := pace.onRedis(t)
	book := func(limits []string) answer {
		return ask(t, slices.Concat([]string{"book", pace.at("0s"), "1"}, limits, []string{"100000", "1"})...)
	}
	all := func(from, to int) (limits []string) {
		for per := from; per < to; per++ {
			limits = append(limits, digits(int64(per)*1000), "9")
		}
		return limits
	}
	if a := book(all(1, 32)); a.err != "" || len(readPace(a.stored).sections) != 31 {
		t.Errorf("31 limits: %s", a.err)
	}
	if a := book(all(2, 33)); !strings.HasPrefix(a.err, "SLIDEGATE key KEY would count for more than 31 limits") || a.wrote != "" {
		t.Errorf("one more: %q, and it executes %q", a.err, a.wrote)
	}
}

// TestPaceServerTime checks calls without a time: they must use the server's time, and the key must
// expire when its last unit is forgotten.
func TestPaceServerTime(t *testing.T) {
	srv := pace.on(t, redistest.Client(t))
	const clock = `local t = redis.call('TIME') return math.floor((t[1] * 1000000 + t[2]) / 1000)`
	for _, args := range [][]string{
		{"book", "", "3", "600000", "1", "10000000", "1"}, {"pause", "", "1", "50"}, {"due", "", "1"}, {"inspect", "", "1"}, {"cancel", "", "1", "600000", "1", "1", "0"},
	} {
		before := must(srv.eval(clock).AsInt64())
		reply := must(srv.call(args...).AsIntSlice())
		if after := must(srv.eval(clock).AsInt64()); reply[1] < before || reply[1] > after {
			t.Errorf("%s is dated %d, but it was %d to %d", args[0], reply[1], before, after)
		}
	}
	if left := must(srv.eval(`return redis.call('PTTL', KEYS[1])`).AsInt64()); left < 1_700_000 || left > 1_800_050 {
		t.Errorf("the key lives for %d ms", left)
	}
}
