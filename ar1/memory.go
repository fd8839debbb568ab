package ar1

import (
	"context"

	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/internal/memory"
)

// levels keeps the levels of events in memory.
type levels struct {
	limits []bounds
	*memory.Store[record]
}

// record is the state of one event: the level of each limit at the time at, in µs.
type record struct {
	at     int64
	levels []float64
}

func newMemory(cfg limiter.Config, limits []limiter.Limit) *levels {
	m := &levels{}
	for _, limit := range limits {
		m.limits = append(m.limits, newBounds(limit))
	}
	m.Store = memory.New(cfg.Clock, cfg.MaxEvents, m.forgotten)
	return m
}

// forgotten reports whether every level of the record counts as 0.
func (m *levels) forgotten(r *record, now int64) bool {
	for i := range m.limits {
		if m.level(r, i, now) > 0 {
			return false
		}
	}
	return true
}

// level returns the level of the i-th limit at the time now.
func (m *levels) level(r *record, i int, now int64) float64 {
	if r == nil {
		return 0
	}
	return m.limits[i].after(r.levels[i], now-r.at)
}

// Decide answers a request for n units of the event. If the clock has stepped back, Decide moves
// the record to the time of the clock, even if it denies.
func (m *levels) Decide(_ context.Context, limits *limiter.Limits, v limiter.Verb, event string, n int64) (limiter.Reply, error) {
	var e memory.Event[record]
	if err := m.Open(&e, event); err != nil {
		return limiter.Reply{}, err
	}
	defer e.Close()
	r := m.answer(e.Record, v, n, e.Now)
	if v == limiter.Peek && r.Allowed && e.Record == nil && !e.HasRoom() {
		return limiter.Full(false, limits.All(), e.Now, n), nil
	}
	if r.Counted > 0 && e.Record == nil {
		if !e.Add() {
			return limiter.Full(false, limits.All(), e.Now, n), nil
		}
		*e.Record = record{e.Now, make([]float64, len(m.limits))}
	}
	if e.Record != nil && (r.Counted > 0 || e.Now < e.Record.at && v != limiter.Peek) {
		for i, b := range m.limits {
			e.Record.levels[i] = b.add(m.level(e.Record, i, e.Now), float64(r.Counted))
		}
		e.Record.at = e.Now
	}
	return r, nil
}

// answer decides on n units without changing the record.
func (m *levels) answer(rec *record, v limiter.Verb, n, now int64) limiter.Reply {
	r, granted := limiter.Reply{At: now}, n
	for i, b := range m.limits {
		if m.level(rec, i, now) > b.highest(float64(n)) {
			granted = 0
		}
	}
	r.Grant(v, n, granted)
	adds := r.Allowed || v == limiter.Count
	for i, b := range m.limits {
		x := m.level(rec, i, now)
		if adds {
			x = b.add(x, float64(n))
		}
		used, retry, reset := b.usage(x, float64(n))
		r.SetRow(i, len(m.limits), used, retry, reset)
	}
	return r
}

// Refund gives back what is left of the units that the decision described by c counted.
func (m *levels) Refund(_ context.Context, event string, c limiter.Counted) error {
	var e memory.Event[record]
	if err := m.Open(&e, event); err != nil {
		return err
	}
	defer e.Close()
	r := e.Record
	if r == nil {
		return nil
	}
	elapsed, left, changed := max(0, e.Now-c.At, r.at-c.At), make([]float64, len(m.limits)), false
	for i, b := range m.limits {
		left[i] = m.level(r, i, e.Now)
		if left[i] > 0 && c.Of(int64(b.per)) {
			units := b.after(float64(c.Units), elapsed) // less than 1/4 may have been forgotten
			changed = changed || units > 0
			left[i] -= units
		}
	}
	if !changed {
		return nil
	}
	*r = record{e.Now, left}
	if m.forgotten(r, e.Now) {
		e.Remove()
	}
	return nil
}

// Inspect returns the state of the event in the same form as the script.
func (m *levels) Inspect(_ context.Context, _ *limiter.Limits, event string) ([]int64, error) {
	var e memory.Event[record]
	if err := m.Open(&e, event); err != nil {
		return nil, err
	}
	defer e.Close()
	reply := []int64{0, e.Now}
	for i, b := range m.limits {
		x := m.level(e.Record, i, e.Now)
		used, retry, reset := b.usage(x, 1)
		reply = append(reply, used, retry, reset, int64(x*1e8))
	}
	return reply, nil
}
