package lua_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// The model of inflight: a fleet of three callers, the server and its clock, and what can go wrong
// between them. It shares no code with the script or with the limiter. Each caller acquires one
// lease in a history. The second caller has a short TTL.
const (
	callers  = 3
	longHold = 12 // MaxHold
	outlives = 10 // how long a key lives after its last lease has ended
)

var callerTTL = [callers]int{10, 4, 10}

// A fleetDesign leaves out a rule. The zero value is the correct design.
type fleetDesign struct {
	acquireCountsTwice bool // a repeated acquire takes a second place
	acquireNewToken    bool // a repeated acquire gets another token
	releaseByEnd       bool // a release finds a lease by the end that its holder knows
	noCut              bool // the ends of leases stay when the clock steps back
	denialDropsCut     bool // a denial does not write the earlier ends
	cutByCaller        bool // the caller's TTL, not the longest one, limits the ends
	timeIsToken        bool // a token is the time itself
	keyDiesWithLease   bool // the key does not outlive its last lease
	noReentry          bool // an unknown lease is not added again
	everyReentry       bool // every unknown lease is added again
	onlyBelowBirth     bool // an unknown lease is not added again if its token is above the last token
	onlyAboveLast      bool // an unknown lease is not added again if its token is below the birth
	reentryAboveMax    bool // an unknown lease is added again even if there is no room
	reentryKeepsLast   bool // the last token stays when a lease with a greater token is added again
	noTombstone        bool // a lease that was added again leaves nothing when it is released
	writesZADDFirst    bool // a renewal fails if memory is full
	countsFromReply    bool // the holder's own end counts from the reply
	noMargin           bool // the holder's own end is not a tenth earlier
	renewsForEver      bool // no MaxHold
	noSweep            bool // a new lease does not drop leases that have ended, and a step of the clock revives them
}

// A serverLease is a lease in the record.
type serverLease struct {
	token, ends int
	known, tomb bool // tomb: the lease has ended, but its id stays
	twice       bool // the lease takes two places
}

// A serverRecord is what the key holds. The zero value means that there is no record.
type serverRecord struct {
	birth, last, longest, dies int
	leases                     [callers]serverLease
}

// held returns how many places are held.
func (r *serverRecord) held(now int) (n int) {
	for _, l := range r.leases {
		if l.known && !l.tomb && l.ends > now {
			if n++; l.twice {
				n++
			}
		}
	}
	return n
}

// A fleetCaller wants a lease, or has one.
type fleetCaller struct {
	asked, holds, left bool // left: the caller released its lease, or its process was killed
	token              int
	sent               int // when the caller sent the last call that was answered
	asking             int // when the caller sent the acquire that has not been answered yet
	since, ends        int // when the server granted the lease; the end that the caller knows of
	released           bool
}

// A fleet is the state of the whole world. It is a value, so that a search can backtrack.
type fleet struct {
	fleetDesign
	max       int
	time, now int // real time, and the server's clock
	record    serverRecord
	replica   serverRecord // what a failover restores
	callers   [callers]fleetCaller
	full      bool // the server's memory is full

	newest         int // the largest token issued
	back           int // how far the clock has stepped back in total
	ahead          bool
	lost, reverted bool // the record was lost, by eviction or by a failover
	deadline       [callers]int
	cut            bool // the clock has stepped back, and there has been no call since
}

// A fleetAction is something that can happen next.
type fleetAction struct {
	what string
	who  int
	by   int
}

func (a fleetAction) String() string {
	if a.by != 0 {
		return fmt.Sprint(a.what, " ", a.by)
	}
	return fmt.Sprint(a.what, " ", a.who)
}

// own reports whether caller i considers its lease held, on its own clock, which is slow by a
// tenth.
func (w *fleet) own(i int) bool {
	c, ttl := w.callers[i], callerTTL[i]
	if w.noMargin {
		return c.holds && (w.time-c.sent)*9 < ttl*10
	}
	return c.holds && (w.time-c.sent)*9 < ttl*9
}

// sees starts a call: it removes an expired key, and brings forward ends that are too late. It
// returns the record before these ends changed.
func (w *fleet) sees(i int) serverRecord {
	if w.record.birth > 0 && w.now >= w.record.dies {
		w.record = serverRecord{}
		w.forgetReleases()
	}
	before := w.record
	latest := w.now + w.record.longest
	if w.cutByCaller {
		latest = w.now + callerTTL[i]
	}
	for k := range w.record.leases {
		if l := &w.record.leases[k]; l.known && l.ends > latest && !w.noCut {
			l.ends = latest
		}
	}
	if w.cut {
		for k := range w.deadline {
			w.deadline[k] = max(w.deadline[k], w.time+w.record.longest)
		}
		w.cut = false
	}
	return before
}

