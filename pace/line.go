package pace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/send"
)

// A line holds the callers in this process that wait for turns of an event, first come, first
// served. It books turns for the callers at its front, one booking call at a time. Each turn goes
// to the first waiter that wants the turn's number of units. The turn of a caller that leaves
// therefore goes to the next waiter, and only turns that no caller waits for are cancelled. A line
// has no goroutine of its own. It steps when a caller joins or leaves, when a reply arrives, and
// when its timer fires.
type line struct {
	limiter *Limiter
	event   string

	mu         sync.Mutex
	gone       bool // the line became empty, and another may have taken its place
	waiters    []*waiter
	turns      []turn // booked but not yet given to a waiter, in order
	unwanted   []turn // to be cancelled
	givingBack int    // number of cancellations in flight
	booking    units  // the turns that a call in flight is booking, for the first waiters that have no turn
	calls      int    // calls in flight
	refused    refusal
	heard      time.Time      // when the last reply from Redis about the event arrived
	last       map[bool]state // the newest known state of pauses, in Redis (false) and in the Fallback (true)
	asked      time.Time      // when pauses were last asked for
	took       time.Duration  // how long the last such call took
	soon       bool           // the timer is about to step the line
	timer      *time.Timer    // steps the line
}

// units is a number of turns, of n units each.
type units struct {
	n     int64
	turns int
}

// A refusal says that the next turn of n units is too far in the future to be booked. The zero
// value means that there is no refusal.
type refusal struct {
	n        int64
	told     time.Time // when the refusal arrived
	earliest time.Time // no turn can come before this
	until    time.Time // when to try again
}

// A waiter waits for a turn of n units.
type waiter struct {
	n        int64
	deadline time.Time // zero if there is none
	answered bool      // a reply has shown whether a turn can come before the deadline
	over     bool      // the caller has left, or has an answer
	turn     turn      // the turn that was given to it
	done     chan error
}

// end answers the waiter, unless it has left or already has an answer.
func (w *waiter) end(err error) {
	if !w.over {
		w.over = true
		w.done <- err
	}
}

// A turn is a booked turn, on the clock of this process.
type turn struct {
	Reservation
	trace   send.Trace // of the call that booked it
	due     time.Time
	shifted int64 // the shift of turns by pauses when due was computed
	asked   bool  // pauses were asked for in time for this turn
}

const (
	mostTurns      = 256                    // most turns that one call books
	mostGivingBack = 64                     // most cancellations in flight at the same time
	maxLate        = time.Second            // a turn that is later than this is missed
	hearsWithin    = 100 * time.Millisecond // a turn is given out only if a reply about the event is at most this old; otherwise the line asks first
	asksBefore     = 50 * time.Millisecond  // how long before a turn the line asks
	asksFor        = 500 * time.Millisecond // how long the line waits for the reply; if none comes, it assumes that there is no pause
)

// lines holds the lines of all events.
type lines struct {
	mu sync.Mutex
	of map[string]*line
}

// join adds w to the line of the event, and returns the line.
func (s *lines) join(l *Limiter, event string, w *waiter) *line {
	for {
		s.mu.Lock()
		on := s.of[event]
		if on == nil {
			on = &line{limiter: l, event: event, last: map[bool]state{}}
			on.timer = time.AfterFunc(math.MaxInt64, on.tick) // add sets the time
			s.of[event] = on
		}
		s.mu.Unlock()
		if on.add(w) {
			return on
		}
	}
}

// add adds w to the line, and reports whether it did. It does not if the line is gone.
func (l *line) add(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return false
	}
	l.waiters = append(l.waiters, w)
	l.stepSoon()
	return true
}

// leave removes w. If w has just been given a turn, the turn goes to another waiter.
func (l *line) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.over = true
	if w.turn.OK {
		l.insert(w.turn)
		l.step() // even if the line is gone
	} else {
		l.stepSoon()
	}
}

// stepSoon schedules a step. Callers that join or leave at about the same time share one step.
func (l *line) stepSoon() {
	if !l.soon {
		l.soon = true
		l.timer.Reset(0)
	}
}

