package lua_test

import (
	_ "embed"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/lua"
)

// inflight describes inflight.lua for the tests of all scripts. It has its own verbs and no limits,
// so most of its tests are here.
var inflight = script{name: "inflight", source: lua.Inflight.Source, unit: time.Microsecond, never: 9e15 + 1}

//go:embed testdata/setspy.lua
var setSpySource string

// A heldAnswer is the outcome of one call of inflight.lua, as strings.
type heldAnswer struct{ reply, wrote, stored, err string }

// A heldJudge runs inflight.lua on one event.
type heldJudge func(tb testing.TB, args ...string) heldAnswer

// spiedHeld returns the source of inflight.lua in setspy.lua.
func spiedHeld() string { return strings.Replace(setSpySource, "--SCRIPT--", inflight.source, 1) }

// heldOnRedis returns the authoritative judge: a real server.
func heldOnRedis(tb testing.TB) heldJudge {
	tb.Helper()
	client, key := redistest.Client(tb), redistest.Key(tb)
	script := rueidis.NewLuaScript(spiedHeld())
	return func(tb testing.TB, args ...string) heldAnswer {
		tb.Helper()
		texts, err := script.Exec(tb.Context(), client, []string{key}, args).AsStrSlice()
		if e, ok := rueidis.IsRedisErr(err); ok {
			return heldAnswer{err: strings.ReplaceAll(e.Error(), key, "KEY")}
		} else if err != nil {
			tb.Fatal(err)
		}
		return heldAnswer{reply: texts[0], wrote: texts[1], stored: texts[2]}
	}
}

// heldOnLua returns a judge that runs in a Lua interpreter.
func heldOnLua(t *testing.T, path string) heldJudge {
	t.Helper()
	call, read := inLua(t, path, spiedHeld())
	return func(tb testing.TB, args ...string) heldAnswer {
		tb.Helper()
		call("lua:KEY", args)
		fields := read(tb)
		if fields[0] == "error" {
			return heldAnswer{err: strings.ReplaceAll(fields[1], "lua:KEY", "KEY")}
		}
		return heldAnswer{reply: fields[1], wrote: fields[2], stored: fields[3]}
	}
}

// A heldLease is a lease in the reference. A lease that has ended has no units, and stays until it
// is swept, or as a tombstone.
type heldLease struct {
	n, ends, token int64
	holder         string
	tomb           bool
}

// A heldRecord is what a key holds in the reference. The zero value means that there is no record.
type heldRecord struct {
	birth, last, longest int64
	leases               map[string]heldLease
}

// units returns how many units are held.
func (r *heldRecord) units(now int64) (n int64) {
	for _, l := range r.leases {
		if !l.tomb && l.ends > now {
			n += l.n
		}
	}
	return n
}

// stored formats the record as the sorted set that stores it, in order.
func (r *heldRecord) stored() string {
	if r.birth == 0 {
		return ""
	}
	type member struct {
		name  string
		score int64
	}
	head := []byte{200}
	for i := 48; i >= 0; i -= 8 {
		head = append(head, byte(r.birth>>i))
	}
	for i := 40; i >= 0; i -= 8 {
		head = append(head, byte(r.longest>>i))
	}
	set := []member{{string(head), -r.last - 1}}
	for id, l := range r.leases {
		set = append(set, member{id, -l.token})
		for u := int64(0); u < l.n && !l.tomb; u++ {
			set = append(set, member{id + string([]byte{byte(u >> 8), byte(u)}), l.ends})
		}
		if l.holder != "" && !l.tomb {
			set = append(set, member{id + "\x00\x00" + l.holder, -l.token})
		}
	}
	slices.SortFunc(set, func(a, b member) int {
		if a.score != b.score {
			return int(max(-1, min(1, a.score-b.score)))
		}
		return strings.Compare(a.name, b.name)
	})
	var shown []string
	for _, m := range set {
		shown = append(shown, fmt.Sprintf("%s=%d", showName(m.name), m.score))
	}
	return strings.Join(shown, " ")
}

