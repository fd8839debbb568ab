package pace

import (
	"context"
	"sync/atomic"
	"time"
)

// Lines returns the number of events that callers wait for.
func Lines(l *Limiter) int {
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	return len(l.lines.of)
}

// PauseElsewhere pauses the turns of an event, as another process would.
func PauseElsewhere(l *Limiter, event string, d time.Duration) {
	if _, err := l.store.pause(context.Background(), event, d.Milliseconds()); err != nil {
		panic(err)
	}
}

// Shift returns by how many ms pauses have shifted the turns of an event.
func Shift(l *Limiter, event string) int64 {
	s, err := l.store.ask(context.Background(), event)
	if err != nil {
		panic(err)
	}
	return s.shift
}

// Oversleep holds up all turns of an event for the given time, as if the process were suspended.
func Oversleep(l *Limiter, event string, d time.Duration) {
	postpone := func(by time.Duration) {
		l.lines.on(event, func(q *line) {
			for _, w := range q.waiters {
				w.turn.due = w.turn.due.Add(by)
				w.wake()
			}
		})
	}
	postpone(d)
	<-time.After(d)
	postpone(-d)
}

// Sharing returns a limiter that shares its turns with l, but has another MaxAhead.
func Sharing(l *Limiter, ahead time.Duration) *Limiter {
	return &Limiter{base: l.base, store: l.store, limits: l.limits, maxAhead: ahead.Milliseconds(), lines: lines{of: map[string]*line{}}}
}

// Record calls booked after each booking of the limiter, with the number of turns that it asked for and
// the turns that it got, and cancelled before each cancellation.
func Record(l *Limiter, booked func(want int64, turns []time.Time), cancelled func(turn time.Time)) {
	l.store = recorder{l.store, booked, cancelled}
}

type recorder struct {
	store
	booked    func(want int64, turns []time.Time)
	cancelled func(turn time.Time)
}

func (r recorder) book(ctx context.Context, event string, k, n, ahead int64) (booking, error) {
	b, err := r.store.book(ctx, event, k, n, ahead)
	var turns []time.Time
	for _, at := range b.turns {
		turns = append(turns, time.UnixMilli(at).UTC())
	}
	r.booked(k, turns)
	return b, err
}

func (r recorder) cancel(ctx context.Context, v Reservation) error {
	r.cancelled(v.At)
	return r.store.cancel(ctx, v)
}

// Slow delays the reply to each booking of the limiter.
func Slow(l *Limiter, d time.Duration) { l.store = slow{l.store, d} }

type slow struct {
	store
	d time.Duration
}

// Silent makes the limiter's questions about pauses stay unanswered from the call of begin on.
func Silent(l *Limiter) (begin func()) {
	s := silent{l.store, &atomic.Bool{}}
	l.store = s
	return func() { s.begun.Store(true) }
}

type silent struct {
	store
	begun *atomic.Bool
}

func (s silent) ask(ctx context.Context, event string) (state, error) {
	if !s.begun.Load() {
		return s.store.ask(ctx, event)
	}
	<-ctx.Done()
	return state{}, ctx.Err()
}

func (s slow) book(ctx context.Context, event string, k, n, ahead int64) (booking, error) {
	b, err := s.store.book(ctx, event, k, n, ahead)
	<-time.After(s.d)
	return b, err
}