// insert inserts a turn so that turns stay in order.
func (l *line) insert(t turn) {
	i, _ := slices.BinarySearchFunc(l.turns, t, func(a, b turn) int { return cmp.Or(a.due.Compare(b.due), -1) })
	l.turns = slices.Insert(l.turns, i, t)
}

// step does everything that can be done now. The caller must hold the mutex. The same applies to
// all methods that step calls.
func (l *line) step() {
	now := time.Now()
	l.soon = false
	l.dropMissed(now)
	uncovered := l.hopeful(now, l.cover())
	l.release(now)
	l.giveBack()
	l.book(now, uncovered)
	l.ask(now)
	l.sleep(now, len(uncovered) > 0)
}

// dropMissed drops turns that came more than maxLate ago, for example because the process was
// suspended.
func (l *line) dropMissed(now time.Time) {
	for len(l.turns) > 0 && now.Sub(l.turns[0].due) > maxLate {
		l.unwanted = append(l.unwanted, l.turns[0])
		l.turns = l.turns[1:]
	}
}

// cover matches each waiter with the next turn of the right number of units, and fails waiters
// whose turn would come after their deadline. It removes waiters that are over, and drops turns
// that no caller waits for. It returns, in order, the waiters for which no turn is booked or being
// booked.
func (l *line) cover() (uncovered []*waiter) {
	free := map[int64][]int{} // indices of turns without a waiter, by units
	for i, t := range l.turns {
		free[t.N] = append(free[t.N], i)
	}
	left, under := len(l.turns), l.booking
	uncovered = make([]*waiter, 0, len(l.waiters))
	l.waiters = slices.DeleteFunc(l.waiters, func(w *waiter) bool {
		switch {
		case w.over:
			return true
		case left > 0 && len(free[w.n]) > 0:
			next := free[w.n][0]
			if w.isBefore(l.turns[next].due) {
				w.end(l.tooLate(time.Until(l.turns[next].due)))
				return true
			}
			free[w.n] = free[w.n][1:]
			left--
		case under.turns > 0 && under.n == w.n:
			under.turns--
		default:
			uncovered = append(uncovered, w)
		}
		return false
	})
	surplus := slices.Concat(slices.Collect(maps.Values(free))...)
	slices.Sort(surplus)
	for _, i := range slices.Backward(surplus) {
		l.unwanted = append(l.unwanted, l.turns[i])
		l.turns = slices.Delete(l.turns, i, i+1)
	}
	return uncovered
}

// giveBack cancels dropped turns, at most mostGivingBack at a time.
func (l *line) giveBack() {
	for ; len(l.unwanted) > 0 && l.givingBack < mostGivingBack; l.unwanted = l.unwanted[1:] {
		r := l.unwanted[0].Reservation
		l.givingBack++
		l.call(func(ctx context.Context) {
			_ = l.limiter.cancel(ctx, r)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.givingBack--
		})
	}
}

// isBefore reports whether the waiter's deadline is before due.
func (w *waiter) isBefore(due time.Time) bool { return !w.deadline.IsZero() && w.deadline.Before(due) }

// hopeful fails the waiters whose deadline comes before any turn that they can get, and returns the
// others. It does so only for a short time after a reply that said when the next turn can come.
func (l *line) hopeful(now time.Time, waiters []*waiter) []*waiter {
	if len(waiters) == 0 || waiters[0].n != l.refused.n || now.Sub(l.refused.told) > hearsWithin {
		return waiters
	}
	ahead := int64(0) // units of the waiters before this one
	hopeful := slices.DeleteFunc(waiters, func(w *waiter) bool {
		w.answered = true
		earliest := l.refused.earliest.Add(l.limiter.span(ahead + w.n))
		if w.isBefore(earliest) {
			w.end(l.tooLate(earliest.Sub(now)))
			return true
		}
		ahead += w.n
		return false
	})
	l.waiters = slices.DeleteFunc(l.waiters, func(w *waiter) bool { return w.over })
	return hopeful
}

