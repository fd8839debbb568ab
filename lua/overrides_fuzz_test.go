package lua_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// FuzzForeignOverridesAreRefused stores arbitrary bytes under the key, and makes a call of any verb
// with any arguments. Either the reply is an error and the value stays, or the bytes could be a
// record. Then the reply is one that the header of the script allows, and the value is a record
// with the override.
func FuzzForeignOverridesAreRefused(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(overridesGrow(f, seed), uint8(seed), int64(seed)*500-1000, "alice", "60000", "60000 100 1000 5", "why", "ann")
	}
	f.Add([]byte("hello"), uint8(0), int64(0), "", "soon", "60000  100", "", "\xff")
	f.Add([]byte{}, uint8(0), int64(1)<<40, "~x", "1e3", "60000 9007199254740993", "\n", "")
	client := redistest.Client(f)
	f.Fuzz(func(t *testing.T, value []byte, verb uint8, ahead int64, tag, ttl, what, why, by string) {
		srv := overrides.on(t, client)
		srv.form = script.spied
		defer srv.eval(`return redis.call('DEL', KEYS[1])`)
		now := digits((midnight + ahead) & (overrides.never - 1))
		srv.meetsOverrides(string(value), [][]string{{"set", now, tag, ttl, what, why, by}, {"end", now, tag}, {"list", now, ttl}}[verb%3])
	})
}

// TestMutatedOverrides changes some bytes of valid records and arguments, and makes calls of any
// verb.
func TestMutatedOverrides(t *testing.T) {
	srv := overrides.on(t, redistest.Client(t))
	srv.form = script.spied
	r := rand.New(rand.NewPCG(6, 1))
	for seed := range uint64(max(1, *mutations/100)) {
		record := overridesGrow(t, seed)
		for range 100 {
			args := overrideCalls()[[]string{"set", "end", "list"}[r.IntN(3)]]
			if i := r.IntN(2 * len(args)); i < len(args) {
				args[i] = mutated(r, args[i])
			}
			srv.meetsOverrides(mutated(r, string(record)), args)
		}
	}
}

// mutated returns a text with up to three of its bytes changed.
func mutated(r *rand.Rand, text string) string {
	b := []byte(text)
	for range r.IntN(4) {
		b[r.IntN(len(b))] += byte(1 + r.IntN(255))
	}
	return string(b)
}

// overridesGrow returns a record with some overrides.
func overridesGrow(tb testing.TB, seed uint64) []byte {
	tb.Helper()
	ask, record := overrides.onRedis(tb), ""
	for i := range 1 + seed {
		what := []string{"block", "unlimited", "60000 100 1000 5"}[(seed+i)%3]
		record = ask(tb, "set", overrides.at("1s"), fmt.Sprint("event ", i), digits(int64(1+i)*1000), what, "a reason", strings.Repeat("x", int(i))).stored
	}
	return []byte(record)
}

// meetsOverrides makes a call, whatever the key holds. The spy reports writes before an error, a
// second write, and numbers that are not integers.
func (s server) meetsOverrides(value string, args []string) {
	s.Helper()
	s.put(value)
	before := s.state()
	a := read(s, []string{s.key}, s.call(args...))[0]
	if a.err != "" {
		if after := s.state(); after != before || !strings.HasPrefix(a.err, "SLIDEGATE key KEY") && !strings.Contains(a.err, "attempt to perform arithmetic on") {
			s.Fatalf("%x: %q: %s, and it turned %s into %s", value, args, a.err, before, after)
		}
		return
	}
	all, isRecord := readOverrides(a.stored)
	held, found := all[args[2]]
	switch {
	case a.wrote == "SET" && !isRecord, a.wrote == "" && a.stored != value, a.wrote == "DEL" && a.stored != "":
		s.Errorf("%x: %q: %s leaves %x", value, args, a.wrote, a.stored)
	case args[0] == "set" && (!found || a.wrote != "SET" || a.reply[0] != 1 || held.what != args[4] || held.why != args[5] || held.by != args[6]):
		s.Errorf("%x: %q = %v, and leaves %+v", value, args, a.reply, all)
	case args[0] == "end" && (a.reply[0] > 1 || a.wrote != "" && found || (a.reply[0] == 1) != (a.wrote != "")):
		s.Errorf("%x: %q = %v, and leaves %+v", value, args, a.reply, all)
	case args[0] == "list" && (a.wrote != "" || int64(len(a.texts)) != 4*a.reply[0] && len(a.texts) > 0):
		s.Errorf("%x: %q = %v, %q", value, args, a.reply, a.texts)
	}
	for _, n := range a.reply {
		if n < 0 || n > 1<<53 {
			s.Errorf("%x: %q = %v", value, args, a.reply)
		}
	}
}

// readOverrides returns the overrides of a record by their tags. It knows the format independently,
// and reports false if the record does not fit.
func readOverrides(record string) (all map[string]override, fits bool) {
	defer func() { fits = recover() == nil }()
	all = map[string]override{}
	rest := []byte(record)
	if rest[0] != 216 {
		panic("not this format")
	}
	for rest = rest[8:]; len(rest) > 0; {
		o, at := override{since: uint48(rest), till: uint48(rest[6:])}, 20
		text := func(i int) string {
			n := int(uintOf(rest[12+2*i : 14+2*i]))
			at += n
			return string(rest[at-n : at])
		}
		tag := text(0)
		o.what, o.why, o.by = text(1), text(2), text(3)
		all[tag], rest = o, rest[at:]
	}
	return all, true
}
