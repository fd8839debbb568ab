package pace

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/internal/memory"
	"github.com/slidegate/slidegate/window"
)

// Snapshot is the full state of an event, for diagnosis.
type Snapshot struct {
	Key         string    // the key in Redis
	At          time.Time // the time of the snapshot, in UTC, on the clock of the turns
	Newest      time.Time // the newest turn ever booked, even if it was cancelled; zero if it is no longer known
	PausedUntil time.Time // when the last pause ends or ended; zero if there was none
	Next        time.Time // the turn that one more unit would get, even if that is beyond MaxAhead

	// Limits holds, in the order of Config.Limits, the turns that count under each limit: those less
	// than Per before the newest turn, or less than Per before At if that is later. Earlier turns can
	// no longer delay a new one. RetryAfter is how long it takes until this limit alone allows one
	// more unit. Turns after At are still to come.
	Limits []window.LimitState

	// Others are the turns of the event that count under limits of other callers, in order of Per,
	// as in window.Snapshot. In memory, Others is empty.
	Others []window.LimitState
}

// Inspect returns every turn that counts, for diagnosis. It writes nothing, and never asks the
// Fallback. Inspect returns the same errors as WaitN, except ErrUncertain.
func (l *Limiter) Inspect(ctx context.Context, event string) (Snapshot, error) {
	if err := l.made().Check(ctx, limiter.Peek, event, 1); err != nil {
		return Snapshot{}, err
	}
	reply, err := l.store.inspect(ctx, event)
	if err != nil {
		return Snapshot{}, err
	}
	s, err := l.snapshot(reply)
	s.Key = l.base.Key(event)
	return s, err
}

// snapshot converts the reply to the verb inspect, which the header of pace.lua describes.
func (l *Limiter) snapshot(reply []int64) (Snapshot, error) {
	rows, ok := limiter.Rows(reply[6:])
	if !ok || len(rows) < len(l.limits) {
		return Snapshot{}, l.base.Malformed()
	}
	utc := l.base.Clock.Known
	s := Snapshot{At: utc(reply[1]), PausedUntil: utc(reply[3]), Newest: utc(reply[4]), Next: utc(reply[5])}
	for i, limit := range l.limits {
		u := window.Usage{Limit: limit, Used: rows[i][0], Remaining: max(0, limit.Max-rows[i][0])}
		u.RetryAfter, u.ResetAfter = clock.Milliseconds(rows[i][1]), clock.Milliseconds(rows[i][2])
		s.Limits = append(s.Limits, window.LimitState{Usage: u, Buckets: limiter.Buckets[window.Bucket](l.base.Clock, rows[i])})
	}
	for _, row := range rows[len(l.limits):] {
		u := window.Usage{Limit: window.Limit{Per: clock.Milliseconds(row[0])}, Used: row[1], ResetAfter: clock.Milliseconds(row[2])}
		s.Others = append(s.Others, window.LimitState{Usage: u, Buckets: limiter.Buckets[window.Bucket](l.base.Clock, row)})
	}
	slices.SortFunc(s.Others, func(a, b window.LimitState) int { return cmp.Compare(a.Limit.Per, b.Limit.Per) })
	return s, nil
}

// inspect returns the state of the event in the same form as the script.
func (m *local) inspect(_ context.Context, event string) ([]int64, error) {
	var e memory.Event[record]
	if err := m.Open(&e, event); err != nil {
		return nil, err
	}
	defer e.Close()
	r := record{}
	if e.Record != nil {
		r = *e.Record
		r.sections = slices.Clone(r.sections)
	}
	r.repair(e.Now)
	reply := []int64{0, e.Now, r.shift, r.end, r.floor, r.turn(m.limits, 1, e.Now)}
	for _, l := range m.limits {
		reply = append(reply, r.row(l, e.Now)...)
	}
	return reply, nil
}

// row returns the state under the limit l in the form of the script's reply.
func (r *record) row(l limiter.Limit, now int64) []int64 {
	row := []int64{0, max(0, r.earliest(l, 1)-now), 0, 0}
	for _, b := range r.section(l.Per).buckets {
		if b.last+l.Per > max(now, r.floor) {
			row[0], row[2], row[3] = row[0]+b.units, b.last+l.Per-now, row[3]+1
			row = append(row, b.last, b.units)
		}
	}
	return row
}
