package inflight

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/internal/memory"
)

// local keeps leases in memory.
type local struct {
	*memory.Store[record]
	base *limiter.Limiter
}

// record is the state of one event. Times are in µs.
type record struct {
	birth int64 // the first token that was issued
	token int64 // the last token that was issued
	held  []place
}

// A place is a lease in memory.
type place struct {
	id     string
	n      int64
	token  int64
	end    int64
	holder string
}

// keepsToken is how long the last token is kept after the last lease has ended, as in Redis.
const keepsToken = 10 * time.Minute

func newLocal(e *limiter.Limiter) *local {
	m := &local{memory.New(e.Clock, e.MaxEvents, (*record).forgotten), e}
	e.Bound = m.Bound
	return m
}

func (r *record) forgotten(now int64) bool {
	return r.token+keepsToken.Microseconds() < now && !slices.ContainsFunc(r.held, func(p place) bool { return p.end+keepsToken.Microseconds() > now })
}

// change calls do with the event's record, after removing leases that have ended. If there is no
// record, change adds one if adds is true, and otherwise does nothing.
func (m *local) change(event string, adds bool, do func(r *record, now int64)) error {
	var e memory.Event[record]
	if err := m.Open(&e, event); err != nil {
		return err
	}
	defer e.Close()
	if e.Record == nil && !adds {
		return nil
	}
	if e.Record == nil && !e.Add() {
		return m.base.Wrap(limiter.ErrFull)
	}
	r := e.Record
	r.held = slices.DeleteFunc(r.held, func(p place) bool { return p.end <= e.Now })
	do(r, e.Now)
	return nil
}

func (r *record) used() (units int64) {
	for _, p := range r.held {
		units += p.n
	}
	return units
}

// find returns the held lease with the given id, or nil.
func (r *record) find(id string) *place {
	i := slices.IndexFunc(r.held, func(p place) bool { return p.id == id })
	if i < 0 {
		return nil
	}
	return &r.held[i]
}

func (m *local) acquire(_ context.Context, event string, of ref, ttl time.Duration, holder string) (a answer, err error) {
	err = m.change(event, true, func(r *record, now int64) {
		if a = (answer{now: now, used: r.used()}); a.used+of.n > of.max {
			a.wait = r.wait(now, a.used+of.n-of.max)
			return
		}
		r.token = max(r.token+1, now)
		r.birth = cmp.Or(r.birth, r.token)
		r.held = append(r.held, place{of.id, of.n, r.token, now + ttl.Microseconds(), holder})
		a.held, a.token, a.used = true, r.token, a.used+of.n
	})
	return a, err
}

// wait returns how long it takes until leases of the given number of units have ended.
func (r *record) wait(now, units int64) time.Duration {
	byEnd := slices.SortedFunc(slices.Values(r.held), func(a, b place) int { return cmp.Compare(a.end, b.end) })
	for _, p := range byEnd {
		if units -= p.n; units <= 0 {
			return time.Duration(p.end-now) * time.Microsecond
		}
	}
	return 0
}

func (m *local) renew(_ context.Context, event string, all []ref, ttl time.Duration, holder string) ([]int64, error) {
	tokens := make([]int64, len(all))
	err := m.change(event, true, func(r *record, now int64) {
		for i, of := range all {
			end := now + ttl.Microseconds()
			if p := r.find(of.id); p != nil {
				p.end, tokens[i] = end, of.token
			} else if (of.token < r.birth || of.token > r.token) && r.used()+of.n <= of.max { // there was a Reset after the lease was taken
				r.held, tokens[i] = append(r.held, place{of.id, of.n, of.token, end, holder}), of.token
			}
		}
	})
	return tokens, err
}

// carry holds a lease that was granted by Redis, even if all places are taken.
func (m *local) carry(event string, of ref, ttl time.Duration) {
	_ = m.change(event, true, func(r *record, now int64) {
		end := now + ttl.Microseconds()
		if p := r.find(of.id); p != nil {
			p.end = end
		} else {
			r.held = append(r.held, place{id: of.id, n: of.n, end: end})
		}
	})
}

func (m *local) release(_ context.Context, event string, all []ref) error {
	return m.change(event, false, func(r *record, _ int64) {
		r.held = slices.DeleteFunc(r.held, func(p place) bool {
			return slices.ContainsFunc(all, func(of ref) bool { return of.id == p.id })
		})
	})
}

func (m *local) inspect(_ context.Context, event string) (s Snapshot, err error) {
	var e memory.Event[record]
	if err := m.Open(&e, event); err != nil {
		return s, err
	}
	defer e.Close()
	s.At = m.base.Clock.Known(e.Now)
	if e.Record == nil {
		return s, nil
	}
	s.Token = e.Record.token
	for _, p := range e.Record.held {
		if p.end > e.Now {
			s.Used += p.n
			s.Leases = append(s.Leases, Held{p.holder, p.n, p.token, m.base.Clock.Known(p.token), m.base.Clock.Known(p.end)})
		}
	}
	slices.SortStableFunc(s.Leases, func(a, b Held) int { return a.Until.Compare(b.Until) })
	return s, nil
}