// showName formats the name of a member as the spy does.
func showName(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c < '!' || c > '~' {
			fmt.Fprintf(&b, `\%02x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// A heldCall is a call in the reference.
type heldCall struct {
	verb   string
	ttl    int64 // ms
	holder string
	leases []calledLease
}

type calledLease struct {
	id            string
	n, max, token int64
}

// args returns the call as arguments of the script.
func (c heldCall) args(now int64) []string {
	args := []string{c.verb, digits(now)}
	if c.verb == "acquire" || c.verb == "renew" {
		args = append(args, digits(c.ttl))
	}
	for _, l := range c.leases {
		args = append(args, l.id, digits(l.n))
		if c.verb != "release" {
			args = append(args, digits(l.max))
		}
		if c.verb == "renew" {
			args = append(args, digits(l.token))
		}
	}
	if c.holder != "" {
		args = append(args, c.holder)
	}
	return args
}

// A heldEvent is an event in the reference, and on a server.
type heldEvent struct {
	heldRecord
	now            int64
	dropped, added bool // whether this call has dropped or added members
}

// end ends a lease. If its token is lower than e.birth, its id stays as a tombstone.
func (e *heldEvent) end(id string) {
	l := e.leases[id]
	if e.dropped = true; l.token < e.birth {
		l.tomb = true
		e.leases[id] = l
	} else {
		delete(e.leases, id)
	}
}

// sweep ends leases that are over.
func (e *heldEvent) sweep() {
	for id, l := range e.leases {
		if !l.tomb && l.ends <= e.now {
			e.end(id)
		}
	}
}

// holds reports whether a lease is held.
func (e *heldEvent) holds(id string) bool {
	l, known := e.leases[id]
	return known && !l.tomb && l.ends > e.now
}

// cut brings forward ends that are too late.
func (e *heldEvent) cut() {
	for id, l := range e.leases {
		if latest := e.now + e.longest*1000; !l.tomb && l.ends > latest {
			l.ends, e.added = latest, true
			e.leases[id] = l
		}
	}
}

// do makes a call. It returns the reply and the commands that write.
func (e *heldEvent) do(c heldCall) (reply []any, wrote []string) {
	was := e.birth != 0
	if e.dropped, e.added = false, false; e.leases == nil {
		e.leases = map[string]heldLease{}
	}
	if c.verb == "reset" {
		if e.heldRecord = (heldRecord{}); !was {
			return []any{0, e.now, 0}, nil
		}
		return []any{1, e.now, 0}, []string{"DEL"}
	}
	if c.verb == "inspect" {
		return e.inspect(), nil
	}
	e.cut()
	longest, fresh := e.longest, false
	switch c.verb {
	case "acquire":
		reply, fresh = e.acquire(c)
	case "renew":
		reply = e.renew(c)
	default:
		reply = e.release(c)
	}
	if was && e.longest != longest {
		e.dropped = true // the old head
	}
	if !e.dropped && !e.added {
		return reply, nil
	}
	expire := fmt.Sprint("PEXPIRE ", e.longest+600_000+86_400_000)
	if !fresh {
		wrote = append(wrote, expire)
	}
	if e.added && c.verb == "release" {
		wrote = append(wrote, "ZADD") // first, so that it cannot add what is then released
	}
	if e.dropped {
		wrote = append(wrote, "ZREM")
	}
	if e.added && c.verb != "release" {
		wrote = append(wrote, "ZADD")
	}
	if fresh || !was {
		wrote = append(wrote, expire)
	}
	return reply, wrote
}

// renewed extends a lease.
func (e *heldEvent) renewed(id string, ttl int64) {
	l := e.leases[id]
	l.ends, e.longest, e.added = e.now+ttl*1000, max(e.longest, ttl), true
	e.leases[id] = l
}

func (e *heldEvent) acquire(c heldCall) (reply []any, fresh bool) {
	l := c.leases[0]
	if e.holds(l.id) {
		e.renewed(l.id, c.ttl)
		return []any{1, e.now, e.units(e.now), e.leases[l.id].token, 0}, false
	}
	if held := e.units(e.now); held+l.n > l.max {
		var ends []int64
		for _, other := range e.leases {
			if !other.tomb && other.ends > e.now {
				ends = append(ends, slices.Repeat([]int64{other.ends}, int(other.n))...)
			}
		}
		slices.Sort(ends)
		return []any{0, e.now, held, 0, (ends[held+l.n-l.max-1] - e.now + 999) / 1000}, false
	}
	token := max(e.now, e.last+1)
	if e.last = token; e.birth == 0 {
		e.birth = token
	}
	e.sweep()
	e.leases[l.id] = heldLease{n: l.n, token: token, holder: c.holder}
	e.renewed(l.id, c.ttl)
	return []any{1, e.now, e.units(e.now), token, 0}, true
}

func (e *heldEvent) renew(c heldCall) []any {
	was, last, entered, states := e.heldRecord, e.last, map[string]heldLease{}, []any{}
	known, held, count := maps.Clone(e.leases), e.units(e.now), 0
	for _, l := range c.leases {
		state := 0
		_, had := known[l.id]
		switch _, again := entered[l.id]; {
		case again:
			state = 2
		case e.holds(l.id):
			state = 1
			e.renewed(l.id, c.ttl)
		case !had && (was.birth == 0 || l.token < was.birth || l.token > was.last) && held+l.n <= l.max:
			state, held = 2, held+l.n
			entered[l.id] = heldLease{n: l.n, token: l.token, holder: c.holder}
			last = max(last, l.token)
		}
		if states = append(states, state); state > 0 {
			count++
		}
	}
	if e.last = last; len(entered) > 0 {
		if was.birth == 0 {
			e.last = max(e.now-1, last)
			e.birth = e.last + 1
		}
		e.sweep()
		maps.Copy(e.leases, entered)
		for id := range entered {
			e.renewed(id, c.ttl)
		}
	}
	return append([]any{count, e.now, held}, states...)
}

func (e *heldEvent) release(c heldCall) []any {
	count := 0
	for _, l := range c.leases {
		if e.holds(l.id) {
			e.end(l.id)
			count++
		}
	}
	return []any{count, e.now, e.units(e.now)}
}

func (e *heldEvent) inspect() []any {
	ids := slices.Sorted(maps.Keys(e.leases))
	ids = slices.DeleteFunc(ids, func(id string) bool { return !e.holds(id) })
	slices.SortStableFunc(ids, func(a, b string) int { return int(max(-1, min(1, e.leases[a].ends-e.leases[b].ends))) })
	reply := []any{len(ids), e.now, e.units(e.now), e.last, e.birth, e.longest}
	for _, id := range ids {
		l := e.leases[id]
		if l.holder == "" {
			l.holder = "-"
		}
		reply = append(reply, id, l.n, l.token, min(l.ends, e.now+e.longest*1000), l.holder)
	}
	return reply
}

// A heldPlay is a random history.
type heldPlay struct {
	*rand.Rand
	heldEvent
	ask     heldJudge
	ids     int
	max     int64
	tokens  map[string]int64 // tokens that holders received
	history []string
}

// newHeldPlay returns a play whose random numbers are the same in every run. If the seed is even,
// there are few leases.
func newHeldPlay(seed uint64, ask heldJudge) *heldPlay {
	p := &heldPlay{Rand: rand.New(rand.NewPCG(5, seed)), ask: ask, tokens: map[string]int64{}}
	p.now = midnight * 1000
	p.ids, p.max = 4, 2+p.Int64N(3)
	if seed%2 == 1 {
		p.ids, p.max = 30, 10+p.Int64N(20)
	}
	return p
}

// lease returns a lease from the pool. The units of a lease are always the same.
func (p *heldPlay) lease() calledLease {
	i := p.IntN(p.ids)
	id := fmt.Sprintf("lease%03d", i)
	l := calledLease{id: id, n: 1, max: p.max, token: max(1, p.tokens[id])}
	if i%4 == 3 {
		l.n = 2
	}
	if p.IntN(8) == 0 {
		l.max = l.n + p.Int64N(p.max)
	}
	return l
}

// next returns a random call, and lets time pass, or steps the clock back.
func (p *heldPlay) next() heldCall {
	switch p.IntN(12) {
	case 0:
		p.now += p.Int64N(12_000_000)
	case 1:
		p.now = max(1, p.now-p.Int64N(8_000_000))
	case 2, 3, 4, 5:
		p.now += p.Int64N(1_000_000)
	}
	c := heldCall{ttl: []int64{1000, 3000, 10000}[p.IntN(3)], leases: []calledLease{p.lease()}}
	switch r := p.IntN(100); {
	case r < 45:
		c.verb = "acquire"
	case r < 75:
		c.verb = "renew"
	case r < 90:
		c.verb = "release"
	case r < 98:
		return heldCall{verb: "inspect"}
	default:
		return heldCall{verb: "reset"} // the same as losing the record
	}
	if c.verb != "acquire" {
		for p.IntN(2) == 0 {
			c.leases = append(c.leases, p.lease())
		}
	}
	if c.verb != "release" && p.IntN(3) == 0 {
		c.holder = "pod-" + digits(p.Int64N(3))
	}
	return c
}

// does makes a call in the reference and on the server, and compares them.
func (p *heldPlay) does(t *testing.T, c heldCall) {
	t.Helper()
	args := c.args(p.now)
	reply, wrote := p.do(c)
	want := heldAnswer{reply: strings.Trim(fmt.Sprint(reply), "[]"), wrote: strings.Join(wrote, ", "), stored: p.stored()}
	p.history = append(p.history, strings.Join(args, " "))
	if diff := cmp.Diff(want, p.ask(t, args...), cmp.AllowUnexported(heldAnswer{})); diff != "" {
		t.Fatalf("%s (-reference +script)\n%s", strings.Join(p.history[max(0, len(p.history)-30):], "\n"), diff)
	}
	if c.verb == "acquire" && reply[0] == 1 {
		p.tokens[c.leases[0].id] = reply[3].(int64)
	}
}

// TestInflightHistories plays random histories in the reference and on a server. Both must reply,
// write and store the same, even if the clock steps and records are lost.
func TestInflightHistories(t *testing.T) {
	for seed := range uint64(redistest.Share(60)) {
		newHeldPlay(seed, heldOnRedis(t)).plays(t)
	}
}

// plays plays a history.
func (p *heldPlay) plays(t *testing.T) {
	t.Helper()
	for range 200 {
		p.does(t, p.next())
	}
}
