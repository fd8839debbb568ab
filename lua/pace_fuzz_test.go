package lua_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// FuzzForeignPaceIsRefused stores arbitrary bytes under the key, and makes a call of any verb.
// Either the reply is an error that names the key and leaves the value as it is, or the bytes could
// be a record. Then the reply is one that the header of the script allows.
func FuzzForeignPaceIsRefused(f *testing.F) {
	for seed := range uint64(8) {
		f.Add([]byte(paceGrows(f, seed)), uint8(seed), int64(seed)*500-1000)
	}
	client := redistest.Client(f)
	f.Fuzz(func(t *testing.T, value []byte, verb uint8, ahead int64) {
		srv := pace.on(t, client)
		srv.form = script.spied
		defer srv.eval(`return redis.call('DEL', KEYS[1])`)
		srv.meetsPace(string(value), anyPaceCall(int(verb), (midnight+ahead)&(pace.never-1)))
	})
}

// TestMutatedPaceRecords changes some bytes of valid records, and makes calls of any verb.
func TestMutatedPaceRecords(t *testing.T) {
	srv := pace.on(t, redistest.Client(t))
	srv.form = script.spied
	r := rand.New(rand.NewPCG(3, 1))
	for seed := range uint64(max(1, *mutations/100)) {
		record := paceGrows(t, seed)
		for range 100 {
			b := []byte(record)
			for range 1 + r.IntN(3) {
				b[r.IntN(len(b))] += byte(1 + r.IntN(255))
			}
			srv.meetsPace(string(b), anyPaceCall(r.IntN(99), readPace(record).clock+r.Int64N(4000)-2000))
		}
	}
}

// paceGrows returns the record that some random bookings and pauses leave.
func paceGrows(tb testing.TB, seed uint64) (record string) {
	tb.Helper()
	r, ask, now := rand.New(rand.NewPCG(4, seed)), pace.onRedis(tb), int64(midnight)
	for record == "" || r.IntN(6) > 0 {
		now += r.Int64N(300)
		units := digits(1 + r.Int64N(1+r.Int64N(300)))
		a := ask(tb, "book", digits(now), digits(1+r.Int64N(40)), "1000", "300", "60000", "9007199254740992", "17592186044416", units)
		if record = a.stored; seed%2 == 0 {
			record = ask(tb, "pause", digits(now), "1", digits(1+r.Int64N(900))).stored
		}
	}
	return record
}

// anyPaceCall returns a call of a verb.
func anyPaceCall(verb int, now int64) []string {
	all := []string{"book", "cancel", "pause", "due", "inspect", "reset"}
	args := paceCalls()[all[verb%len(all)]]
	args[1] = digits(now)
	return args
}

// meetsPace makes a call, whatever the key holds. The spy reports a write before an error, and a
// number that is not an integer.
func (s server) meetsPace(value string, args []string) {
	s.Helper()
	s.put(value)
	a := read(s, []string{s.key}, s.call(args...))[0]
	if strings.HasPrefix(a.err, "SLIDEGATE key KEY") {
		return
	}
	if a.err != "" {
		s.Fatalf("%x: %q: %s", value, args, a.err)
	}
	if args[0] == "book" && (a.reply[0] == 1 && len(a.reply) != 6 || a.reply[0] == 0 && a.reply[4] < 1) {
		s.Errorf("%x: %q = %v", value, args, a.reply)
	}
	for _, n := range a.reply {
		if n < 0 || n > 1<<53 {
			s.Errorf("%x: %q = %v", value, args, a.reply)
		}
	}
	if a.wrote == "SET" && !fitsPace(a.stored) {
		s.Errorf("%x: %q leaves %x, which is not a record", value, args, a.stored)
	}
}

// fitsPace reports whether a value has the layout of a record.
func fitsPace(value string) (fits bool) {
	defer func() { fits = recover() == nil }()
	readPace(value)
	return true
}