// forgetReleases applies the loss of a record: a late renewal may now revive what was released
// before the loss.
func (w *fleet) forgetReleases() {
	for i := range w.callers {
		w.callers[i].released = false
	}
}

// writes finishes a call that writes.
func (w *fleet) writes() {
	w.record.dies = w.now + w.record.longest + outlives
	if w.keyDiesWithLease {
		w.record.dies = w.now + 1
		for _, l := range w.record.leases {
			if l.known && !l.tomb {
				w.record.dies = max(w.record.dies, l.ends)
			}
		}
	}
}

// sweeps ends the leases that are over, before a new one is added.
func (w *fleet) sweeps() {
	for i := range w.record.leases {
		if l := &w.record.leases[i]; l.known && l.ends <= w.now && !w.noSweep {
			w.record.end(i, !w.noTombstone)
		}
	}
}

// end ends the lease of caller i. If tombs is true and the lease is from an earlier record, its id
// stays.
func (r *serverRecord) end(i int, tombs bool) {
	if l := &r.leases[i]; l.token < r.birth && tombs {
		l.tomb = true
	} else {
		*l = serverLease{}
	}
}

// gives extends a lease.
func (w *fleet) gives(i int) {
	w.record.longest = max(w.record.longest, callerTTL[i])
	w.record.leases[i].ends = w.now + callerTTL[i]
	w.deadline[i] = w.time + w.record.longest
	w.writes()
}

// acquire is the call on the server. It returns the token, or 0 if denied.
func (w *fleet) acquire(i int) (token int, broken string) {
	before := w.sees(i)
	l := &w.record.leases[i]
	if l.known && !l.tomb && l.ends > w.now {
		if w.acquireCountsTwice {
			l.twice = true
		}
		if w.acquireNewToken {
			l.token = max(w.now, w.record.last+1)
			w.record.last = l.token
		}
		w.gives(i)
		w.callers[i].since = w.time
		if was := before.leases[i].token; l.token != was {
			broken = fmt.Sprintf("a repeated acquire gets token %d after %d", l.token, was)
		}
		return l.token, broken
	}
	if w.record.held(w.now) >= w.max {
		if w.denialDropsCut {
			w.record = before
		}
		return 0, w.orderly()
	}
	token = max(w.now, w.record.last+1)
	if w.timeIsToken {
		token = w.now
	}
	if w.record.last = token; w.record.birth == 0 {
		w.record.birth = token
	}
	w.sweeps()
	*l = serverLease{token: token, known: true}
	w.gives(i)
	w.callers[i].since = w.time
	if token <= w.newest && w.back <= outlives && !w.lost && !w.reverted && !w.ahead {
		broken = fmt.Sprintf("the token %d after %d", token, w.newest)
	}
	for k, other := range w.record.leases {
		if k != i && other.known && !other.tomb && other.ends > w.now && other.token >= token {
			broken = fmt.Sprintf("the token %d, and a lease has %d", token, other.token)
		}
	}
	w.newest = max(w.newest, token)
	return token, broken
}

// renew is the call on the server. It reports whether the lease is held.
func (w *fleet) renew(i, token int) bool {
	if w.sees(i); w.full && w.writesZADDFirst {
		return false
	}
	l, r := &w.record.leases[i], &w.record
	switch {
	case l.known && !l.tomb && l.ends > w.now:
	case w.everyReentry, !l.known && !w.noReentry &&
		(r.birth == 0 || token < r.birth && !w.onlyAboveLast || token > r.last && !w.onlyBelowBirth):
		if r.held(w.now) >= w.max && !w.reentryAboveMax {
			return false
		}
		if !w.reentryKeepsLast {
			r.last = max(r.last, token)
		}
		if r.birth == 0 {
			r.last = max(r.last, w.now-1)
			if r.birth = r.last + 1; w.reentryKeepsLast {
				r.birth = w.now
			}
		}
		w.sweeps()
		*l = serverLease{token: token, known: true}
	default:
		return false
	}
	w.gives(i)
	return true
}

// release is the call on the server. The holder passes the end that it knows of.
func (w *fleet) release(i, ends int) (broken string) {
	w.sees(i)
	l := &w.record.leases[i]
	c := &w.callers[i]
	known := l.known && (c.token == 0 || c.token == l.token)
	if l.known && !l.tomb && (!w.releaseByEnd || l.ends == ends) {
		w.record.end(i, !w.noTombstone)
		w.writes()
	}
	if l.known && !l.tomb && l.ends > w.now {
		return fmt.Sprintf("caller %d released its lease, but it is still held", i)
	}
	c.released = known // a lease from a lost record can come back, until TTL
	return ""
}

