package lua_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// A modelKey is what a key holds in the model of a joint call: for each of its limits, the units
// that count, oldest first. It is never changed in place, so that a search can backtrack.
type modelKey []modelSection

// A modelSection is one limit, under Resolution 1, and its buckets.
type modelSection struct {
	per, max int64
	buckets  []modelBucket
}

type modelBucket struct{ at, units int64 }

// A modelReply is the reply of a joint call for one key.
type modelReply struct {
	allowed bool
	at      int64
	rows    [][3]int64 // for each limit: units used, wait for the same request, wait until unused
}

// wait returns how long the key denies the request.
func (r modelReply) wait() (longest int64) {
	for _, row := range r.rows {
		longest = max(longest, row[1])
	}
	return longest
}

// A design says how a joint call works. The zero value is the correct design.
type design struct {
	oneTime  bool // it replies with the earliest time of all keys for each key
	noRepair bool // it repairs no timestamp if the call is denied
}

// joint decides on units of each key at the time now, and returns the keys after the decision. A
// key for which units is 0 takes no part.
func (d design) joint(keys []modelKey, now int64, units []int64) (after []modelKey, replies []modelReply, allowed bool) {
	after, replies, allowed = slices.Clone(keys), make([]modelReply, len(keys)), true
	earliest := int64(1 << 62)
	for i, n := range units {
		if n == 0 {
			continue
		}
		seen := keys[i].seen(now)
		r := seen.reply(now, n)
		r.allowed = r.wait() == 0
		allowed = allowed && r.allowed
		earliest = min(earliest, r.at)
		if replies[i] = r; !d.noRepair && keys[i].isTooFarAhead(now) {
			after[i] = seen
		}
	}
	for i, n := range units {
		if n > 0 && allowed {
			after[i] = keys[i].seen(now).plus(now, n)
			replies[i].rows = after[i].reply(now, n).rows
		}
		if d.oneTime {
			replies[i].at = earliest
		}
	}
	return after, replies, allowed
}

// isTooFarAhead reports whether NoTimeTravel has to move any time.
func (k modelKey) isTooFarAhead(now int64) bool {
	return slices.ContainsFunc(k, func(s modelSection) bool { return s.date(now) > now+s.per })
}

// date returns the time at which the section counts an attempt, which is never before its newest
// bucket.
func (s modelSection) date(now int64) int64 {
	if n := len(s.buckets); n > 0 {
		return max(now, s.buckets[n-1].at)
	}
	return now
}

// seen returns what counts at the time now, after the repair of times.
func (k modelKey) seen(now int64) (seen modelKey) {
	for _, s := range k {
		from, date := modelSection{per: s.per, max: s.max}, min(s.date(now), now+s.per)
		for _, b := range s.buckets {
			if b.at = min(b.at, now+s.per); b.at+s.per > date {
				from = from.plus(b.at, b.units)
			}
		}
		seen = append(seen, from)
	}
	return seen
}

// plus returns the section with units added at the time at, which must not be before its newest
// bucket.
func (s modelSection) plus(at, units int64) modelSection {
	s.buckets = slices.Clone(s.buckets)
	if n := len(s.buckets); n > 0 && s.buckets[n-1].at == at {
		s.buckets[n-1].units += units
	} else {
		s.buckets = append(s.buckets, modelBucket{at, units})
	}
	return s
}

// plus returns the key with the units of an attempt at the time now added.
func (k modelKey) plus(now, units int64) (more modelKey) {
	for _, s := range k {
		more = append(more, s.plus(s.date(now), units))
	}
	return more
}

func (s modelSection) total() (units int64) {
	for _, b := range s.buckets {
		units += b.units
	}
	return units
}

// reply returns the reply for n units of the key in its current state.
func (k modelKey) reply(now, n int64) (r modelReply) {
	r.at = 1 << 62
	for _, s := range k {
		r.at = min(r.at, s.date(now))
		row := [3]int64{s.total(), 0, 0}
		if n := len(s.buckets); n > 0 {
			row[2] = s.buckets[n-1].at + s.per - now
		}
		for need, i := s.total()+n-s.max, 0; need > 0; i++ {
			need, row[1] = need-s.buckets[i].units, s.buckets[i].at+s.per-now
		}
		r.rows = append(r.rows, row)
	}
	return r
}

