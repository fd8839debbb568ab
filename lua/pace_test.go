package lua_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/lua"
)

// pace describes pace.lua for the tests of all scripts. It has its own verbs, so most of its tests
// are here.
var pace = script{name: "pace", source: lua.Pace.Source, unit: time.Millisecond, never: 1 << 47, most: 1 << 53, limited: 2}

// readPace decodes a record of pace.lua into the model. It implements the format independently, and
// panics if the record does not fit.
func readPace(record string) (r paceRecord) {
	if record == "" {
		return r
	}
	b := []byte(record)
	r.floor, r.clock = uint48(b[2:]), uint48(b[8:])
	sections, rest := int(b[1]), b[14:]
	switch b[0] {
	case 248:
	case 249:
		r.pauseEnd, r.shift, rest = uint48(rest), uint48(rest[6:]), rest[12:]
	default:
		panic("not this format")
	}
	for range sections {
		_, n := take(rest, widths(rest))
		s := readPaceSection(rest[:n], r.floor)
		if rest = rest[n:]; s.per == 1<<32-1 {
			r.stepped = s.total
		} else {
			r.sections = append(r.sections, s)
		}
	}
	if len(rest) > 0 {
		panic("more than the sections")
	}
	return r
}

func uint48(b []byte) int64 { return int64(binary.BigEndian.Uint64(append([]byte{0, 0}, b[:6]...))) }

// uintOf decodes b as a big endian number.
func uintOf(b []byte) (n int64) {
	for _, digit := range b {
		n = n<<8 + int64(digit)
	}
	return n
}

// readPaceSection decodes the buckets of a section, the oldest first.
func readPaceSection(b []byte, last int64) paceSection {
	flags, closed, per, at := b[0], int(b[1]), uintOf(b[2:6]), 6
	if flags >= 32 {
		flags, closed, per, at = flags-32, int(uintOf(b[1:3])), uintOf(b[3:9]), 9
	}
	if flags >= 16 {
		last, at = uint48(b[at:]), at+6
	}
	units, open, total := []int{0, 1, 3, 7}[flags%4], int64(1), int64(closed+1)
	if units > 0 {
		total, open, at = uintOf(b[at:at+units]), uintOf(b[at+units:at+2*units]), at+2*units
	}
	wide, s := timeWidth(uint64(per)), paceSection{per: per, buckets: []paceBucket{{last, open, flags>>2&1 == 1}}}
	for range closed {
		t, n := uintOf(b[at:at+wide]), int64(1)
		if units > 0 {
			n = uintOf(b[at+wide : at+wide+units])
		}
		modulus := int64(1) << (8 * wide)
		s.buckets = slices.Insert(s.buckets, 0, paceBucket{last - ((last-t)%modulus+modulus)%modulus, n, false})
		at += wide + units
	}
	if s.total = total; open > total {
		panic("the units do not add up")
	}
	return s
}

// stored returns the record as its bytes represent it. They say only for the last bucket whether it
// is coarse.
func (r paceRecord) stored() paceRecord {
	r.sections = slices.Clone(r.sections)
	for i, s := range r.sections {
		s.buckets = slices.Clone(s.buckets)
		for j := range s.buckets {
			s.buckets[j].coarse = s.buckets[j].coarse && j == len(s.buckets)-1
			s.total += s.buckets[j].units
		}
		r.sections[i] = s
	}
	return r
}

// life returns how long the key of the record is kept.
func (r paceRecord) life() int64 {
	until := max(r.clock, r.floor, r.pauseEnd)
	if r.stepped > 0 {
		until = max(until, r.stepped+1)
	}
	for _, s := range r.sections {
		until = max(until, s.buckets[len(s.buckets)-1].at+s.per)
	}
	return until - r.clock + (24 * time.Hour).Milliseconds()
}

// args returns an action as arguments of the script.
func (w paceWorld) args(a paceAction) []string {
	now := digits(w.now)
	limits := func(limits []paceLimit) (args []string) {
		for _, l := range limits {
			args = append(args, digits(l.per), digits(l.max))
		}
		return args
	}
	switch {
	case a.k > 0:
		return slices.Concat([]string{"book", now, digits(a.k)}, limits(a.limits), []string{digits(a.horizon), digits(a.n)})
	case a.cancel > 0:
		t := w.turns[a.cancel-1]
		return slices.Concat([]string{"cancel", now, digits(t.units)}, limits(t.limits), []string{digits(t.at), digits(t.shift)})
	}
	return []string{"pause", now, "1", digits(a.pause)}
}

// A pacedEvent is an event in a world, and on a server.
type pacedEvent struct {
	*rand.Rand
	paceWorld
	ask     judge
	pool    []paceLimit
	lead    int64 // about how far in the future turns are
	history []string
}

