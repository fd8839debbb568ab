package lua_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// A paceRecord is what a key holds in the model of pace. It is never changed in place, so that a
// search can backtrack.
type paceRecord struct {
	floor, clock, pauseEnd, shift int64
	stepped                       int64 // the newest turn before the clock stepped back
	sections                      []paceSection
}

// A paceSection holds the buckets of a limit, the oldest first.
type paceSection struct {
	per     int64
	buckets []paceBucket
	total   int64 // units, if a stored record gives them
}

// A paceBucket has the time of its newest turn. A coarse bucket accepts turns in the same Per/240.
type paceBucket struct {
	at, units int64
	coarse    bool
}

type paceLimit struct{ per, max int64 }

// width returns 1 plus the longest time by which the limit may count a turn too late.
func (l paceLimit) width() int64 {
	if l.max <= 256 {
		return 1
	}
	return (l.per + 239) / 240
}

// A paceReply is the reply to a call.
type paceReply struct {
	first, shift, pauseEnd int64
	wait                   int64
	turns                  []int64
}

// A paceDesign leaves out a rule. The zero value is the correct design.
type paceDesign struct {
	noOrder            bool // a turn may be before an earlier one
	eachAlone          bool // k turns of a call ignore each other
	cancelLowersFloor  bool // the floor is the newest remaining turn
	cancelFreesNothing bool
	cancelForgetsShift bool // cancel looks for the time that was booked
	cancelFindsPast    bool // cancel also looks for a turn that came before a pause
	cancelForgetsSteps bool // cancel also looks for a turn that was booked before the clock stepped back
	stepForgetsPause   bool // stepped is before the time of a turn that a pause has moved
	pauseKeepsStepped  bool // stepped does not move
	emptyIsForgotten   bool // a record without turns is deleted at once
	noRepair           bool // times stay when the clock steps back
	repairByHorizon    bool // the caller's horizon decides how far in the future a turn stays
	repairToNow        bool // no turn stays in the future
	pauseEndStays      bool // the end of a pause stays when the clock steps back
	denialDropsRepair  bool // a refused booking writes nothing
	denialRaisesFloor  bool // a refused booking writes the turn that it refused as the floor
	pauseMovesNothing  bool // later turns stay
	pauseAddsAll       bool // a second pause adds its full length
	pauseShortens      bool // a shorter pause ends an earlier one
	pauseSparesNow     bool // a turn at the time of the pause does not move
	pauseKeepsFloor    bool // the floor does not move
}

// seen returns the record after the repair that the clock requires, and whether any time in it was
// moved.
func (d paceDesign) seen(r paceRecord, now, horizon int64) (paceRecord, bool) {
	if now >= r.clock || d.noRepair {
		return r, false
	}
	latest, end := now+max(0, r.floor-r.clock), now+max(0, r.pauseEnd-r.clock)
	if d.repairByHorizon {
		latest = now + horizon
	}
	if d.repairToNow {
		latest = now
	}
	if d.pauseEndStays {
		end = r.pauseEnd
	}
	changed := r.floor > latest || r.pauseEnd > end
	newest := max(r.floor, r.pauseEnd)
	if d.stepForgetsPause {
		newest = r.floor
	}
	if newest >= now && !d.cancelForgetsSteps {
		r.stepped = max(r.stepped, newest)
	}
	r.floor, r.pauseEnd = min(r.floor, latest), min(r.pauseEnd, end)
	sections := r.sections
	r.sections = nil
	for _, s := range sections {
		dated := paceSection{per: s.per}
		for _, b := range s.buckets {
			n := len(dated.buckets)
			if b.at >= latest && n > 0 && dated.buckets[n-1].at == latest {
				dated.buckets[n-1].units += b.units
				dated.buckets[n-1].coarse = b.coarse
				continue
			}
			b.at = min(b.at, latest)
			dated.buckets = append(dated.buckets, b)
		}
		r.sections = append(r.sections, dated)
	}
	return r, changed
}

// written returns the record as a write at the time now leaves it.
func (d paceDesign) written(r paceRecord, now int64) paceRecord {
	date, longest := max(now, r.floor), int64(0)
	r = r.forget(date)
	for _, s := range r.sections {
		longest = max(longest, s.per)
	}
	if r.stepped+longest < date {
		r.stepped = 0
	}
	if r.clock = now; d.emptyIsForgotten && len(r.sections) == 0 && r.floor <= now && r.pauseEnd <= now {
		return paceRecord{}
	}
	return r
}