// do returns the world after an action, and the promise that it broke, or "". If the action is not
// possible, ok is false.
func (w fleet) do(a fleetAction) (_ fleet, broken string, ok bool) {
	ok = true
	switch a.what {
	case "pass":
		w.time, w.now = w.time+a.by, w.now+a.by
	case "step":
		if w.now += a.by; a.by < 0 {
			w.back, w.cut = w.back-a.by, true
		} else {
			w.ahead = true
		}
	case "evict":
		w.time, w.now = w.time+callers, w.now+callers // so that all tokens of that record are before the next birth
		w.record, w.replica, w.lost = serverRecord{}, serverRecord{}, true
		w.forgetReleases()
	case "replicate":
		w.replica = w.record
	case "failover":
		w.record, w.reverted, w.cut = w.replica, true, true
		w.forgetReleases()
	case "fill":
		w.full = true
	default:
		broken, ok = w.calls(a)
	}
	if broken == "" {
		broken = w.bounded()
	}
	return w, broken, ok
}

// calls performs the action of a caller.
func (w *fleet) calls(a fleetAction) (broken string, ok bool) {
	c := &w.callers[a.who]
	switch a.what {
	case "acquire", "lose-acquire":
		if c.holds || c.left || w.full {
			return "", false
		}
		if !c.asked {
			c.asking = w.time
		}
		asked := c.asked
		c.asked = true
		var token int
		if token, broken = w.acquire(a.who); a.what == "lose-acquire" {
			return broken, true
		}
		if token == 0 {
			c.asked = asked
			return broken, true
		}
		w.answered(a.who, token)
	case "answer": // to an acquire that was sent before
		l := w.record.leases[a.who]
		if !c.asked || c.holds || c.left || !l.known {
			return "", false
		}
		w.answered(a.who, l.token)
	case "renew", "lose-renew":
		if c.left || !c.holds {
			return "", false
		}
		if w.time-c.since >= longHold && !w.renewsForEver {
			c.left = true
			c.holds = false
			return w.release(a.who, c.ends), true
		}
		return w.renews(a), true
	case "late-renew":
		if !c.left || c.token == 0 {
			return "", false
		}
		w.renew(a.who, c.token)
	case "release":
		if c.left || !c.asked {
			return "", false
		}
		c.left, c.holds = true, false
		return w.release(a.who, c.ends), true
	case "kill":
		if c.left || !c.asked {
			return "", false
		}
		c.left, c.holds = true, false
	}
	return broken, true
}

// answered processes the reply to caller i's acquire.
func (w *fleet) answered(i, token int) {
	c := &w.callers[i]
	c.holds, c.token, c.sent = true, token, c.asking
	if w.countsFromReply {
		c.sent = w.time
	}
	c.ends = w.record.leases[i].ends
}

// renews renews a lease. A lease that its holder considers held may be refused only if this is
// necessary.
func (w *fleet) renews(a fleetAction) string {
	c, own, before := &w.callers[a.who], w.own(a.who), w.record
	held := w.renew(a.who, c.token)
	if !held {
		full := before.held(w.now) >= w.max && (w.lost || w.reverted)
		passed := w.reverted && (before.leases[a.who].known || c.token >= before.birth && c.token <= before.last)
		c.left, c.holds = true, false
		if conceded := w.ahead || full || passed || w.lost && w.back > 0; own && !conceded {
			return fmt.Sprintf("the lease of caller %d is refused", a.who)
		}
		return ""
	}
	if a.what == "renew" {
		c.sent, c.ends = w.time, w.record.leases[a.who].ends
	}
	return ""
}

// bounded checks what must hold at all times.
func (w *fleet) bounded() string {
	if held := w.record.held(w.now); held > w.max {
		return fmt.Sprintf("%d places are held", held)
	}
	own := 0
	for i, c := range w.callers {
		if w.own(i) {
			own++
		}
		l := w.record.leases[i]
		held := l.known && !l.tomb && l.ends > w.now && w.now < w.record.dies
		if held && c.released {
			return fmt.Sprintf("the lease of caller %d is revived", i)
		}
		if held && w.time-c.since >= longHold+callerTTL[i] && w.back == 0 && !w.reverted && !c.left {
			return fmt.Sprintf("caller %d has its place for %d", i, w.time-c.since)
		}
	}
	if own > w.max && !w.ahead && !w.lost && !w.reverted {
		return fmt.Sprintf("%d callers consider their leases held", own)
	}
	return ""
}

// orderly checks after a denial that no place is lost for longer than the longest TTL.
func (w *fleet) orderly() string {
	for i, l := range w.record.leases {
		if l.known && !l.tomb && l.ends > w.now && w.time >= w.deadline[i] {
			return fmt.Sprintf("the place of caller %d has been lost since %d", i, w.time-w.deadline[i])
		}
	}
	return ""
}

