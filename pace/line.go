package pace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/send"
)

// A line holds the callers in this process that wait for turns of an event, first come, first
// served. Each waiter sleeps until its own turn is due, as in golang.org/x/time/rate.
//
// One call at a time books turns, for the first waiters that have none and want the same number of
// units. Calls side by side could overtake each other. If a waiter leaves, its turn passes to the
// next one that wants its number of units, which passes on its own. Only a turn that no waiter wants
// is cancelled, and waiters that come later book after that.
type line struct {
	limiter *Limiter
	event   string
	users   int // callers and calls that use the line; lines.mu guards it

	mu        sync.Mutex      // guards the following
	waiters   []*waiter       // in order of arrival
	booking   bool            // a call is booking turns
	cancelled <-chan struct{} // closed when all cancellations so far have ended
	refused   refusal
	retry     *time.Timer // books turns again after a refusal
	pauses    pauses
}

// A waiter waits for a turn of n units. It is over when its turn has come, when its caller gives up,
// or with an error. It then is no longer in the line.
type waiter struct {
	n        int64
	deadline time.Time // zero if there is none
	turn     turn      // not OK if it has none
	over     bool
	err      error         // why it gets no turn
	woken    chan struct{} // receives after its turn or err has changed
}

// A turn is a booked turn, on the clock of this process.
type turn struct {
	Reservation
	trace   send.Trace // of the call that booked it
	due     time.Time
	shifted int64 // the shift of turns by pauses when due was computed
	asked   bool  // pauses were asked for in time for this turn
}

// A refusal says that the next turn of n units is too far in the future to be booked. The zero
// value means that there is no refusal.
type refusal struct {
	n        int64
	told     time.Time // when the refusal arrived
	earliest time.Time // no turn can come before this
	until    time.Time // when to try again
}

const (
	mostTurns = 256                    // most turns that one call books
	maxLate   = time.Second            // a turn that is later than this is missed
	holds     = 100 * time.Millisecond // how long a refusal proves that a turn comes too late
)

// await waits for a turn of n units.
func (l *Limiter) await(ctx context.Context, event string, n int64) (turn, error) {
	q := l.lines.enter(l, event)
	defer l.lines.exit(q)
	w := &waiter{n: n, woken: make(chan struct{}, 1)}
	w.deadline, _ = ctx.Deadline()
	q.join(w)
	for {
		over, sleep := q.step(w)
		if over {
			return w.turn, w.err
		}
		var slept <-chan time.Time
		if sleep > 0 {
			slept = time.After(sleep)
		}
		select {
		case <-w.woken:
		case <-slept:
		case <-ctx.Done():
			q.leave(w)
			return turn{}, l.base.Wrap(fmt.Errorf("the caller left before its turn, which goes to others: %w", ctx.Err()))
		}
	}
}

// join adds w to the line. If w has a deadline, only a new refusal can fail it.
func (q *line) join(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !w.deadline.IsZero() && time.Since(q.refused.told) > holds {
		q.refused = refusal{}
	}
	q.waiters = append(q.waiters, w)
	q.book()
}

func (q *line) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end(w, nil)
	q.book()
}

// step reports whether w is over. Otherwise it returns how long w sleeps until its next step, or 0
// if it sleeps until it is woken.
func (q *line) step(w *waiter) (over bool, sleep time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for w.turn.OK && now.Sub(w.turn.due) > maxLate { // for example because the process was suspended
		q.miss(w)
		q.book()
	}
	if !w.turn.OK {
		return w.over, 0
	}
	if sleep, ready := q.check(&w.turn, now); !ready {
		return false, sleep
	}
	if sleep = w.turn.due.Sub(now); sleep > 0 {
		return false, sleep
	}
	q.remove(w)
	return true, 0
}

func (q *line) remove(w *waiter) {
	w.over = true
	if i := slices.Index(q.waiters, w); i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
}

// end removes w, with an error unless err is nil. Its turn passes to others.
func (q *line) end(w *waiter, err error) {
	if w.over {
		return
	}
	t := w.turn
	w.turn, w.err = turn{}, err
	q.remove(w)
	w.wake()
	if t.OK {
		q.pass(t)
	}
}

