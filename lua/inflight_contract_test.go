package lua_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// heldCalls returns valid calls of each verb.
func heldCalls() map[string][]string {
	now := inflight.at("2s")
	return map[string][]string{
		"acquire": {"acquire", now, "10000", "lease-00", "1", "5", "pod-1"},
		"renew":   {"renew", now, "10000", "lease-00", "1", "5", inflight.at("1s"), "lease-01", "2", "5", inflight.at("1s"), "pod-1"},
		"release": {"release", now, "lease-00", "1", "lease-01", "2"},
		"inspect": {"inspect", now},
		"reset":   {"reset", now},
	}
}

// putHeld leaves a record of two leases under the key.
func (s server) putHeld() {
	s.Helper()
	s.eval(`return redis.call('DEL', KEYS[1])`)
	must("", s.call("acquire", inflight.at("1s"), "10000", "lease-00", "1", "5", "pod-1").Error())
	must("", s.call("acquire", inflight.at("1s"), "20000", "lease-01", "2", "5").Error())
	s.eval(`return redis.call('PERSIST', KEYS[1])`) // a later write adds an expiry, which state shows
}

// refusesHeld checks that a call is rejected for a new event and for a known one. Nothing is
// written.
func (s server) refusesHeld(name string, args []string) {
	s.Helper()
	for _, put := range []func(){func() { s.eval(`return redis.call('DEL', KEYS[1])`) }, s.putHeld} {
		put()
		s.rejects(name, args)
	}
}

// TestInflightBadArguments checks that each verb rejects every invalid argument, for a new event
// and for a known one. Nothing is written.
func TestInflightBadArguments(t *testing.T) {
	srv := inflight.on(t, redistest.Client(t))
	type bad struct {
		verb, name string
		at         int
		values     []string
	}
	lease := func(verb string, first int) []bad {
		return []bad{
			{verb, "an id", first, []string{"", "lease-0", "lease-000"}},
			{verb, "units", first + 1, []string{"0", "-1", "1.5", "1001", "nan", "many", ""}},
		}
	}
	all := slices.Concat(lease("acquire", 3), lease("renew", 3), lease("renew", 7), lease("release", 2), lease("release", 4), []bad{
		{"acquire", "a Max", 5, []string{"0", "1001", "1.5", "nan", "inf", ""}},
		{"renew", "a Max", 5, []string{"0", "1001", "2.5"}},
		{"renew", "a token", 6, []string{"0", "-1", "1.5", "9000000000000001", "nan", "soon"}},
		{"acquire", "a holder", 6, []string{strings.Repeat("x", 33)}},
		{"renew", "a holder", 11, []string{strings.Repeat("x", 33)}},
	})
	for verb := range heldCalls() {
		all = append(all, bad{verb, "the time", 1, []string{"0", "-1", "1.5", "9000000000000001", "nan", "noon"}},
			bad{verb, "the verb", 0, []string{"", "ACQUIRE", "borrow"}})
		if verb == "acquire" || verb == "renew" {
			all = append(all, bad{verb, "a TTL", 2, []string{"0", "-1", "0.5", "4294967297", "nan", "long", ""}})
		}
	}
	for _, b := range all {
		for _, value := range b.values {
			srv.refusesHeld(b.verb+": "+b.name, change(b.at, value)(slices.Clone(heldCalls()[b.verb])))
		}
	}
	for verb, args := range heldCalls() {
		srv.refusesHeld(verb+": an argument more", append(slices.Clone(args), "1"))
	}
	now := inflight.at("2s")
	srv.refusesHeld("renew: no lease", []string{"renew", now, "10000"})
	srv.refusesHeld("renew: no lease", []string{"renew", now, "10000", "pod-1"})
	srv.refusesHeld("renew: half a lease", []string{"renew", now, "10000", "lease-00", "1"})
	srv.refusesHeld("release: no lease", []string{"release", now})
	srv.refusesHeld("release: half a lease", []string{"release", now, "lease-00"})
	srv.refusesHeld("acquire: two leases", []string{"acquire", now, "10000", "lease-00", "1", "5", "lease-01", "1", "5"})
	many := []string{"release", inflight.at("2s")}
	for i := range 2 {
		many = append(many, fmt.Sprintf("lease-%02d", i), "501")
	}
	srv.refusesHeld("too many units", many)
}

