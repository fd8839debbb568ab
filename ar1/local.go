package ar1

import (
	"context"
	"time"

	"github.com/slidegate/slidegate/internal/gate"
	"github.com/slidegate/slidegate/internal/memory"
)

// local keeps the levels in memory.
type local struct {
	l      *gate.Limiter[Usage]
	limits []bounds
	*memory.Store[record]
}

// record is the state of one event: the level of each limit at a time in us.
type record struct {
	at     int64
	levels []float64
}

func newLocal(l *gate.Limiter[Usage]) *local {
	m := &local{l: l}
	for _, limit := range l.Limits {
		m.limits = append(m.limits, newBounds(limit))
	}
	m.Store = memory.New(l.Clock, m.forgotten)
	return m
}

// forgotten tells whether every level of a record counts as 0.
func (m *local) forgotten(r *record, now int64) bool {
	for i := range m.limits {
		if m.level(r, i, now) > 0 {
			return false
		}
	}
	return true
}

// level is that of limit i now.
func (m *local) level(r *record, i int, now int64) float64 {
	if r == nil {
		return 0
	}
	return m.limits[i].after(r.levels[i], now-r.at)
}

// Decide answers an attempt. One that sees a clock that stepped back dates the levels anew, also if it is denied.
func (m *local) Decide(_ context.Context, v gate.Verb, event string, n int64) (decision, error) {
	e, err := m.Open(event)
	if err != nil {
		return decision{}, err
	}
	defer e.Close()
	d := m.answer(e.Record, v, n, e.Now)
	if d.Counted > 0 && e.Record == nil {
		*e.Add() = record{e.Now, make([]float64, len(m.limits))}
	}
	if e.Record != nil && (d.Counted > 0 || e.Now < e.Record.at && v != gate.Peek) {
		m.store(e.Record, d.Counted, e.Now)
	}
	return d, nil
}

// DecideEach answers an attempt of one unit for each event.
func (m *local) DecideEach(ctx context.Context, v gate.Verb, events []string, tell func(i int, d decision, err error)) {
	for i, event := range events {
		d, err := m.Decide(ctx, v, event, 1)
		tell(i, d, err)
	}
}

// answer decides without touching the record.
func (m *local) answer(r *record, v gate.Verb, n, now int64) decision {
	d := decision{Allowed: true, At: time.UnixMicro(now).UTC(), Usage: make([]Usage, 0, len(m.limits))}
	for i, b := range m.limits {
		d.Allowed = d.Allowed && m.level(r, i, now) <= b.most(float64(n))
	}
	adds := d.Allowed || v == gate.Count
	for i, b := range m.limits {
		x := m.level(r, i, now)
		if adds {
			x = b.add(x, float64(n))
		}
		used, retry, reset := b.usage(x, float64(n))
		m.l.Use(&d, i, used, retry, reset)
	}
	if adds && v != gate.Peek {
		d.Counted = n
	}
	return d
}

// store dates the levels to now, and adds the units.
func (m *local) store(r *record, n, now int64) {
	for i, b := range m.limits {
		r.levels[i] = b.add(m.level(r, i, now), float64(n))
	}
	r.at = now
}

// Refund takes back what is left of the units that d counted.
func (m *local) Refund(_ context.Context, event string, d decision) error {
	e, err := m.Open(event)
	if err != nil {
		return err
	}
	defer e.Close()
	if e.Record == nil {
		return nil
	}
	if m.refund(e.Record, d, e.Now) && m.forgotten(e.Record, e.Now) {
		e.Remove()
	}
	return nil
}

// refund tells whether there was anything left to give back from.
func (m *local) refund(r *record, d decision, now int64) (changed bool) {
	elapsed, left := max(0, now-d.At.UnixMicro(), r.at-d.At.UnixMicro()), make([]float64, len(m.limits))
	for i, b := range m.limits {
		left[i] = m.level(r, i, now)
		if left[i] == 0 || !m.l.CountedIn(d, i) {
			continue
		}
		units := b.after(float64(d.Counted), elapsed) // less than 1/4 may be forgotten
		changed = changed || units > 0
		left[i] -= units
	}
	if changed {
		*r = record{now, left}
	}
	return changed
}

func (m *local) inspect(_ context.Context, event string) (time.Time, []LimitState, error) {
	e, err := m.Open(event)
	if err != nil {
		return time.Time{}, nil, err
	}
	defer e.Close()
	var d decision
	states := make([]LimitState, len(m.limits))
	for i, b := range m.limits {
		x := m.level(e.Record, i, e.Now)
		used, retry, reset := b.usage(x, 1)
		m.l.Use(&d, i, used, retry, reset)
		states[i] = newLimitState(d.Usage[i], int64(x*1e8))
	}
	return time.UnixMicro(e.Now).UTC(), states, nil
}