func (w *waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// isBefore reports whether the waiter's deadline is before due.
func (w *waiter) isBefore(due time.Time) bool { return !w.deadline.IsZero() && w.deadline.Before(due) }

// pass gives a turn to the first waiter for its number of units that has none, or a later one. That
// waiter passes on its own turn in the same way. A waiter whose deadline is before the turn fails,
// because any other turn would be later still.
func (q *line) pass(t turn) {
	for i := 0; i < len(q.waiters); i++ {
		w := q.waiters[i]
		if w.n != t.N || w.turn.OK && !t.due.Before(w.turn.due) {
			continue
		}
		if w.isBefore(t.due) {
			q.end(w, q.tooLate(time.Until(t.due)))
			i--
			continue
		}
		t, w.turn = w.turn, t
		if w.wake(); !t.OK {
			return
		}
	}
	q.giveBack(t)
}

// miss cancels the turn of w, which came without being used. The turns behind it move up by one
// waiter.
func (q *line) miss(w *waiter) {
	q.giveBack(w.turn)
	for _, next := range q.waiters[slices.Index(q.waiters, w)+1:] {
		if next.n == w.n && next.turn.OK {
			w.turn, w = next.turn, next
		}
	}
	w.turn = turn{}
}

// giveBack cancels a turn.
func (q *line) giveBack(t turn) {
	earlier, done := q.cancelled, make(chan struct{})
	q.cancelled = done
	q.call(func(ctx context.Context) {
		_ = q.limiter.cancel(ctx, t.Reservation)
		<-earlier
		close(done)
	})
}

// call calls do in the background, with a context that does not end if a caller leaves.
func (q *line) call(do func(ctx context.Context)) {
	q.limiter.lines.enter(q.limiter, q.event)
	go func() {
		defer q.limiter.lines.exit(q)
		ctx, cancel := q.limiter.base.Finishing(context.Background())
		defer cancel()
		do(ctx)
	}()
}

// book books turns for the first waiters that have none, unless a call is doing so, or the next turn
// is too far in the future.
func (q *line) book() {
	if q.booking {
		return
	}
	var want []*waiter
	for _, w := range q.waiters {
		if !w.turn.OK {
			want = append(want, w)
		}
	}
	now := time.Now()
	if want = q.hopeful(want, now); len(want) == 0 {
		return
	}
	if wait := q.refused.until.Sub(now); wait > 0 && want[0].n == q.refused.n {
		if q.retry != nil {
			q.retry.Stop()
		}
		q.retry = time.AfterFunc(wait, func() { q.limiter.lines.on(q.event, (*line).book) })
		return
	}
	if i := slices.IndexFunc(want, func(w *waiter) bool { return w.n != want[0].n }); i > 0 {
		want = want[:i]
	}
	q.booking = true
	earlier := q.cancelled
	q.call(func(ctx context.Context) {
		<-earlier // so that the turns that were given back can be booked again
		q.bookFor(ctx, want[:min(len(want), mostTurns)])
	})
}

// hopeful fails the waiters whose deadline comes before any turn that they can get, and returns the
// others. It does so only as long as a refusal holds.
func (q *line) hopeful(want []*waiter, now time.Time) []*waiter {
	if len(want) == 0 || want[0].n != q.refused.n || now.Sub(q.refused.told) > holds {
		return want
	}
	units := int64(0) // of the waiters before this one
	return slices.DeleteFunc(want, func(w *waiter) bool {
		earliest := q.refused.earliest.Add(q.limiter.span(units + w.n))
		if w.isBefore(earliest) {
			q.end(w, q.tooLate(earliest.Sub(now)))
		} else {
			units += w.n
		}
		return w.over
	})
}

// span returns the minimum time from the first to the last turn if the turns have the given number
// of units in total.
func (l *Limiter) span(units int64) (longest time.Duration) {
	for _, limit := range l.limits {
		longest = max(longest, time.Duration((units-1)/limit.Max)*limit.Per)
	}
	return longest
}

// bookFor books turns for the given waiters, none of them after the earliest of their deadlines.
func (q *line) bookFor(ctx context.Context, want []*waiter) {
	n, ahead := want[0].n, q.limiter.ahead()
	for _, w := range want {
		if !w.deadline.IsZero() {
			ahead = min(ahead, max(0, time.Until(w.deadline).Truncate(time.Millisecond)))
		}
	}
	b, err := q.limiter.book(ctx, q.event, int64(len(want)), n, ahead.Milliseconds())
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hear(b.state, b.arrived, b.degraded)
	for _, r := range b.reservations(q.event, n) {
		if t := b.turn(r); q.pauses.move(&t) {
			q.pass(t)
		} else {
			q.giveBack(t)
		}
	}
	q.booking, q.refused = false, refusal{}
	if next, most := b.wait()+ahead, q.limiter.ahead(); err == nil && len(b.turns) < len(want) {
		q.refused = refusal{n: n, told: b.arrived, earliest: b.arrived.Add(next), until: b.arrived}
		if next > most {
			// Not just next - most, because another process may cancel turns before then. The slack makes
			// one call book several turns, and its random part keeps the same process from being first.
			q.refused.until = b.arrived.Add(min(next-most, most) + most/16 + rand.N(most/16+1))
		}
	}
	for _, w := range want {
		if err != nil && !w.turn.OK {
			q.end(w, err)
		}
	}
	q.book()
}

// tooLate returns the error for a waiter whose turn would come in after, which is past its
// deadline.
func (q *line) tooLate(after time.Duration) error { return q.limiter.base.Wrap(&lateError{after}) }

// A lateError says that a turn would come after the deadline.
type lateError struct{ after time.Duration }

func (e *lateError) Error() string {
	return fmt.Sprintf("the turn would come in %v, after the deadline, so none was booked: %v", clock.Rounded(e.after), context.DeadlineExceeded)
}

func (*lateError) Unwrap() error { return context.DeadlineExceeded }

// lines holds the lines of all events that callers wait for.
type lines struct {
	mu sync.Mutex
	of map[string]*line
}

// enter returns the event's line, which stays in use until exit.
func (s *lines) enter(l *Limiter, event string) *line {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.of[event]
	if q == nil {
		none := make(chan struct{})
		close(none)
		q = &line{limiter: l, event: event, cancelled: none, pauses: pauses{known: map[bool]state{}}}
		s.of[event] = q
	}
	q.users++
	return q
}

func (s *lines) exit(q *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.users--; q.users == 0 {
		delete(s.of, q.event)
	}
}

// on calls do for the event's line, if there is one.
func (s *lines) on(event string, do func(q *line)) {
	s.mu.Lock()
	q := s.of[event]
	s.mu.Unlock()
	if q != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		do(q)
	}
}

// retry lets the event's line book turns again, even if it was refused.
func (s *lines) retry(event string) {
	s.on(event, func(q *line) {
		q.refused = refusal{}
		q.book()
	})
}