// TestInflightForeignValues checks that each verb rejects a value that is not a record of
// inflight.lua, and leaves it unchanged.
func TestInflightForeignValues(t *testing.T) {
	srv := inflight.on(t, redistest.Client(t))
	head := func(birth, longest string) string { return `'\200` + birth + longest + `'` }
	birth, longest := `\0\0\0\0\0\0\9`, `\0\0\0\0\39\16`
	for name, command := range map[string]string{
		"a string":                `'SET', KEYS[1], 'hello'`,
		"a list":                  `'RPUSH', KEYS[1], 1`,
		"a hash":                  `'HSET', KEYS[1], 1, 1`,
		"a sorted set":            `'ZADD', KEYS[1], 1, 'hello'`,
		"14 bytes":                `'ZADD', KEYS[1], -1, 'hello, world!!'`,
		"leases without a head":   `'ZADD', KEYS[1], -9, 'lease-00', 9, 'lease-00\0\0'`,
		"a format to come":        `'ZADD', KEYS[1], -9, '\201` + birth + longest + `'`,
		"a head that is cut":      `'ZADD', KEYS[1], -9, '\200` + birth + `'`,
		"no birth":                `'ZADD', KEYS[1], -9, ` + head(`\0\0\0\0\0\0\0`, longest),
		"a birth after the token": `'ZADD', KEYS[1], -8, ` + head(birth, longest),
		"no TTL":                  `'ZADD', KEYS[1], -9, ` + head(birth, `\0\0\0\0\0\0`),
		"a TTL that is too long":  `'ZADD', KEYS[1], -9, ` + head(birth, `\0\1\0\0\0\1`),
		"a token that is none":    `'ZADD', KEYS[1], -9.5, ` + head(birth, longest),
		"a token without end":     `'ZADD', KEYS[1], '-inf', ` + head(birth, longest),
		"a token above 2^53":      `'ZADD', KEYS[1], '-9007199254740994', ` + head(birth, longest),
	} {
		srv.eval(`redis.call('DEL', KEYS[1]) return redis.call(` + command + `)`)
		for _, args := range heldCalls() {
			srv.leaves(name, args)
		}
	}
}

// TestInflightAnyMembers adds and changes members of records at random, which no client should do.
// Each call must return integers, or an error that names the key.
func TestInflightAnyMembers(t *testing.T) {
	r, srv := rand.New(rand.NewPCG(7, 1)), inflight.on(t, redistest.Client(t))
	script := rueidis.NewLuaScript(strings.Replace(setSpySource, "--SCRIPT--", inflight.source, 1))
	for range redistest.UnlessShort(40, 10) {
		srv.putHeld()
		for range 30 {
			name := []string{"lease-00", "lease-01", "lease-00\x00\x00", "lease-01\x00\x01", "lease-07\x00\x00", "x", "lease-01\x00\x00pod-9"}[r.IntN(7)]
			if r.IntN(4) == 0 {
				name = string([]byte{byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256)), 0, 0, 0, 0, 0, 0, 0}[:r.IntN(11)])
			}
			score := []string{"-inf", "0", "-5", "7", inflight.at("1s"), inflight.at("11s"), "-" + inflight.at("1s")}[r.IntN(7)]
			srv.eval(`return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])`, score, name)
			for _, args := range heldCalls() {
				if args[0] == "reset" {
					continue
				}
				err := script.Exec(t.Context(), srv.client, []string{srv.key}, args).Error()
				if e, ok := rueidis.IsRedisErr(err); ok && !strings.HasPrefix(e.Error(), "SLIDEGATE key "+srv.key) {
					t.Fatalf("%q after %q at %s: %v", args, name, score, err)
				}
			}
		}
	}
}

