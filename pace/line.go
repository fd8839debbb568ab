package pace

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/pipeline"
)

// A line is those who wait for turns of an event in this process, first come, first served. It books
// turns for all of them, and gives each turn that comes to the first of those who wait for as many
// units. So who leaves hands a turn to the next one, and only turns that nobody waits for are
// cancelled. It has no goroutine of its own: whoever joins, leaves or brings a reply lets it step on,
// and so does its timer.
type line struct {
	limiter *Limiter
	event   string

	mu       sync.Mutex
	gone     bool // it was empty, and another one may have taken its place
	waiters  []*waiter
	turns    []turn    // booked, and not taken; in order
	booking  units     // how many turns a call books now
	calls    int       // under way
	refused  bool      // no more turns could be booked ahead
	bookAt   time.Time // when to try again
	told     time.Time // when that was heard
	earliest time.Time // then no turn could come before
	heard    time.Time // when the last reply about the event came
	asking   bool
	timer    *time.Timer
}

// units is a number of turns of as many units each.
type units struct {
	n     int64
	turns int
}

// A waiter waits for a turn of n units.
type waiter struct {
	n        int64
	deadline time.Time // zero if there is none
	alone    bool      // the deadline comes before MaxAhead, so that its turn is booked for it alone
	booked   bool      // alone: a call was made
	turn     turn      // that it got
	done     chan error
}

// A turn is booked, on the clock of this process.
type turn struct {
	Reservation
	due     time.Time
	shifted int64   // by how much pauses had shifted turns when due was known
	owner   *waiter // that is alone; nil if it is for anybody
}

const (
	mostTurns   = 256                    // in one call
	maxLate     = time.Second            // after a turn: then it is booked again
	hearsWithin = 100 * time.Millisecond // before a turn, the process has heard of the event, or asks
	asksBefore  = 50 * time.Millisecond  // a turn
)

// lines are those of all events.
type lines struct {
	mu sync.Mutex
	of map[string]*line
}

// join adds a waiter to the line of an event.
func (s *lines) join(l *Limiter, event string, w *waiter) *line {
	for {
		s.mu.Lock()
		on := s.of[event]
		if on == nil {
			on = &line{limiter: l, event: event}
			s.of[event] = on
		}
		s.mu.Unlock()
		if on.add(w) {
			return on
		}
	}
}

// add adds a waiter, unless the line is gone.
func (l *line) add(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return false
	}
	l.waiters = append(l.waiters, w)
	if l.booking.turns == 0 || w.isAlone(time.Now(), l.limiter.ahead()) { // otherwise the reply lets the line step on
		l.step()
	}
	return true
}

// leave removes a waiter. A turn that it just got is for others.
func (l *line) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters = slices.DeleteFunc(l.waiters, func(other *waiter) bool { return other == w })
	if w.turn.OK {
		l.insert(w.turn)
	}
	for i := range l.turns {
		if l.turns[i].owner == w {
			l.turns[i].owner = nil
		}
	}
	l.step()
}

// insert adds a turn in its place.
func (l *line) insert(t turn) {
	i, _ := slices.BinarySearchFunc(l.turns, t, func(a, b turn) int { return cmp.Or(a.due.Compare(b.due), -1) })
	l.turns = slices.Insert(l.turns, i, t)
}

// step does what can be done now. The mutex must be held, as for all that it calls.
func (l *line) step() {
	now := time.Now()
	l.release(now)
	uncovered := l.cover()
	l.book(now, uncovered)
	l.ask(now)
	l.sleep(now, len(uncovered) > 0)
}

// release gives turns that have come to those who wait for them.
func (l *line) release(now time.Time) {
	for len(l.turns) > 0 && !l.turns[0].due.After(now) && !l.mustAsk(l.turns[0]) {
		t := l.turns[0]
		l.turns = l.turns[1:]
		i := slices.IndexFunc(l.waiters, func(w *waiter) bool { return t.owner == w || t.owner == nil && !w.alone && w.n == t.N })
		switch {
		case now.Sub(t.due) > maxLate:
			if t.owner != nil {
				t.owner.booked = false
			}
		case i >= 0:
			w := l.waiters[i]
			w.turn = t
			l.waiters = slices.Delete(l.waiters, i, i+1)
			w.done <- nil
		}
	}
}

// mustAsk reports whether a turn waits until the process has heard of the event.
func (l *line) mustAsk(t turn) bool { return !t.Degraded && l.heard.Before(t.due.Add(-hearsWithin)) }

// cover returns the waiters for whom no turn is booked, or being booked: those with a deadline, and as many
// others as one call can book for. Turns for which nobody waits
// are cancelled, beginning with the last one.
func (l *line) cover() (uncovered []*waiter) {
	free := map[int64]int{l.booking.n: l.booking.turns}
	for _, t := range l.turns {
		if t.owner == nil {
			free[t.N]++
		}
	}
	for _, w := range l.waiters {
		switch {
		case w.alone && w.booked:
		case !w.alone && free[w.n] > 0:
			free[w.n]--
		case len(uncovered) < mostTurns || !w.deadline.IsZero():
			uncovered = append(uncovered, w)
		}
	}
	for i := len(l.turns) - 1; i >= 0; i-- {
		if t := l.turns[i]; t.owner == nil && free[t.N] > 0 {
			free[t.N]--
			l.turns = slices.Delete(l.turns, i, i+1)
			l.call(func(ctx context.Context) { _ = l.limiter.cancel(ctx, l.event, t.Reservation) })
		}
	}
	return uncovered
}

// call makes a call in the background.
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

