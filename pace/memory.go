package pace

import (
	"context"
	"slices"

	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/internal/memory"
)

// local keeps the turns of events in memory.
type local struct {
	*memory.Store[record]
	base   *limiter.Limiter
	limits []limiter.Limit
}

// record is the state of one event. Times are in ms.
type record struct {
	floor int64 // the newest turn ever booked
	clock int64 // the time of the last write

	// The end of the last pause, and by how much all pauses together have shifted turns.
	end, shift int64

	// The newest turn, or end of a pause, before the clock last stepped back. A turn up to then gives
	// nothing back, because others may have got its time since. Pauses postpone it. 0 if there is none.
	stepped int64

	sections []section // one for each limit
}

// section holds the turns that count under a limit, oldest first.
type section struct {
	per     int64
	buckets []bucket
}

// bucket holds turns within one slice of time. It is forgotten when its last turn is Per old.
type bucket struct{ last, units int64 }

func newLocal(e *limiter.Limiter) *local {
	m := &local{memory.New(e.Clock, e.MaxEvents, (*record).forgotten), e, e.Limits()}
	e.Bound = m.Bound
	return m
}

// forgotten reports whether the record no longer has any effect on new turns.
func (r *record) forgotten(now int64) bool {
	return r.floor <= now && r.end <= now && r.stepped < now && !slices.ContainsFunc(r.sections, func(s section) bool {
		return len(s.buckets) > 0 && s.buckets[len(s.buckets)-1].last+s.per > now
	})
}

// change calls do with a copy of the event's record, or with a new record if there is none. It
// stores the copy if do returns true, or if the record needed repair.
func (m *local) change(event string, do func(r *record, now int64) bool) error {
	var e memory.Event[record]
	if err := m.Open(&e, event); err != nil {
		return m.base.Wrap(err)
	}
	defer e.Close()
	r := record{}
	if e.Record != nil {
		r = *e.Record
	}
	repaired := r.repair(e.Now)
	if !do(&r, e.Now) && (!repaired || e.Record == nil) {
		return nil
	}
	r.clock = e.Now
	if e.Record == nil && !e.Add() {
		return m.base.Wrap(limiter.ErrFull)
	}
	*e.Record = r
	return nil
}

// repair corrects times that are too far in the future because the clock has stepped back.
// Afterwards, the newest turn and the end of the last pause are as long after now as they were
// after the last write.
func (r *record) repair(now int64) (repaired bool) {
	if now >= r.clock {
		return false
	}
	if newest := max(r.floor, r.end); newest >= now {
		r.stepped = max(r.stepped, newest)
	}
	most := now + max(0, r.floor-r.clock)
	r.end = min(r.end, now+max(0, r.end-r.clock))
	r.floor = min(r.floor, most)
	r.redate(func(last int64) int64 { return min(last, most) })
	return true
}

// redate changes the time of each bucket, in copies.
func (r *record) redate(to func(last int64) int64) {
	for i := range r.sections {
		buckets := slices.Clone(r.sections[i].buckets)
		for k := range buckets {
			buckets[k].last = to(buckets[k].last)
		}
		r.sections[i].buckets = buckets
	}
}

func (m *local) book(_ context.Context, event string, k, n, ahead int64) (b booking, err error) {
	err = m.change(event, func(r *record, now int64) bool {
		for int64(len(b.turns)) < k {
			turn := r.turn(m.limits, n, now)
			if turn > now+ahead {
				b.until = turn - now - ahead
				break
			}
			r.add(m.limits, turn, n)
			b.turns = append(b.turns, turn)
		}
		b.state = r.state(now)
		return len(b.turns) > 0
	})
	return b, err
}

func (r *record) state(now int64) state { return state{now: now, shift: r.shift, end: r.end} }