// TestInflightExtremes checks that the largest numbers that the header allows are accepted, and
// that an event can hold 1000 units, in one lease or in many. A new lease must drop a thousand
// leases that have ended.
func TestInflightExtremes(t *testing.T) {
	srv, last, ttl := inflight.on(t, redistest.Client(t)), "9000000000000000", "4294967296"
	replies := func(want string, args ...string) {
		t.Helper()
		reply, err := srv.call(args...).AsIntSlice()
		if got := strings.Trim(fmt.Sprint(reply), "[]"); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%.40q returns %.80s, %v, not %s", args, got, err, want)
		}
	}
	renew, release := []string{"renew", last, ttl}, []string{"release", last}
	for i := range 1000 {
		id := fmt.Sprintf("lease%03d", i)
		replies("1 ", "acquire", last, ttl, id, "1", "1000", strings.Repeat("h", 32))
		renew, release = append(renew, id, "1", "1000", "1"), append(release, id, "1")
	}
	replies("0 9000000000000000 1000 0 4294967296", "acquire", last, ttl, "one-more", "1", "1000")
	replies("1000 9000000000000000 1000 1 1 1", renew...)
	if parts, err := srv.call("inspect", last).ToArray(); err != nil || len(parts) != 6+5*1000 {
		t.Errorf("inspect replies %d parts, %v", len(parts), err)
	}
	replies("1000 9000000000000000 0", release...)
	replies("1 9000000000000000 1000 ", "acquire", last, ttl, "one-more", "1000", "1000")
	replies("0 1 1000 0 4294967296", "acquire", "1", "1", "lease001", "1", "1000")
	replies("1 9000000000000000 1 9000000000001001 0", "acquire", last, "1", "lease001", "1", "1")
	if members := must(srv.eval(`return redis.call('ZCARD', KEYS[1])`).AsInt64()); members != 3 {
		t.Errorf("%d members remain", members)
	}
}

// TestInflightServerTime checks calls without a time: they must use the server's time, and the key
// must live ten minutes longer than the longest TTL.
func TestInflightServerTime(t *testing.T) {
	srv := inflight.on(t, redistest.Client(t))
	const anyBytes = "\x00\x01\r\n\xff'\"\\"
	const clock = `local t = redis.call('TIME') return string.format('%.0f', t[1] * 1000000 + t[2])`
	for _, args := range [][]string{
		{"acquire", "", "5000", anyBytes, "2", "3"},
		{"acquire", "", "5000", "lease-00", "2", "3"},
		{"renew", "", "4000", anyBytes, "2", "3", "1"},
		{"release", "", anyBytes, "2"},
		{"inspect", ""},
	} {
		before := must(srv.eval(clock).ToString())
		reply := must(srv.call(args...).AsIntSlice())
		if after := must(srv.eval(clock).ToString()); digits(reply[1]) < before || digits(reply[1]) > after {
			t.Errorf("%s is dated %d, but it was %s to %s", args[0], reply[1], before, after)
		}
		if want := map[string]int64{"acquire": reply[0], "renew": 1, "release": 1}[args[0]]; reply[0] != want {
			t.Errorf("%q replies %v", args, reply)
		}
	}
	if left := must(srv.eval(`return redis.call('PTTL', KEYS[1])`).AsInt64()); left <= 500_000 || left > 605_000 {
		t.Errorf("the key lives for %d ms", left)
	}
}