// refund returns the key without n units that were counted at the time at. If there are such units,
// it also drops limits that are entirely forgotten.
func (k modelKey) refund(now, at, n int64) modelKey {
	var less modelKey
	changed := false
	for _, s := range k {
		i := slices.IndexFunc(s.buckets, func(b modelBucket) bool { return b.at >= at })
		if i >= 0 && at+s.per > s.date(now) {
			changed, s.buckets = true, slices.Clone(s.buckets)
			if s.buckets[i].units -= n; s.buckets[i].units <= 0 {
				s.buckets = slices.Delete(s.buckets, i, i+1)
			}
		}
		if n := len(s.buckets); n > 0 && s.buckets[n-1].at+s.per <= now {
			s.buckets = nil
		}
		less = append(less, s)
	}
	if !changed {
		return k
	}
	return less
}

// A world holds two keys of one limit each, the clock of their server, and what its callers know.
type world struct {
	design
	now    int64
	keys   []modelKey
	grants []grant
}

// A grant is the part of an allowed decision that concerns one key.
type grant struct {
	key       int
	at, units int64
	decision  int   // index of the decision that it belongs to
	left      int64 // how long the units must still count: only forward steps of the clock use it up
	highest   int64 // the highest clock since then
	jumped    bool  // the clock was more than Per behind that, so a refund may take units of others
}

// newWorld returns two keys, with 2 units in 3 ms and 3 units in 5 ms.
func newWorld(d design) world {
	return world{d, 100, []modelKey{{{per: 3, max: 2}}, {{per: 5, max: 3}}}, nil}
}

// An action is something that can happen next: a call, a step of the clock, or a refund.
type action struct {
	ask    []int64 // units of each key
	step   int64
	refund int // index of the decision to refund
}

// actions holds the calls, and steps of the clock by less than Per, by more than one Per, and by
// more than both.
var actions = []action{
	{ask: []int64{1, 1}},
	{ask: []int64{1, 3}},
	{ask: []int64{2, 1}},
	{ask: []int64{1, 0}},
	{ask: []int64{0, 2}},
	{step: 1},
	{step: 4},
	{step: -2},
	{step: -5},
	{step: -9},
}

// actions returns all actions that can happen next.
func (w world) actions() []action {
	all := slices.Clip(actions)
	for i, g := range w.grants {
		if i == 0 || g.decision != w.grants[i-1].decision {
			all = append(all, action{refund: g.decision})
		}
	}
	return all
}

// do returns the world after an action, and the promise that it broke, or "".
func (w world) do(a action) (world, string) {
	switch {
	case a.ask != nil:
		return w.ask(a.ask)
	case a.refund > 0:
		return w.refund(a.refund)
	}
	return w.step(a.step), ""
}

func (a action) String() string {
	switch {
	case a.ask != nil:
		return fmt.Sprint("ask for ", a.ask)
	case a.refund > 0:
		return fmt.Sprint("refund decision ", a.refund)
	}
	return fmt.Sprint("clock ", a.step)
}

// step moves the clock.
func (w world) step(by int64) world {
	w.now, w.grants = w.now+by, slices.Clone(w.grants)
	for i := range w.grants {
		g := &w.grants[i]
		g.left, g.highest = g.left-max(0, by), max(g.highest, w.now)
		g.jumped = g.jumped || w.now < g.highest-w.keys[g.key][0].per
	}
	return w
}