// forget drops buckets that cannot delay any turn at or after the time at.
func (r paceRecord) forget(at int64) paceRecord {
	sections := r.sections
	r.sections = nil
	for _, s := range sections {
		i := slices.IndexFunc(s.buckets, func(b paceBucket) bool { return b.at+s.per > at })
		if i >= 0 {
			r.sections = append(r.sections, paceSection{per: s.per, buckets: s.buckets[i:]})
		}
	}
	return r
}

// buckets returns the buckets of a limit.
func (r paceRecord) buckets(per int64) []paceBucket {
	for _, s := range r.sections {
		if s.per == per {
			return s.buckets
		}
	}
	return nil
}

// with returns the record with other buckets for a limit.
func (r paceRecord) with(per int64, buckets []paceBucket) paceRecord {
	r.sections = slices.Clone(r.sections)
	i := slices.IndexFunc(r.sections, func(s paceSection) bool { return s.per == per })
	if i < 0 {
		i, r.sections = len(r.sections), append(r.sections, paceSection{per: per})
	}
	r.sections[i].buckets = buckets
	return r
}

// plus returns the record with the units of a turn added.
func (r paceRecord) plus(l paceLimit, at, n int64) paceRecord {
	all := slices.DeleteFunc(slices.Clone(r.buckets(l.per)), func(b paceBucket) bool { return b.at+l.per <= at })
	if last := len(all) - 1; last >= 0 && all[last].takes(at, (l.per+239)/240, r.shift) {
		all[last].at, all[last].units = at, all[last].units+n
	} else {
		all = append(all, paceBucket{at, n, l.max > 256})
	}
	return r.with(l.per, all)
}

// takes reports whether a turn at the time at joins the bucket. A pause shifts the boundaries of
// buckets.
func (b paceBucket) takes(at, width, shift int64) bool {
	return b.at == at || b.coarse && b.at-mod(b.at-shift, width) == at-mod(at-shift, width)
}

func mod(a, b int64) int64 { return (a%b + b) % b }

// turn returns the earliest turn of n units.
func (d paceDesign) turn(r paceRecord, now, n int64, limits []paceLimit) int64 {
	at := max(now, r.pauseEnd)
	if !d.noOrder {
		at = max(at, r.floor)
	}
	for _, l := range limits {
		units := n
		for _, b := range slices.Backward(r.buckets(l.per)) {
			if units += b.units; units > l.max {
				at = max(at, b.at+l.per)
				break
			}
		}
	}
	return at
}

// book books k turns of n units.
func (d paceDesign) book(r paceRecord, now, n, k, horizon int64, limits []paceLimit) (paceRecord, paceReply) {
	before := r
	r, changed := d.seen(r, now, horizon)
	reply := paceReply{shift: r.shift, pauseEnd: r.pauseEnd}
	for asked := r; reply.first < k; {
		if !d.eachAlone {
			asked = r
		}
		at := d.turn(asked, now, n, limits)
		if at > now+horizon {
			reply.wait = at - horizon - now
			if d.denialRaisesFloor {
				r.floor, changed = at, true
			}
			break
		}
		for _, l := range limits {
			r = r.plus(l, at, n)
		}
		r.floor, reply.first, reply.turns = max(r.floor, at), reply.first+1, append(reply.turns, at)
	}
	if reply.first == 0 && (!changed || d.denialDropsRepair) {
		return before, reply
	}
	return d.written(r, now), reply
}

// cancel frees n units of a turn that was booked for the time at under the given shift.
func (d paceDesign) cancel(r paceRecord, now, n, at, shift int64, limits []paceLimit) (paceRecord, paceReply) {
	before := r
	r, changed := d.seen(r, now, 0)
	reply := paceReply{shift: r.shift, pauseEnd: r.pauseEnd}
	if !d.cancelForgetsShift {
		at += r.shift - shift
	}
	if (at >= r.pauseEnd || d.cancelFindsPast) && at > r.stepped && shift <= r.shift && !d.cancelFreesNothing {
		for _, l := range limits {
			all := slices.Clone(r.buckets(l.per))
			i := slices.IndexFunc(all, func(b paceBucket) bool { return b.at >= at })
			if i < 0 || all[i].at-at >= l.width() || at+l.per <= max(now, r.floor) {
				continue
			}
			reply.first = 1
			if all[i].units -= n; all[i].units <= 0 {
				all = slices.Delete(all, i, i+1)
				if i > 0 && i == len(all) {
					all[i-1].coarse = false
				}
			}
			r = r.with(l.per, all)
		}
	}
	if d.cancelLowersFloor {
		r.floor = 0
		for _, s := range r.sections {
			for _, b := range s.buckets {
				r.floor = max(r.floor, b.at)
			}
		}
	}
	if reply.first == 0 && !changed {
		return before, reply
	}
	return d.written(r, now), reply
}