// newPacedEvent returns an event with random limits. Its random numbers are the same in every run.
func newPacedEvent(seed uint64, ask judge) *pacedEvent {
	e := &pacedEvent{Rand: rand.New(rand.NewPCG(2, seed)), ask: ask}
	e.now = int64(midnight) + e.Int64N(1000)
	e.time = e.now
	pers, maxes := []float64{1e3, 1e5, 1e8, 2e10}, []float64{10, 300, 5000, 1 << 53}
	if seed%2 == 0 { // few different times, so that many coincide
		pers, maxes = []float64{10, 300}, []float64{4, 600}
	}
	for range 1 + e.IntN(3) {
		per := int64(math.Pow(pers[e.IntN(len(pers))], e.Float64()))
		if !slices.ContainsFunc(e.pool, func(l paceLimit) bool { return l.per == per }) {
			e.pool = append(e.pool, paceLimit{per, int64(math.Pow(maxes[e.IntN(len(maxes))], e.Float64()))})
		}
	}
	e.lead = e.pool[0].per
	return e
}

// limits returns the limits of a caller. Most callers have all of them; some have fewer, or a lower
// Max.
func (e *pacedEvent) limits() (limits []paceLimit) {
	limits = slices.Clone(e.pool)
	if e.IntN(8) == 0 {
		limits = limits[:1+e.IntN(len(limits))]
	}
	if e.IntN(16) == 0 {
		limits[0].max = 1 + e.Int64N(limits[0].max)
		e.mixed = true
	}
	return limits
}

// next returns a random action.
func (e *pacedEvent) next(back bool) paceAction {
	switch r := e.IntN(100); {
	case r < 50:
		limits := e.limits()
		most := int64(math.MaxInt64)
		for _, l := range limits {
			most = min(most, l.max)
		}
		a := paceAction{limits: limits, n: 1, k: 1, horizon: e.Int64N(8*e.lead + 2)}
		if e.IntN(4) == 0 {
			a.n = 1 + e.Int64N(most)
		}
		if e.IntN(4) == 0 {
			a.k = 1 + int64(math.Pow(256, e.Float64()))%256
		}
		return a
	case r < 65:
		for range 9 {
			if len(e.turns) == 0 {
				break
			}
			i := len(e.turns) - 1 - e.IntN(min(len(e.turns), 40))
			if t := e.turns[i]; !t.canceled {
				return paceAction{cancel: i + 1}
			}
		}
	case r < 69:
		return paceAction{pause: 1 + e.Int64N(1+e.lead)}
	case r < 71 && back:
		return paceAction{step: -1 - e.Int64N(1+2*e.lead)}
	}
	return paceAction{step: 1 + e.Int64N(1+e.lead/int64(1+e.IntN(50)))}
}

// does makes a call in the world and on the server, and compares them.
func (e *pacedEvent) does(t *testing.T, a paceAction) {
	t.Helper()
	before := e.paceWorld
	after, reply, broken := e.do(a)
	if e.history = append(e.history, a.String()); broken != "" {
		t.Fatalf("%v: %s", e.history[max(0, len(e.history)-40):], broken)
	}
	e.paceWorld = after
	if a.step != 0 {
		return
	}
	args := before.args(a)
	got := e.ask(t, args...)
	want := answer{reply: []int64{reply.first, before.now, reply.shift, reply.pauseEnd}, stored: got.stored}
	if a.k > 0 {
		want.reply = append(append(want.reply, reply.wait), reply.turns...)
	}
	record := after.record.stored()
	if was := before.record.stored(); cmp.Equal(was, record, paceTypes) {
		// Nothing is written.
	} else {
		want.wrote, want.px = "SET", strconv.FormatInt(record.life(), 10)
	}
	if diff := cmp.Diff(want, got, paceTypes); diff != "" {
		t.Fatalf("%v\n%q (-model +script)\n%s", e.history, args, diff)
	}
	if diff := cmp.Diff(record, readPace(got.stored), paceTypes); diff != "" {
		t.Fatalf("%v\n%q leaves %x (-model +script)\n%s", e.history, args, got.stored, diff)
	}
}

var paceTypes = cmp.AllowUnexported(answer{}, paceRecord{}, paceSection{}, paceBucket{})

// TestPaceHistories plays random histories in the model and on a server, which must reply and store
// the same. It also compares the replies with the log of the model.
func TestPaceHistories(t *testing.T) {
	for seed := range uint64(redistest.Share(200)) {
		newPacedEvent(seed, pace.onRedis(t)).plays(t, seed%3 == 0)
	}
}

// plays plays a history. If back is true, the clock occasionally steps back.
func (e *pacedEvent) plays(t *testing.T, back bool) {
	t.Helper()
	for i := range 100 {
		e.does(t, e.next(back))
		e.forgets()
		if i%20 == 19 {
			if broken := e.bounded(); broken != "" {
				t.Fatalf("%v: %s", e.history[max(0, len(e.history)-40):], broken)
			}
		}
	}
}

// forgets drops turns from the log that can no longer delay a later turn.
func (e *pacedEvent) forgets() {
	longest := int64(0)
	for _, l := range e.pool {
		longest = max(longest, l.per)
	}
	e.turns = slices.DeleteFunc(slices.Clone(e.turns), func(t pacedTurn) bool { return t.time+longest < min(e.time, e.newest)-longest })
}