// ask makes a call.
func (w world) ask(units []int64) (world, string) {
	before := w.keys
	keys, replies, allowed := w.joint(before, w.now, units)
	w.keys = keys
	decision := 1
	if n := len(w.grants); n > 0 {
		decision += w.grants[n-1].decision
	}
	for i, n := range units {
		counted := int64(0)
		if allowed {
			counted = n
		}
		if had, has := w.counted(before, i), w.counted(keys, i); has != had+counted {
			return w, fmt.Sprintf("key %d counts %d, but %d before the call", i, has, had)
		}
		if counted > 0 {
			w.grants = append(slices.Clone(w.grants), grant{i, replies[i].at, n, decision, keys[i][0].per, max(w.now, replies[i].at), false})
		}
	}
	if !allowed {
		return w, w.waits(units, replies)
	}
	return w, w.bounded()
}

// counted returns how many units a key counts now.
func (w world) counted(keys []modelKey, i int) int64 { return keys[i].seen(w.now)[0].total() }

// bounded checks that each key counts all units that it must count, and no more than Max.
func (w world) bounded() string {
	for i, k := range w.keys {
		var must int64
		for _, g := range w.grants {
			if g.key == i && g.left > 0 {
				must += g.units
			}
		}
		if has := w.counted(w.keys, i); must > has || must > k[0].max {
			return fmt.Sprintf("key %d counts %d, but has allowed %d in the last Per", i, has, must)
		}
	}
	return ""
}

// waits checks that the longest wait of a denial is exact, and at most twice the longest Per.
func (w world) waits(units []int64, replies []modelReply) string {
	var wait, longest int64
	for i, r := range replies {
		if units[i] > 0 && !r.allowed {
			wait, longest = max(wait, r.wait()), max(longest, 2*w.keys[i][0].per)
		}
	}
	if wait < 1 || wait > longest {
		return fmt.Sprintf("the wait is %d", wait)
	}
	for _, early := range []int64{1, 0} {
		if _, _, allowed := w.joint(w.keys, w.now+wait-early, units); allowed == (early > 0) {
			return fmt.Sprintf("the wait is %d, and %d ms before its end allowed is %v", wait, early, allowed)
		}
	}
	return ""
}

// refund refunds the parts of a decision, each by the time in the reply for its own key. The
// promise is that this gives back exactly its units, or none if they are forgotten. It does not
// hold across a jump of the clock.
func (w world) refund(decision int) (world, string) {
	var broken string
	grants := w.grants
	w.grants, w.keys = nil, slices.Clone(w.keys)
	for _, g := range grants {
		if g.decision != decision {
			w.grants = append(w.grants, g)
		}
		if g.decision != decision || g.jumped {
			continue
		}
		before := w.counted(w.keys, g.key)
		w.keys[g.key] = w.keys[g.key].refund(w.now, g.at, g.units)
		if back := before - w.counted(w.keys, g.key); back != g.units && g.left > 0 {
			broken = fmt.Sprintf("key %d counted %d, but gave back %d", g.key, g.units, back)
		}
	}
	if broken == "" {
		broken = w.bounded()
	}
	return w, broken
}

// search returns a shortest history of at most depth actions that breaks a promise, or "" if there
// is none.
func search(d design, depth int) string {
	for n := 1; n <= depth; n++ {
		if found := newWorld(d).search(n); found != "" {
			return found
		}
	}
	return ""
}

func (w world) search(depth int) string {
	for _, a := range w.actions() {
		if depth == 1 && a.step != 0 {
			continue // no later action could notice it
		}
		next, found := w.do(a)
		if found == "" && depth > 1 {
			found = next.search(depth - 1)
		}
		if found != "" {
			return fmt.Sprint(a, "; ", found)
		}
	}
	return ""
}

// TestJointModel searches all histories of joint calls, calls for one key, refunds and steps of the
// clock. They include lost replies, which are decisions that are never refunded. It also checks
// that the search finds the errors of two incorrect designs.
func TestJointModel(t *testing.T) {
	if found := search(design{}, redistest.UnlessShort(6, 5)); found != "" {
		t.Error(found)
	}
	for name, d := range map[string]design{"one time for all keys": {oneTime: true}, "no repair by a denial": {noRepair: true}} {
		t.Run(name, func(t *testing.T) {
			found := search(d, 6)
			if found == "" {
				t.Error("the search finds no history that breaks a promise")
			}
			t.Log(found)
		})
	}
}