// pause ensures that no turn comes before now + length.
func (d paceDesign) pause(r paceRecord, now, length int64) (paceRecord, paceReply) {
	before := r
	r, changed := d.seen(r, now, 0)
	added := now + length - max(now, r.pauseEnd)
	if d.pauseAddsAll {
		added = length
	}
	if d.pauseShortens && added <= 0 {
		r.pauseEnd, changed = now+length, true
	}
	if added <= 0 {
		if !changed {
			return before, paceReply{shift: r.shift, pauseEnd: r.pauseEnd}
		}
		return d.written(r, now), paceReply{shift: r.shift, pauseEnd: r.pauseEnd}
	}
	from := now
	if d.pauseSparesNow {
		from++
	}
	sections := r.sections
	r.sections = nil
	for _, s := range sections {
		s.buckets = slices.Clone(s.buckets)
		for i := range s.buckets {
			if s.buckets[i].at >= from && !d.pauseMovesNothing {
				s.buckets[i].at += added
			}
		}
		r.sections = append(r.sections, s)
	}
	if r.floor >= from && !d.pauseMovesNothing && !d.pauseKeepsFloor {
		r.floor += added
	}
	if r.stepped > 0 && !d.pauseKeepsStepped {
		r.stepped += added
	}
	r.pauseEnd, r.shift = now+length, r.shift+added
	return d.written(r, now), paceReply{first: 1, shift: r.shift, pauseEnd: r.pauseEnd}
}

// A paceWorld holds a key, the clock of its server, and an exact log of what its callers know. The
// log does not depend on the clock: in it, time passes when the clock moves forward, and stands
// still when the clock steps back.
type paceWorld struct {
	paceDesign
	record  paceRecord
	now     int64 // the time on the clock
	time    int64 // the time in the log
	turns   []pacedTurn
	newest  int64 // the newest turn ever booked, in the time of the log
	paused  int64 // the end of the pause, in the time of the log
	ahead   int64 // how far in the future anything was at the last write
	stepped bool  // the clock has stepped back
	mixed   bool  // callers have different Max, so an exact limit may have coarse buckets
}

// A pacedTurn is a turn that a caller holds.
type pacedTurn struct {
	at, shift int64 // as in the reply to the caller
	units     int64
	time      int64 // when the caller goes, in the time of the log
	late      int64 // a bucket counts it at most Per/240 after this
	limits    []paceLimit
	gone      bool // the turn came before a pause
	stepped   bool // the clock has stepped back since
	canceled  bool // cancelled by its caller
	kept      bool // cancelled, but its units still count
}

// A paceAction is something that can happen next: bookings, the cancellation of a turn, a pause, or
// a step of the clock.
type paceAction struct {
	limits        []paceLimit
	n, k, horizon int64
	cancel        int // 1 for the first turn; 0 if none
	pause, step   int64
}

func (a paceAction) String() string {
	switch {
	case a.k > 0:
		return fmt.Sprintf("book %d turns of %d within %d under %v", a.k, a.n, a.horizon, a.limits)
	case a.cancel > 0:
		return fmt.Sprintf("cancel turn %d", a.cancel)
	case a.pause > 0:
		return fmt.Sprintf("pause %d", a.pause)
	}
	return fmt.Sprintf("clock %d", a.step)
}

// do returns the world after an action, the reply, and the promise that it broke, or "".
func (w paceWorld) do(a paceAction) (paceWorld, paceReply, string) {
	before := w.record
	var reply paceReply
	var broken string
	switch {
	case a.k > 0:
		w, reply, broken = w.book(a)
	case a.cancel > 0:
		w, reply = w.cancel(a.cancel - 1)
	case a.pause > 0:
		w, reply, broken = w.pause(a.pause)
	default:
		return w.step(a.step), reply, ""
	}
	w.recall(before)
	if broken == "" {
		broken = w.dues()
	}
	return w, reply, broken
}