// fleetActions holds all actions that can happen.
var fleetActions = []fleetAction{
	{what: "pass", by: 1},
	{what: "pass", by: 3},
	{what: "pass", by: 10},
	{what: "step", by: -3},
	{what: "step", by: -9},
	{what: "step", by: 8},
	{what: "evict"},
	{what: "replicate"},
	{what: "failover"},
	{what: "fill"},
}

func init() {
	for who := range callers {
		for _, what := range []string{"acquire", "lose-acquire", "answer", "renew", "lose-renew", "late-renew", "release", "kill"} {
			fleetActions = append(fleetActions, fleetAction{what: what, who: who})
		}
	}
}

// newFleet returns a world in which nothing has happened.
func newFleet(d fleetDesign, most int) fleet {
	return fleet{fleetDesign: d, max: most, time: 100, now: 100}
}

// search returns a history of at most depth actions that breaks a promise, or nil if there is none.
// It counts the states that it visits.
func (w fleet) search(depth int, states *int) []string {
	for _, a := range fleetActions {
		if depth == 1 && (a.what == "replicate" || a.what == "fill" || a.what == "kill") {
			continue // no later action could notice it
		}
		if a.who == 2 && !w.callers[0].asked && !w.callers[1].asked {
			continue // callers with the same TTL are interchangeable
		}
		next, broken, ok := w.do(a)
		if !ok {
			continue
		}
		*states++
		if broken != "" {
			return []string{a.String(), broken}
		}
		if depth > 1 {
			if found := next.search(depth-1, states); found != nil {
				return append([]string{a.String()}, found...)
			}
		}
	}
	return nil
}

// wanders returns a random history that breaks a promise, or nil.
func (w fleet) wanders(r *rand.Rand, actions int) (history []string) {
	for range actions {
		a := fleetActions[r.IntN(len(fleetActions))]
		if a.by == 0 && a.what != "fill" || r.IntN(4) == 0 {
			next, broken, ok := w.do(a)
			if !ok {
				continue
			}
			if history = append(history, a.String()); broken != "" {
				return append(history, broken)
			}
			w = next
		} else {
			step := fleetAction{what: "pass", by: 1 + r.IntN(4)}
			history = append(history, step.String())
			var broken string
			if w, broken, _ = w.do(step); broken != "" {
				return append(history, broken)
			}
		}
	}
	return nil
}

// searchFleet returns a shortest history of at most depth actions that breaks a promise. If there
// is none, it tries random histories.
func searchFleet(d fleetDesign, depth, random int) ([]string, int) {
	states := 0
	for n := 1; n <= depth; n++ {
		for _, most := range []int{1, 2} {
			if found := newFleet(d, most).search(n, &states); found != nil {
				return found, states
			}
		}
	}
	r := rand.New(rand.NewPCG(6, 1))
	for i := range random {
		if found := newFleet(d, 1+i%2).wanders(r, 30); found != nil {
			return found, states
		}
	}
	return nil, states
}

// TestInflightModel searches all short histories of the fleet, and random longer ones.
func TestInflightModel(t *testing.T) {
	found, states := searchFleet(fleetDesign{}, redistest.UnlessShort(5, 4), redistest.UnlessShort(100_000, 10_000))
	if found != nil {
		t.Error(found)
	}
	t.Log(states, "states")
}

// TestInflightModelNeedsItsRules checks that no rule can be left out: without it, the search finds
// a broken promise.
func TestInflightModelNeedsItsRules(t *testing.T) {
	for name, d := range map[string]fleetDesign{
		"a repeated acquire counts twice":            {acquireCountsTwice: true},
		"a repeated acquire gets a new token":        {acquireNewToken: true},
		"a release by the end":                       {releaseByEnd: true},
		"no cut":                                     {noCut: true},
		"a denial drops the cut":                     {denialDropsCut: true},
		"a cut by the TTL of the caller":             {cutByCaller: true},
		"the time is the token":                      {timeIsToken: true},
		"the key dies with its last lease":           {keyDiesWithLease: true},
		"no unknown lease enters again":              {noReentry: true},
		"each unknown lease enters again":            {everyReentry: true},
		"only below the birth":                       {onlyBelowBirth: true},
		"only above the last token":                  {onlyAboveLast: true},
		"a lease enters above Max":                   {reentryAboveMax: true},
		"the last token stays as a lease enters":     {reentryKeepsLast: true},
		"no tombstone":                               {noTombstone: true},
		"a renewal fails if memory is full":          {writesZADDFirst: true},
		"the holder's own end counts from the reply": {countsFromReply: true},
		"the holder's own end has no margin":         {noMargin: true},
		"a lease without MaxHold":                    {renewsForEver: true},
		"ended leases stay":                          {noSweep: true},
	} {
		t.Run(name, func(t *testing.T) {
			found, _ := searchFleet(d, 4, 400_000)
			if found == nil {
				t.Error("the search finds no history that breaks a promise")
			}
			t.Log(found)
		})
	}
}
