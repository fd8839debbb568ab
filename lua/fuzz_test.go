package lua_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/redistest"
)

// FuzzForeignValueIsRefused stores any bytes under the key, and calls any verb. Either the reply is
// an error that names the key and leaves the value as it is, or the bytes could be a record. Then
// no limit admits more than its Max.
func FuzzForeignValueIsRefused(f *testing.F) { window.meetsAny(f) }

// FuzzForeignLevelIsRefused does the same for ar1.
func FuzzForeignLevelIsRefused(f *testing.F) { ar1.meetsAny(f) }

// meetsAny is the fuzz target of a script. ahead is in its unit of time.
func (s script) meetsAny(f *testing.F) {
	for i, value := range s.seeds(f) {
		f.Add(value, uint8(i), uint8(i), int64(0))
		f.Add(value, uint8(i), uint8(i), s.instant("-40s")-s.midnight())
		f.Add(value, uint8(i/6), uint8(i/6), s.instant("59.5s")-s.midnight())
	}
	client := redistest.Client(f)
	f.Fuzz(func(t *testing.T, value []byte, verb, units uint8, ahead int64) {
		srv := s.on(t, client)
		defer srv.eval(`return redis.call('DEL', KEYS[1])`)
		srv.put(string(value))
		now := (s.midnight() + ahead) & (s.never - 1)
		srv.meets(verbs[int(verb)%len(verbs)], digits(now), int64(1+units%5))
	})
}

// fuzzed are the limits of the calls.
var fuzzed = []string{"5/5s@1s", "20/1m@1ms", "300/1h@1m"}

// seeds returns all records of the histories, except the largest, and values that are not records.
func (s script) seeds(f *testing.F) (values [][]byte) {
	f.Helper()
	seen := map[string]bool{"": true, "hello": true, `{"count":1}`: true, "\x80\x01\x8b\xd0\x47\x10\x00": true}
	for _, file := range s.histories() {
		ask := s.onRedis(f)
		s.play(f, file, func(tb testing.TB, args ...string) answer {
			a := ask(tb, args...)
			seen[a.stored] = len(a.stored) < 100
			return a
		})
	}
	for _, value := range slices.Sorted(maps.Keys(seen)) {
		if seen[value] {
			values = append(values, []byte(value))
		}
	}
	return values
}

// meets makes a call, whatever the key holds.
func (s server) meets(verb, now string, units int64) {
	s.Helper()
	before := s.state()
	reply, err := s.call(s.dated(verb, now, digits(units), fuzzed...)...).AsIntSlice()
	if err != nil {
		if _, ok := rueidis.IsRedisErr(err); !ok || !strings.HasPrefix(err.Error(), "SLIDEGATE key "+s.key) {
			s.Errorf("%s: %v", verb, err)
		}
		if after := s.state(); after != before {
			s.Errorf("%s turned %s into %s, and says %v", verb, before, after, err)
		}
		return
	}
	if slices.Contains([]string{"allow", "count", "peek", "some", "each"}, verb) && reply[0] > 0 {
		for i, used := range reply[2:] {
			if most := []int64{5, 20, 300}[i/3%3]; i%3 == 0 && (used < 0 || used > most) {
				s.Errorf("%s admits %d of %d in %s", verb, used, most, before)
			}
		}
	}
}