// recall updates w.ahead after a write: how far after now the latest turn or pause is. Once the
// clock has stepped back, the record may hold later times than the log, so w.ahead only grows.
func (w *paceWorld) recall(before paceRecord) {
	if reflect.DeepEqual(before, w.record) {
		return
	}
	ahead := max(0, w.newest-w.time, w.paused-w.time)
	if w.stepped {
		ahead = max(ahead, w.ahead+w.record.shift-before.shift)
	}
	w.ahead = ahead
}

// step moves the clock.
func (w paceWorld) step(by int64) paceWorld {
	w.now, w.time = w.now+by, w.time+max(0, by)
	if by < 0 {
		w.stepped, w.turns = true, slices.Clone(w.turns)
		for i := range w.turns {
			w.turns[i].stepped = true
		}
	}
	return w
}

// book books turns, and checks the order, the earliest time, the horizon, and that a refused
// booking changes nothing.
func (w paceWorld) book(a paceAction) (paceWorld, paceReply, string) {
	before := w.record
	after, reply := w.paceDesign.book(w.record, w.now, a.n, a.k, a.horizon, a.limits)
	w.record = after
	single := before
	for range reply.first {
		single, _ = w.paceDesign.book(single, w.now, a.n, 1, a.horizon, a.limits)
	}
	if reply.first > 1 && !reflect.DeepEqual(single, after) {
		return w, reply, fmt.Sprintf("%d calls leave %v, but one leaves %v", reply.first, single, after)
	}
	ahead := w.ahead
	for _, at := range reply.turns {
		time := w.time + at - w.now
		if time < w.newest {
			return w, reply, fmt.Sprintf("the turn %d is before an earlier one", at)
		}
		if broken := w.timely(time, ahead, a); broken != "" {
			return w, reply, broken
		}
		ahead = max(ahead, time-w.time)
		w.newest = time
		w.turns = append(slices.Clip(w.turns), pacedTurn{at: at, shift: reply.shift, units: a.n, time: time, late: time, limits: a.limits})
	}
	if reply.first == a.k {
		return w, reply, ""
	}
	if broken := w.timely(w.time+reply.wait+a.horizon, ahead, a); broken != "" {
		return w, reply, "refused: " + broken
	}
	for _, early := range []int64{1, 0} {
		_, later := w.paceDesign.book(w.record, w.now+reply.wait-early, a.n, 1, a.horizon, a.limits)
		if reply.wait < 1 || (later.first > 0) == (early > 0) {
			return w, reply, fmt.Sprintf("the wait is %d, and %d before its end %d turns are booked", reply.wait, early, later.first)
		}
	}
	_, had := w.paceDesign.book(before, w.now, a.n, 1, 1<<40, a.limits)
	_, has := w.paceDesign.book(w.record, w.now, a.n, 1, 1<<40, a.limits)
	if reply.first == 0 && had.turns[0] != has.turns[0] {
		return w, reply, fmt.Sprintf("a refused booking moves the next turn from %d to %d", had.turns[0], has.turns[0])
	}
	return w, reply, ""
}

// timely checks that a turn is the earliest that the log allows, or at most a bucket later. After
// the clock has stepped back, the turn may be later, but no further in the future than anything
// was.
func (w paceWorld) timely(time, ahead int64, a paceAction) string {
	var width, per int64
	for _, l := range a.limits {
		width, per = max(width, l.width()), max(per, l.per)
	}
	if time > w.time+ahead+per+width {
		return fmt.Sprintf("a turn is %d away, although nothing was further ahead than %d", time-w.time, ahead)
	}
	if earliest := w.earliest(a); time < earliest {
		return fmt.Sprintf("a turn in %d, although the earliest is in %d", time-w.time, earliest-w.time)
	}
	w.turns = slices.Clone(w.turns)
	for i := range w.turns {
		t := &w.turns[i]
		if t.canceled = t.canceled && !t.kept; width > 1 {
			t.time = t.late
		}
	}
	if latest := w.earliest(a); time >= latest+width && !w.stepped && !w.mixed {
		return fmt.Sprintf("a turn in %d, although one is free in %d", time-w.time, latest-w.time)
	}
	return ""
}