// TestInflightFullMemory fills the memory of a server. Renewals, releases and a repeated acquire
// must succeed, and so must the renewal of a lease whose record was lost. A new lease must be
// rejected, and nothing be written for it.
func TestInflightFullMemory(t *testing.T) {
	redis := redistest.Start(t)
	srv := inflight.on(t, redis.Client(t))
	srv.putHeld()
	must("", redis.Do(t.Context(), "CONFIG", "SET", "maxmemory", "1").Error())
	at := inflight.at("2s")
	before := srv.state()
	if err := srv.call("acquire", at, "10000", "lease-02", "1", "5").Error(); err == nil || !strings.Contains(err.Error(), "OOM ") {
		t.Errorf("a new lease: %v", err)
	}
	if after := srv.state(); before != after {
		t.Errorf("a refused lease leaves %s", after)
	}
	for _, args := range [][]string{
		{"acquire", at, "10000", "lease-00", "1", "5"}, {"renew", at, "30000", "lease-01", "2", "5", "1"}, {"release", at, "lease-01", "2"},
	} {
		if reply, err := srv.call(args...).AsIntSlice(); err != nil || reply[0] != 1 {
			t.Errorf("%s replies %v, %v", args[0], reply, err)
		}
	}
	if reply, err := srv.call("acquire", inflight.at("-90s"), "10000", "lease-03", "5", "5").AsIntSlice(); err != nil || reply[0] != 0 {
		t.Errorf("a denial after a step of the clock replies %v, %v", reply, err)
	}
	srv.eval(`return redis.call('DEL', KEYS[1])`)
	if reply, err := srv.call("renew", at, "10000", "lease-00", "1", "5", inflight.at("1s")).AsIntSlice(); err != nil || reply[0] != 1 {
		t.Errorf("a renewal after the record was lost replies %v, %v", reply, err)
	}
	if left := must(srv.eval(`return redis.call('PTTL', KEYS[1])`).AsInt64()); left < 600_000 {
		t.Errorf("its key lives for %d ms", left)
	}
}

// TestInflightBytes measures how much memory events and leases take in the server.
func TestInflightBytes(t *testing.T) {
	redis := redistest.Start(t)
	srv := inflight.on(t, redis.Client(t))
	size := func() int64 {
		return must(redis.Do(t.Context(), "MEMORY", "USAGE", srv.key, "SAMPLES", "0").AsInt64())
	}
	for _, holder := range []string{"", "pod-1234567890"} {
		srv.eval(`return redis.call('DEL', KEYS[1])`)
		for i := range 1000 {
			args := []string{"acquire", "", "10000", fmt.Sprintf("lease%03d", i), "1", "1000", holder}
			must("", srv.call(args...).Error())
			switch i {
			case 0, 9, 99, 999:
				t.Logf("%d leases of %q: %d bytes, %d for each", i+1, holder, size(), size()/int64(i+1))
			}
		}
		if most := int64(len(holder)/14+2) * 120; size()/1000 > most {
			t.Errorf("a lease takes %d bytes, above %d", size()/1000, most)
		}
	}
}

// FuzzForeignMemberIsRefused adds an arbitrary member to a record, and makes a call of any verb.
// Either the reply is an error that names the key and leaves the value as it is, or it consists of
// numbers, as the header of the script says.
func FuzzForeignMemberIsRefused(f *testing.F) {
	for i, name := range []string{"", "lease-00", "lease-00\x00\x00", "lease-09\x00\x00pod-1", "hello, world!!"} {
		f.Add([]byte(name), int64(i-2)*midnight*500, uint8(i))
	}
	client := redistest.Client(f)
	f.Fuzz(func(t *testing.T, name []byte, score int64, verb uint8) {
		srv := inflight.on(t, client)
		defer srv.eval(`return redis.call('DEL', KEYS[1])`)
		srv.putHeld()
		srv.eval(`return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])`, digits(score), string(name))
		before, all := srv.state(), []string{"acquire", "renew", "release", "inspect"}
		args := heldCalls()[all[int(verb)%len(all)]]
		if err := srv.call(args...).Error(); err != nil {
			if !strings.HasPrefix(err.Error(), "SLIDEGATE key "+srv.key) || srv.state() != before {
				t.Errorf("%q after %q at %d: %v, and it leaves %s", args, name, score, err, srv.state())
			}
			return
		}
		reply := must(srv.call(heldCalls()["acquire"]...).AsIntSlice())
		if len(reply) != 5 || reply[0] != 0 && reply[0] != 1 || reply[4] < 0 {
			t.Errorf("after %q at %d, acquire replies %v", name, score, reply)
		}
	})
}
