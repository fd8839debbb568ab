package lua_test

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// FuzzForeignValueIsRefused stores arbitrary bytes under the key, and calls any verb. Either the
// reply is an error that names the key and leaves the value as it is, or the bytes could be a
// record. Then the reply is one that the header of the script allows.
func FuzzForeignValueIsRefused(f *testing.F) { window.meetsAny(f) }

// FuzzForeignLevelIsRefused is FuzzForeignValueIsRefused for ar1.
func FuzzForeignLevelIsRefused(f *testing.F) { ar1.meetsAny(f) }

// meetsAny is the fuzz target of a script. ahead is in the script's unit of time.
func (s script) meetsAny(f *testing.F) {
	for i, value := range s.seeds(f) {
		f.Add(value, uint8(i), uint8(i), int64(0))
		f.Add(value, uint8(i), uint8(i), s.instant("-40s")-s.midnight())
		f.Add(value, uint8(i/6), uint8(i/6), s.instant("59.5s")-s.midnight())
	}
	client := redistest.Client(f)
	f.Fuzz(func(t *testing.T, value []byte, verb, units uint8, ahead int64) {
		srv := s.on(t, client)
		srv.form = script.spied
		defer srv.eval(`return redis.call('DEL', KEYS[1])`)
		now := (s.midnight() + ahead) & (s.never - 1)
		srv.meets(string(value), s.dated(s.verbs[int(verb)%len(s.verbs)], digits(now), digits(int64(1+units%5)), fuzzed...))
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

var mutations = flag.Int("mutations", 2000, "how many calls TestMutatedRecords makes to each script")

// event is an event with random limits, and a clock that only the test moves. Its random numbers
// are the same in every run.
type event struct {
	script
	judge
	*rand.Rand
	limits []string
	max    int64 // the smallest Max
	per    int64 // the longest Per, in ms
	now    int64 // in the unit of the script
}

// events runs a test for some random events of a script.
func (s script) events(t *testing.T, n int, test func(tb testing.TB, e *event)) {
	for seed := range redistest.Share(n) {
		e := &event{script: s, judge: s.onRedis(t), Rand: rand.New(rand.NewPCG(1, uint64(seed))), max: math.MaxInt64, now: s.midnight()}
		for i := range 1 + e.IntN(3) {
			e.limit(10 * math.Pow(100, float64(i)))
		}
		test(t, e)
	}
}

// limit adds a limit whose Per is about ms.
func (e *event) limit(ms float64) {
	per, most := int64(ms*(1+50*e.Float64())), int64(math.Pow(1000, e.Float64()))
	e.limits = append(e.limits, fmt.Sprintf("%d/%dms@%dms", most, per, 1+per*e.Int64N(2)/10))
	e.max, e.per = min(e.max, most), max(e.per, per)
}

// ask makes a call now.
func (e *event) ask(tb testing.TB, verb string, units int64) answer {
	tb.Helper()
	a := e.judge(tb, e.dated(verb, digits(e.now), digits(units), e.limits...)...)
	if a.err != "" {
		tb.Fatalf("%s %d under %q: %s", verb, units, e.limits, a.err)
	}
	return a
}

// wait lets some ms pass.
func (e *event) wait(ms int64) { e.now += ms * int64(time.Millisecond/e.unit) }

// TestMutatedRecords changes some bytes of valid records, and makes calls of any verb. Each reply
// must be an error that names the key, or a reply that the header of the script allows. In a call
// for several events, the reply for the event must be the same, and the other events must be
// decided. The long form takes some minutes: go test ./lua -run MutatedRecords -mutations 600000.
func TestMutatedRecords(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		srv := s.on(t, redistest.Client(t))
		srv.form = script.spied
		s.events(t, *mutations/200, func(tb testing.TB, e *event) {
			for i, record := 0, ""; i < 200; i++ {
				if i%20 == 0 {
					record = e.grows(tb)
				}
				srv.meets(e.mutated(record), e.anyCall())
			}
		})
	})
}

// grows counts units a few times, occasionally very many, and returns the record.
func (e *event) grows(tb testing.TB) (record string) {
	tb.Helper()
	most := int64(10)
	if e.IntN(4) == 0 {
		most = e.most >> (5 + e.IntN(40))
	}
	for range 1 + e.IntN(12) {
		e.wait(e.Int64N(1 + e.per/20))
		record = e.ask(tb, "countsome", 1+e.Int64N(1+most)).stored
	}
	return record
}

// mutated returns the record with one to three of its bytes changed.
func (e *event) mutated(record string) string {
	b := []byte(record)
	for range 1 + e.IntN(3) {
		b[e.IntN(len(b))] += byte(1 + e.IntN(255))
	}
	return string(b)
}

// anyCall returns the arguments of a call under some of the limits, at a time up to the longest Per
// before or after now.
func (e *event) anyCall() []string {
	verb, limits, around := e.verbs[e.IntN(len(e.verbs))], e.limits[:1+e.IntN(len(e.limits))], e.per*int64(time.Millisecond/e.unit)
	args := e.dated(verb, digits(e.now+e.Int64N(2*around)-around), digits(1+e.Int64N(e.max)), limits...)
	if verb == "refund" {
		args[len(args)-1] = digits(e.now - e.Int64N(around))
	}
	return args
}

// meets makes a call, whatever the key holds. The spy reports writes before an error, and numbers
// that are not integers.
func (s server) meets(value string, args []string) {
	s.Helper()
	s.put(value)
	a := read(s, []string{s.key}, s.call(args...))[0]
	if s.groups(args[0]) {
		s.meetsAmongOthers(value, args, a)
	}
	if strings.HasPrefix(a.err, "SLIDEGATE key KEY") {
		return
	}
	if a.err != "" {
		s.Fatalf("%x: %q: %s", value, args, a.err)
	}
	if err := s.plausible(args, a.reply); err != nil {
		s.Errorf("%x: %q = %v: %v", value, args, a.reply, err)
	}
	if a.wrote == "SET" && !s.fits(a.stored) {
		s.Errorf("%x: %q leaves %x, which is not a record", value, args, a.stored)
	}
}

// meetsAmongOthers makes the same call for three events. The event whose key holds the value must
// get the same answer. The other events are new, so they must be allowed.
func (s server) meetsAmongOthers(value string, args []string, want answer) {
	s.Helper()
	s.put(value)
	names := []string{s.key + ":before", s.key, s.key + ":after"}
	defer s.client.Do(s.Context(), s.client.B().Del().Key(names[0], names[2]).Build())
	all := read(s, names, s.callOn(names, withUnits(args, args[2], args[2], args[2])))
	if diff := cmp.Diff(want, all[1], cmp.AllowUnexported(answer{})); diff != "" {
		s.Errorf("%x: %q (-alone +among others)\n%s", value, args, diff)
	}
	granted, write := "1", "SET"
	if singles[args[0]] != "" {
		granted = args[2]
	} else if args[0] == "peek" {
		write = ""
	}
	if before := all[0]; before.err != "" || digits(before.reply[0]) != granted || before.wrote != write || !reflect.DeepEqual(before, all[2]) {
		s.Errorf("%x: %q: the events before and after it: %+v, %+v", value, args, before, all[2])
	}
}

// fits reports whether a value has the layout of a record.
func (s script) fits(value string) (fits bool) {
	defer func() { fits = recover() == nil }()
	s.layout(value)
	return true
}

// plausible returns an error if the header of the script does not allow the reply.
func (s script) plausible(args []string, reply []int64) error {
	verb, n, rows := args[0], must(strconv.ParseInt(args[2], 10, 64)), reply[min(2, len(reply)):]
	if verb == "refund" || verb == "reset" {
		n = 1
	}
	if reply[0] < 0 || reply[0] > n {
		return fmt.Errorf("%d of %d", reply[0], n)
	}
	for call := int64(0); len(rows) > 0 && (call == 0 || verb != "inspect"); call++ {
		var longest int64
		for limit := range slices.Chunk(args[3:], s.limited) {
			if err := s.inRange(limit, rows, reply[0] > 0 && !strings.HasPrefix(singles[verb], "count")); err != nil {
				return err
			}
			longest, rows = max(longest, rows[1]), rows[3:]
			if verb == "inspect" {
				_, taken := s.details(s, rows)
				rows = rows[taken:]
			}
		}
		denied := call >= reply[0]
		if verb == "some" || verb == "countsome" {
			denied = reply[0] < n
		}
		if denied && longest < 1 && verb != "inspect" {
			return fmt.Errorf("a denial whose wait is %d ms", longest)
		}
	}
	return nil
}

// inRange returns an error if the first row of rows is out of range for the limit. If the clock
// stepped back, a wait can be twice as long as the time for which the limit remembers units.
func (s script) inRange(limit []string, rows []int64, allowed bool) error {
	per, most := must(strconv.ParseInt(limit[0], 10, 64)), must(strconv.ParseInt(limit[1], 10, 64))
	longest := 2 * s.life(per, float64(2*s.most))
	if !allowed {
		most = 1 << 53
	}
	if used, wait, reset := rows[0], rows[1], rows[2]; min(used, wait, reset) < 0 || used > most || max(wait, reset) > longest {
		return fmt.Errorf("%d used, again in %d ms, clear in %d ms, under %q", used, wait, reset, limit)
	}
	return nil
}