// earliest returns the earliest time that the log allows.
func (w paceWorld) earliest(a paceAction) int64 {
	earliest := max(w.time, w.newest, w.paused)
	for !w.allows(earliest, a) {
		next := int64(1 << 62)
		for _, t := range w.turns {
			for _, l := range a.limits {
				if t.time+l.per > earliest {
					next = min(next, t.time+l.per)
				}
			}
		}
		earliest = next
	}
	return earliest
}

// allows reports whether the log allows a turn at the given time, provided that no turn under the
// same limits is later.
func (w paceWorld) allows(time int64, a paceAction) bool {
	for _, l := range a.limits {
		if a.n+w.units(l.per, time, len(w.turns)) > l.max {
			return false
		}
	}
	return true
}

// units returns how many units the log has among the first turns, in the interval of length per
// that ends at time.
func (w paceWorld) units(per, time int64, first int) (units int64) {
	for _, t := range w.turns[:first] {
		if !t.canceled && t.time > time-per && slices.ContainsFunc(t.limits, func(l paceLimit) bool { return l.per == per }) {
			units += t.units
		}
	}
	return units
}

// bounded checks that no interval of length Per that ends with a turn holds more units than the
// limits of that turn allowed.
func (w paceWorld) bounded() string {
	for i, t := range w.turns {
		for _, l := range t.limits {
			if t.canceled {
				continue
			}
			if units := w.units(l.per, t.time, i+1); units > l.max {
				return fmt.Sprintf("%d units in %v before turn %d", units, l, i+1)
			}
		}
	}
	return ""
}

// cancel cancels a turn. If it came before a pause, or was booked before the clock stepped back, it
// leaves a gap.
func (w paceWorld) cancel(i int) (paceWorld, paceReply) {
	t := w.turns[i]
	after, reply := w.paceDesign.cancel(w.record, w.now, t.units, t.at, t.shift, t.limits)
	w.record, w.turns = after, slices.Clone(w.turns)
	w.turns[i].canceled, w.turns[i].kept = true, t.gone
	return w, reply
}

// pause pauses the queue. The shift says how far the callers' turns move. After the clock has
// stepped back, that can be less than the length of the pause, because the record may already hold
// the turns at later times.
func (w paceWorld) pause(length int64) (paceWorld, paceReply, string) {
	after, reply := w.paceDesign.pause(w.record, w.now, length)
	added, want := after.shift-w.record.shift, max(0, w.time+length-max(w.time, w.paused))
	w.record, w.turns = after, slices.Clone(w.turns)
	if added != want && !w.stepped || added > want {
		return w, reply, fmt.Sprintf("a pause adds %d, but the log has %d", added, want)
	}
	for i := range w.turns {
		t := &w.turns[i]
		if t.late > w.time-t.widest() {
			t.late += added // the turn's bucket may have moved
		}
		if t.time < w.time {
			t.gone = t.gone || added > 0
		} else if t.time += added; t.time < w.time+length && !t.canceled && !t.stepped {
			return w, reply, fmt.Sprintf("turn %d comes in %d", i+1, t.time-w.time)
		}
	}
	if w.newest >= w.time {
		w.newest += added
	}
	w.paused = max(w.paused, w.time+length)
	return w, reply, ""
}

// widest returns the width of the widest bucket that counts the turn.
func (t pacedTurn) widest() (width int64) {
	for _, l := range t.limits {
		width = max(width, l.width())
	}
	return width
}

// dues checks when callers consider their turns due, as the header of pace.lua defines it. After
// the clock has stepped back, a caller that follows this definition is late.
func (w paceWorld) dues() string {
	seen, _ := w.seen(w.record, w.now, 0)
	for i, t := range w.turns {
		due := max(t.at+seen.shift-t.shift, seen.pauseEnd) - w.now
		if t.canceled || t.stepped || t.gone && due <= max(0, w.paused-w.time) {
			continue
		}
		if want := t.time - w.time; due != want && !w.stepped && (due > 0 || want > 0) {
			return fmt.Sprintf("turn %d is due in %d, but in the log in %d", i+1, due, want)
		}
	}
	return ""
}

// search returns a history of at most depth actions that breaks a promise, or "".
func (w paceWorld) search(depth int, actions []paceAction) string {
	all := slices.Clip(actions)
	for i, t := range w.turns {
		if !t.canceled {
			all = append(all, paceAction{cancel: i + 1})
		}
	}
	for _, a := range all {
		if depth == 1 && a.step != 0 {
			continue // no later action could notice it
		}
		next, _, found := w.do(a)
		if found == "" {
			found = next.bounded()
		}
		if found == "" && depth > 1 {
			found = next.search(depth-1, actions)
		}
		if found != "" {
			return fmt.Sprint(a, "; ", found)
		}
	}
	return ""
}