// book books turns for those who have none: for each who is alone, and for as many of the first others as
// one call can book. It fails those whose deadline comes before any turn.
func (l *line) book(now time.Time, uncovered []*waiter) {
	var first []*waiter
	for _, w := range uncovered {
		switch {
		case l.refused && now.Sub(l.told) < hearsWithin && !w.deadline.IsZero() && w.deadline.Before(l.earliest):
			l.fail(w, l.tooLate(l.earliest.Sub(now)))
		case w.isAlone(now, l.limiter.ahead()):
			w.alone, w.booked = true, true
			l.call(func(ctx context.Context) { l.bookAlone(ctx, w) })
		case len(first) == 0 || w.n == first[0].n && len(first) < mostTurns:
			first = append(first, w)
		}
	}
	if len(first) == 0 || l.booking.turns > 0 || l.refused && now.Before(l.bookAt) {
		return
	}
	l.booking = units{first[0].n, len(first)}
	l.call(func(ctx context.Context) { l.bookFor(ctx, first) })
}

// isAlone reports whether the deadline comes before MaxAhead.
func (w *waiter) isAlone(now time.Time, ahead time.Duration) bool {
	return w.alone || !w.deadline.IsZero() && w.deadline.Sub(now) < ahead
}

// bookFor books turns for waiters of as many units each.
func (l *line) bookFor(ctx context.Context, first []*waiter) {
	b, err := l.limiter.book(ctx, l.event, int64(len(first)), first[0].n, l.limiter.maxAhead)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.booking = units{}
	l.hear(b.state, b.arrived, b.degraded)
	for _, r := range b.reservations(first[0].n) {
		l.insert(b.turn(r, nil))
	}
	l.refused = err == nil && len(b.turns) < len(first)
	if l.refused {
		ahead := l.limiter.ahead()
		l.told, l.earliest = b.arrived, b.arrived.Add(b.wait()+ahead)
		l.bookAt = b.arrived.Add(min(b.wait(), ahead) + ahead/16) // another process may give turns back
	}
	for i := 0; err != nil && i < len(first); i++ {
		l.fail(first[i], err)
	}
}

// bookAlone books a turn that comes before the deadline of a waiter.
func (l *line) bookAlone(ctx context.Context, w *waiter) {
	left := time.Until(w.deadline)
	b, err := l.limiter.book(ctx, l.event, 1, w.n, max(0, left.Milliseconds()))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hear(b.state, b.arrived, b.degraded)
	switch rs := b.reservations(w.n); {
	case err != nil:
		l.fail(w, err)
	case len(rs) == 0:
		l.fail(w, l.tooLate(b.wait()+left))
	case slices.Contains(l.waiters, w):
		l.insert(b.turn(rs[0], w))
	default: // it has left
		l.insert(b.turn(rs[0], nil))
	}
}

// fail ends the wait of a waiter, unless it has left.
func (l *line) fail(w *waiter, err error) {
	before := len(l.waiters)
	if l.waiters = slices.DeleteFunc(l.waiters, func(other *waiter) bool { return other == w }); len(l.waiters) < before {
		w.done <- err
	}
}

// ask asks how far pauses have shifted the turns, if one comes soon and nothing was heard for some time.
func (l *line) ask(now time.Time) {
	if len(l.turns) == 0 || l.asking || !l.mustAsk(l.turns[0]) || now.Before(l.turns[0].due.Add(-asksBefore)) {
		return
	}
	l.asking = true
	l.call(func(ctx context.Context) {
		s, err := l.limiter.store.ask(ctx, l.event)
		arrived := time.Now()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.asking = false
		if err != nil { // nobody can know of a pause
			l.heard = arrived
		} else {
			l.hear(s, arrived, false)
		}
	})
}

// hear notes what a reply says of pauses, which make all turns come later.
func (l *line) hear(s state, arrived time.Time, degraded bool) {
	if degraded || s.now == 0 {
		return
	}
	l.heard = arrived
	for i := range l.turns {
		if t := &l.turns[i]; !t.Degraded && s.shift > t.shifted {
			t.due = t.due.Add(time.Duration(s.shift-t.shifted) * time.Millisecond)
			t.shifted = s.shift
		}
	}
}

// sleep sets the timer, and removes the line if it is empty.
func (l *line) sleep(now time.Time, uncovered bool) {
	if l.timer != nil {
		l.timer.Stop()
	}
	if len(l.waiters)+len(l.turns)+l.calls == 0 {
		l.gone = true
		l.limiter.lines.remove(l)
		return
	}
	next := time.Time{}
	if len(l.turns) > 0 && !l.asking {
		if next = l.turns[0].due; l.mustAsk(l.turns[0]) {
			next = next.Add(-asksBefore)
		}
	}
	if uncovered && l.booking.turns == 0 && l.refused && (next.IsZero() || l.bookAt.Before(next)) {
		next = l.bookAt
	}
	if !next.IsZero() {
		l.timer = time.AfterFunc(next.Sub(now), l.tick)
	}
}

func (l *line) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.gone {
		l.step()
	}
}

// hear tells the line of an event of a pause.
func (s *lines) hear(event string, now state) {
	s.on(event, func(l *line) { l.hear(now, time.Now(), false) })
}

// retry tells the line of an event that turns can be booked again.
func (s *lines) retry(event string) { s.on(event, func(l *line) { l.refused = false }) }

// on does something with the line of an event, if there is one, and lets it step on.
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

// tooLate is the error of a wait whose turn would come after the deadline.
func (l *line) tooLate(after time.Duration) error {
	err := fmt.Errorf("the turn would come in %v, after the deadline, so none was booked: %w", pipeline.Rounded(after), context.DeadlineExceeded)
	return l.limiter.engine.Wrap(err)
}
