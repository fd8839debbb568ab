package pace

import (
	"context"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
)

// pauses is what a line knows about pauses. Every reply about the event says by how much pauses have
// shifted turns. If no reply comes shortly before a turn, its waiter asks.
type pauses struct {
	known map[bool]state // the newest state in Redis (false) and in the Fallback (true)
	heard time.Time      // when the last reply from Redis arrived
	asked time.Time      // when a waiter last asked
	took  time.Duration  // how long the last such call took
}

const (
	hearsWithin = 100 * time.Millisecond // a waiter goes only if a reply is at most this old at its turn; otherwise it asks first
	asksBefore  = 50 * time.Millisecond  // how long before its turn a waiter asks
	asksFor     = 500 * time.Millisecond // how long it waits for the reply; if none comes, it assumes that there is no pause
)

// check reports whether nothing more has to be known about pauses before t. Otherwise its waiter
// sleeps for the given time, or until the reply wakes it. A waiter that has asked in time does not
// wait for a late reply: otherwise turns would pile up and then come all at once.
func (q *line) check(t *turn, now time.Time) (sleep time.Duration, ready bool) {
	if t.Degraded || t.asked || !q.pauses.heard.Before(t.due.Add(-hearsWithin)) {
		return 0, true
	}
	if sleep = t.due.Add(-asksBefore - q.pauses.took).Sub(now); sleep > 0 {
		return sleep, false
	}
	q.ask(now)
	t.asked = t.due.Sub(now) > asksBefore/2 // less may be too late for the reply, or if timers are late
	return 0, t.asked
}

// ask asks by how much pauses have shifted turns, unless a waiter has just asked.
func (q *line) ask(now time.Time) {
	if now.Sub(q.pauses.asked) < asksBefore {
		return
	}
	q.pauses.asked = now
	q.call(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, asksFor)
		defer cancel()
		s, _ := q.limiter.store.ask(ctx, q.event) // after an error, assume that there is no pause
		q.mu.Lock()
		defer q.mu.Unlock()
		q.pauses.heard = time.Now()
		q.pauses.took = q.pauses.heard.Sub(now)
		q.hear(s, q.pauses.heard, false)
		for _, w := range q.waiters {
			if w.turn.OK && w.turn.due.Before(q.pauses.heard.Add(hearsWithin)) {
				w.wake()
			}
		}
	})
}

// hear records what a reply says about pauses, and moves the turns. Replies can arrive out of order,
// so hear ignores an older state. The state of a call without a reply is zero.
func (q *line) hear(s state, arrived time.Time, degraded bool) {
	if s.now > 0 && !degraded {
		q.pauses.heard = arrived
	}
	last := q.pauses.known[degraded]
	if s.now <= last.now && s.shift <= last.shift {
		return
	}
	q.pauses.known[degraded] = s
	if s.shift == last.shift {
		return
	}
	for _, w := range slices.Clone(q.waiters) {
		for w.turn.OK && !q.pauses.move(&w.turn) {
			q.miss(w)
		}
		if w.wake(); w.turn.OK && w.isBefore(w.turn.due) {
			q.end(w, q.tooLate(time.Until(w.turn.due)))
		}
	}
	q.book()
}

// move postpones a turn as the known pauses require. It returns false if the turn came before a
// pause, so that it is missed.
func (p *pauses) move(t *turn) bool {
	s := p.known[t.Degraded]
	t.due = t.due.Add(clock.Milliseconds(s.since(t.shifted)))
	t.shifted = s.shift
	return !s.paused(t.Reservation)
}