// searchPace returns a shortest history of at most depth actions that breaks a promise, or "".
func searchPace(d paceDesign, depth int, actions []paceAction) string {
	for n := 1; n <= depth; n++ {
		if found := (paceWorld{paceDesign: d, now: 100, time: 100}).search(n, actions); found != "" {
			return found
		}
	}
	return ""
}

var (
	bothLimits = []paceLimit{{3, 2}, {5, 3}}
	oneLimit   = []paceLimit{{3, 2}}

	// paceActions holds bookings under one limit and under two limits, with a near and a far
	// horizon, and steps of the clock by less and by more than the distance to the turns.
	paceActions = []paceAction{
		{k: 1, n: 1, horizon: 50, limits: bothLimits},
		{k: 2, n: 2, horizon: 50, limits: bothLimits},
		{k: 1, n: 1, horizon: 2, limits: oneLimit},
		{pause: 2},
		{pause: 4},
		{step: 1},
		{step: 4},
		{step: -3},
		{step: -9},
	}
)

// pauseActions leaves room for histories with several pauses.
var pauseActions = []paceAction{
	{k: 1, n: 1, horizon: 50, limits: []paceLimit{{3, 1}}}, {step: 1}, {pause: 2}, {step: 3}, {pause: 1},
}

// stepActions leaves room for histories in which the clock steps back before a cancellation.
var stepActions = []paceAction{
	{k: 1, n: 1, horizon: 50, limits: []paceLimit{{3, 1}}}, {step: 3}, {step: -3}, {pause: 3},
}

// TestPaceModel searches all histories of bookings, cancellations, pauses and steps of the clock.
func TestPaceModel(t *testing.T) {
	if found := searchPace(paceDesign{}, redistest.UnlessShort(6, 5), paceActions); found != "" {
		t.Error(found)
	}
	if found := searchPace(paceDesign{}, redistest.UnlessShort(8, 7), pauseActions); found != "" {
		t.Error(found)
	}
	if found := searchPace(paceDesign{}, redistest.UnlessShort(8, 7), stepActions); found != "" {
		t.Error(found)
	}
}

// TestPaceModelNeedsItsRules checks that no rule can be left out: without it, the search finds a
// broken promise.
func TestPaceModelNeedsItsRules(t *testing.T) {
	if testing.Short() {
		t.Skip("it searches 21 designs")
	}
	for name, d := range map[string]paceDesign{
		"no order":                              {noOrder: true},
		"turns of a call alone":                 {eachAlone: true},
		"cancel lowers the floor":               {cancelLowersFloor: true},
		"cancel frees nothing":                  {cancelFreesNothing: true},
		"cancel forgets the shift":              {cancelForgetsShift: true},
		"cancel of a past turn":                 {cancelFindsPast: true},
		"cancel forgets steps of the clock":     {cancelForgetsSteps: true},
		"a step forgets the pause":              {stepForgetsPause: true},
		"a pause keeps the step":                {pauseKeepsStepped: true},
		"an empty record is forgotten":          {emptyIsForgotten: true},
		"no repair of dates":                    {noRepair: true},
		"repair by the horizon":                 {repairByHorizon: true},
		"repair to now":                         {repairToNow: true},
		"the end of a pause stays":              {pauseEndStays: true},
		"a denial drops the repair":             {denialDropsRepair: true},
		"a denial raises the floor":             {denialRaisesFloor: true},
		"a pause moves nothing":                 {pauseMovesNothing: true},
		"a second pause adds all":               {pauseAddsAll: true},
		"a shorter pause ends one":              {pauseShortens: true},
		"a pause spares a turn that is due now": {pauseSparesNow: true},
		"a pause keeps the floor":               {pauseKeepsFloor: true},
	} {
		t.Run(name, func(t *testing.T) {
			found := searchPace(d, 5, paceActions)
			if found == "" {
				found = searchPace(d, 8, pauseActions)
			}
			if found == "" {
				found = searchPace(d, 8, stepActions)
			}
			if found == "" {
				t.Error("the search finds no history that breaks a promise")
			}
			t.Log(found)
		})
	}
}