// span returns the minimum time from the first to the last turn if the turns have the given number
// of units in total.
func (l *Limiter) span(units int64) (longest time.Duration) {
	for _, limit := range l.limits {
		longest = max(longest, time.Duration((units-1)/limit.Max)*limit.Per)
	}
	return longest
}

// release gives each turn whose time has come to its waiter.
func (l *line) release(now time.Time) {
	for len(l.turns) > 0 && !l.turns[0].due.After(now) && !l.mustAsk(l.turns[0]) {
		t := l.turns[0]
		l.turns = l.turns[1:]
		i := slices.IndexFunc(l.waiters, func(w *waiter) bool { return w.n == t.N })
		w := l.waiters[i]
		w.turn = t
		w.end(nil)
		l.waiters = slices.Delete(l.waiters, i, i+1)
	}
}

// mustAsk reports whether the turn must wait for a reply about the event. It returns false if the
// line has asked in time, even if the reply is late: otherwise turns would pile up and then come
// all at once.
func (l *line) mustAsk(t turn) bool {
	return !t.Degraded && !t.asked && l.heard.Before(t.due.Add(-hearsWithin))
}

// call calls do in the background, and then steps the line.
func (l *line) call(do func(ctx context.Context)) {
	l.calls++
	go func() {
		ctx, cancel := l.limiter.engine.Finishing(context.Background())
		defer cancel()
		do(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls--
		l.step()
	}()
}

// book books turns for the first consecutive uncovered waiters that want the same number of units.
// It books no turn after the earliest of their deadlines.
func (l *line) book(now time.Time, uncovered []*waiter) {
	if len(uncovered) == 0 || l.booking.turns > 0 || l.mustWait(now, uncovered) {
		return
	}
	n, turns, ahead := uncovered[0].n, 0, l.limiter.ahead()
	for _, w := range uncovered[:min(len(uncovered), mostTurns)] {
		if w.n != n {
			break
		}
		turns++
		if !w.deadline.IsZero() {
			ahead = min(ahead, max(0, w.deadline.Sub(now)))
		}
	}
	want, first := units{n, turns}, uncovered[:turns]
	l.booking = want
	l.call(func(ctx context.Context) { l.bookFor(ctx, want, first, ahead.Milliseconds()) })
}

// mustWait reports whether booking must wait, because the next turn is too far in the future. It
// returns false if a waiter has a deadline, and no reply has shown yet whether a turn can come
// before that deadline.
func (l *line) mustWait(now time.Time, uncovered []*waiter) bool {
	return l.refused.n == uncovered[0].n && now.Before(l.refused.until) &&
		!slices.ContainsFunc(uncovered, func(w *waiter) bool { return !w.answered && !w.deadline.IsZero() })
}

// bookFor books turns for the waiters in first, none more than ahead ms from now.
func (l *line) bookFor(ctx context.Context, want units, first []*waiter, ahead int64) {
	b, err := l.limiter.book(ctx, l.event, int64(want.turns), want.n, ahead)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.booking, l.refused = units{}, refusal{}
	l.hear(b.state, b.arrived, b.degraded)
	for _, r := range b.reservations(l.event, want.n) {
		l.insert(b.turn(r))
	}
	l.move()
	if err == nil && len(b.turns) < want.turns {
		l.refused = b.refusal(want.n, b.wait()+clock.Milliseconds(ahead), l.limiter.ahead())
	}
	for i := 0; err != nil && i < len(first); i++ {
		first[i].end(err)
	}
}

// refusal returns a refusal of turns of n units. next is how long it takes until the next turn can
// come, and ahead is how long before a turn it can be booked.
func (b *booking) refusal(n int64, next, ahead time.Duration) refusal {
	r := refusal{n: n, told: b.arrived, earliest: b.arrived.Add(next), until: b.arrived}
	if next > ahead { // not just next - ahead, because another process may cancel turns before then
		r.until = b.arrived.Add(min(next-ahead, ahead) + ahead/16)
	}
	return r
}

// ask asks by how much pauses have shifted turns, if a turn comes soon and the last reply will be
// too old by then.
func (l *line) ask(now time.Time) {
	if at := l.asksAt(); at.IsZero() || now.Before(at) {
		return
	}
	l.asked = now
	for i := range l.turns { // the reply should arrive in time for these turns, even if timers are late
		if t := &l.turns[i]; t.due.Sub(now) > asksBefore/2 && !t.due.After(now.Add(l.took+hearsWithin)) {
			t.asked = true
		}
	}
	l.call(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, asksFor)
		defer cancel()
		s, err := l.limiter.store.ask(ctx, l.event)
		arrived := time.Now()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.took = arrived.Sub(now); err != nil { // assume that there is no pause
			l.heard = arrived
		} else {
			l.hear(s, arrived, false)
			l.move()
		}
	})
}