// turn returns the earliest time at which all limits allow n units. It is never before now, the
// newest turn, or the end of the last pause.
func (r *record) turn(limits []limiter.Limit, n, now int64) int64 {
	turn := max(now, r.floor, r.end)
	for _, l := range limits {
		turn = max(turn, r.earliest(l, n))
	}
	return turn
}

// earliest returns when the limit l allows n more units, or 0 if it already does.
func (r *record) earliest(l limiter.Limit, n int64) int64 {
	room := l.Max - n // n more units fit if at most this many of the newest units still count
	buckets := r.section(l.Per).buckets
	for i := len(buckets) - 1; i >= 0; i-- {
		if room -= buckets[i].units; room < 0 {
			return buckets[i].last + l.Per
		}
	}
	return 0
}

// add counts n units at the given turn, which must not be before the newest turn.
func (r *record) add(limits []limiter.Limit, turn, n int64) {
	for _, l := range limits {
		s := r.section(l.Per)
		last := len(s.buckets) - 1
		if last >= 0 && (s.buckets[last].last == turn || r.start(s.buckets[last].last, l.Fine) == r.start(turn, l.Fine)) {
			s.buckets[last].last, s.buckets[last].units = turn, s.buckets[last].units+n
		} else {
			s.buckets = append(s.buckets, bucket{turn, n})
		}
		forgotten := slices.IndexFunc(s.buckets, func(b bucket) bool { return b.last+l.Per > turn })
		s.buckets = slices.Delete(s.buckets, 0, forgotten)
	}
	r.floor = turn
}

// start returns the time at which the turn's bucket starts. Pauses shift the boundaries of buckets
// too.
func (r *record) start(turn, width int64) int64 {
	return turn - ((turn-r.shift)%width+width)%width
}

// section returns the section with the given Per, and adds it if there is none.
func (r *record) section(per int64) *section {
	i := slices.IndexFunc(r.sections, func(s section) bool { return s.per == per })
	if i < 0 {
		i, r.sections = len(r.sections), append(r.sections, section{per: per})
	}
	return &r.sections[i]
}

func (m *local) cancel(_ context.Context, v Reservation) error {
	return m.change(v.Event, func(r *record, _ int64) (changed bool) {
		turn := v.At.UnixMilli() + r.shift - v.Shift
		// The turn is from before a Reset, may have come before the last pause, or may be older than the
		// last step of the clock.
		if v.Shift > r.shift || v.Shift < r.shift && turn < r.end || turn <= r.stepped {
			return false
		}
		for _, l := range m.limits {
			s := r.section(l.Per)
			k := slices.IndexFunc(s.buckets, func(b bucket) bool { return b.last >= turn })
			if k < 0 || r.start(s.buckets[k].last, l.Fine) != r.start(turn, l.Fine) { // no longer counted
				continue
			}
			changed = true
			if s.buckets[k].units -= v.N; s.buckets[k].units <= 0 {
				s.buckets = slices.Delete(slices.Clone(s.buckets), k, k+1)
			}
		}
		return changed
	})
}

func (m *local) pause(_ context.Context, event string, d int64) (s state, err error) {
	err = m.change(event, func(r *record, now int64) bool {
		more := now + d - max(now, r.end)
		if more > 0 {
			r.stop(now, more)
		}
		s = r.state(now)
		return more > 0
	})
	return s, err
}

// stop postpones all turns from now on by more ms.
func (r *record) stop(now, more int64) {
	later := func(turn int64) int64 {
		if turn >= now {
			turn += more
		}
		return turn
	}
	r.redate(later)
	r.floor = later(r.floor)
	r.end, r.shift = max(now, r.end)+more, r.shift+more
	if r.stepped > 0 {
		r.stepped += more
	}
}

func (m *local) ask(_ context.Context, event string) (s state, err error) {
	var e memory.Event[record]
	if err := m.Open(&e, event); err != nil {
		return s, m.base.Wrap(err)
	}
	defer e.Close()
	if s.now = e.Now; e.Record != nil {
		s = e.Record.state(e.Now)
	}
	return s, nil
}