// asksAt returns when to ask so that the reply arrives in time, or zero if no turn needs a reply.
func (l *line) asksAt() time.Time {
	until := l.heard.Add(hearsWithin)
	if reply := l.asked.Add(l.took + hearsWithin); reply.After(until) {
		until = reply // the reply may still be on its way
	}
	for _, t := range l.turns {
		if !t.Degraded && t.due.After(until) {
			return t.due.Add(-asksBefore - l.took)
		}
	}
	return time.Time{}
}

// hear records what a reply says about pauses. Replies can arrive out of order, so hear ignores an
// older state.
func (l *line) hear(s state, arrived time.Time, degraded bool) {
	if s.now == 0 {
		return
	}
	if !degraded {
		l.heard = arrived
	}
	if last := l.last[degraded]; s.now > last.now || s.shift > last.shift {
		l.last[degraded] = s
	}
}

// move postpones turns as the known pauses require. It drops turns that came before a pause without
// being given to a waiter: they are missed.
func (l *line) move() {
	l.turns = slices.DeleteFunc(l.turns, func(t turn) bool { return l.last[t.Degraded].paused(t.Reservation) })
	for i := range l.turns {
		t := &l.turns[i]
		s := l.last[t.Degraded]
		t.due = t.due.Add(clock.Milliseconds(s.since(t.shifted)))
		t.shifted = s.shift
	}
}

// sleep sets the timer, and removes the line if it is empty.
func (l *line) sleep(now time.Time, uncovered bool) {
	if len(l.waiters)+len(l.turns)+l.calls == 0 {
		l.gone = true
		l.limiter.lines.remove(l)
		return
	}
	next := time.Time{}
	if len(l.turns) > 0 && !l.mustAsk(l.turns[0]) { // otherwise a reply will step the line
		next = l.turns[0].due
	}
	if next = sooner(next, l.asksAt()); uncovered && l.booking.turns == 0 {
		next = sooner(next, l.refused.until)
	}
	if !next.IsZero() {
		l.timer.Reset(next.Sub(now))
	}
}

// sooner returns the earlier of two times. It ignores zero times.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (l *line) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.gone {
		l.step()
	}
}

// hear passes the state of an event's pauses to the event's line.
func (s *lines) hear(event string, now state, degraded bool) {
	s.on(event, func(l *line) {
		l.hear(now, time.Now(), degraded)
		l.move()
	})
}

// retry lets the event's line book turns again, even if it was refused.
func (s *lines) retry(event string) { s.on(event, func(l *line) { l.refused = refusal{} }) }

// on calls do for the event's line, if there is one, and then steps the line.
func (s *lines) on(event string, do func(l *line)) {
	s.mu.Lock()
	l := s.of[event]
	s.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.gone {
		do(l)
		l.step()
	}
}

func (s *lines) remove(l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[l.event] == l {
		delete(s.of, l.event)
	}
}

// tooLate returns the error for a waiter whose turn would come in after, which is past its
// deadline.
func (l *line) tooLate(after time.Duration) error { return l.limiter.engine.Wrap(&lateError{after}) }

// A lateError says that a turn would come after the deadline.
type lateError struct{ after time.Duration }

func (e *lateError) Error() string {
	return fmt.Sprintf("the turn would come in %v, after the deadline, so none was booked: %v", clock.Rounded(e.after), context.DeadlineExceeded)
}

func (*lateError) Unwrap() error { return context.DeadlineExceeded }
