package window

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/gate"
	"github.com/slidegate/slidegate/internal/memory"
)

// local keeps the counts in memory.
type local struct {
	l      *gate.Limiter[Usage]
	limits []bounds
	*memory.Store[record]
}

// bounds is a limit in ms.
type bounds struct{ per, max, resolution int64 }

// record is the state of one event: a section for each limit.
type record struct{ sections []section }

// section is the state of one limit of one event.
type section struct {
	resolution int64 // of the last bucket
	total      int64 // units in all buckets
	buckets    []bucket
}

type bucket struct{ last, units int64 }

func newLocal(l *gate.Limiter[Usage]) *local {
	m := &local{l: l}
	for _, limit := range l.Limits {
		m.limits = append(m.limits, bounds{limit.Per.Milliseconds(), limit.Max, limit.Resolution.Milliseconds()})
	}
	m.Store = memory.New(l.Clock, func(r *record, now int64) bool { return r.forgotten(m.limits, now) })
	return m
}

// Decide answers an attempt.
func (m *local) Decide(_ context.Context, v gate.Verb, event string, n int64) (decision, error) {
	e, err := m.Open(event)
	if err != nil {
		return decision{}, err
	}
	defer e.Close()
	var few [4]section // no allocation, but for more limits
	views, repaired := m.views(few[:0], e.Record, e.Now)
	d := m.answer(views, v, n, e.Now)
	if d.Counted > 0 && most(d.Usage) > maxUnits {
		return decision{}, errors.New("more than 2^53 units would be counted; wait until some are forgotten, or Reset the event")
	}
	if d.Counted > 0 && e.Record == nil {
		e.Add().sections = make([]section, len(m.limits))
	}
	if e.Record != nil && (d.Counted > 0 || repaired && v != gate.Peek) {
		m.store(e.Record, views, d.Counted, e.Now)
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

// most is the highest count of a limit.
func most(usage []Usage) (units int64) {
	for i := range usage {
		units = max(units, usage[i].Used)
	}
	return units
}

// views appends the sections as they are to be read now, and tells whether a date needs repair.
func (m *local) views(views []section, rec *record, now int64) (_ []section, repaired bool) {
	for i := range m.limits {
		view, moved := rec.at(i).view(now, m.limits[i].per)
		views, repaired = append(views, view), repaired || moved
	}
	return views, repaired
}

// answer decides by the sections as they are now.
func (m *local) answer(views []section, v gate.Verb, n, now int64) decision {
	allowed := true
	for i := range m.limits {
		allowed = allowed && views[i].total+n <= m.limits[i].max
	}
	adds, at := allowed || v == gate.Count, int64(maxTime)
	d := decision{Allowed: allowed, Usage: make([]Usage, 0, len(m.limits))}
	for i, b := range m.limits {
		date := views[i].date(now)
		at = min(at, date)
		used, retry, reset := views[i].usage(b, n, adds, date, now)
		m.l.Use(&d, i, used, retry, reset)
	}
	if d.At = utc(at); adds && v != gate.Peek {
		d.Counted = n
	}
	return d
}

// at is section i of the record: an empty one if there is no record.
func (r *record) at(i int) section {
	if r == nil {
		return section{}
	}
	return r.sections[i]
}

// view is the section as it is to be read now: without what is forgotten, and with buckets dated more than Per ahead merged
// into one at now + Per, which it reports. It leaves the section itself as it is.
func (s section) view(now, per int64) (section, bool) {
	n := len(s.buckets)
	if n == 0 {
		return s, false
	}
	repair := s.buckets[n-1].last > now+per
	if repair {
		s = s.redated(now + per)
	}
	date, forgotten := s.date(now), 0
	for forgotten < len(s.buckets) && s.buckets[forgotten].last+per <= date {
		s.total -= s.buckets[forgotten].units
		forgotten++
	}
	s.buckets = s.buckets[forgotten:]
	return s, repair
}

func (s section) redated(latest int64) section {
	n := len(s.buckets)
	merged := bucket{last: latest}
	for n > 0 && s.buckets[n-1].last >= latest {
		n--
		merged.units += s.buckets[n].units
	}
	s.buckets = append(slices.Clone(s.buckets[:n]), merged)
	return s
}

// date is when the section takes an attempt to happen: now, but not before its newest bucket.
func (s section) date(now int64) int64 {
	if n := len(s.buckets); n > 0 {
		return max(now, s.buckets[n-1].last)
	}
	return now
}

// usage tells how much of the limit is used, after n units were added or not, when it would admit them once more, and when
// it is as if never used.
func (s section) usage(b bounds, n int64, adds bool, date, now int64) (used, retry, reset int64) {
	last := s.date(0)
	if adds {
		s.total, last = s.total+n, date
	}
	if s.total+n > b.max {
		retry = s.freed(s.total+n-b.max, last, adds) + b.per - now
	}
	if s.total > 0 {
		reset = last + b.per - now
	}
	return s.total, retry, reset
}

// freed is the date of the bucket with which the oldest units leave. If units were added at date, those are the newest, and
// the last bucket has that date if they joined it.
func (s section) freed(units, date int64, added bool) int64 {
	for i, b := range s.buckets {
		if units -= b.units; units <= 0 {
			if added && i == len(s.buckets)-1 && s.joins(date) {
				return date
			}
			return b.last
		}
	}
	return date
}

// joins tells whether an event at date joins the last bucket.
func (s section) joins(date int64) bool {
	n := len(s.buckets)
	return n > 0 && s.buckets[n-1].last/s.resolution == date/s.resolution
}

// store writes the sections as they are now, and adds the units.
func (m *local) store(rec *record, views []section, units, now int64) {
	for i, view := range views {
		if units > 0 {
			view = view.add(units, view.date(now), m.limits[i].resolution)
		}
		rec.sections[i] = view
	}
}

func (s section) add(units, date, resolution int64) section {
	s.total += units
	if n := len(s.buckets); s.joins(date) {
		s.buckets[n-1] = bucket{date, s.buckets[n-1].units + units}
		return s
	}
	s.buckets, s.resolution = append(s.buckets, bucket{date, units}), resolution
	return s
}

// Refund takes back what d counted.
func (m *local) Refund(_ context.Context, event string, d decision) error {
	e, err := m.Open(event)
	if err != nil {
		return err
	}
	defer e.Close()
	if e.Record == nil {
		return nil
	}
	changed, at := false, d.At.UnixMilli()
	for i, b := range m.limits {
		sec := &e.Record.sections[i]
		given := m.l.CountedIn(d, i) && at+b.per > sec.date(e.Now) && sec.refund(d.Counted, at)
		changed = changed || given
	}
	if changed && e.Record.clean(m.limits, e.Now) {
		e.Remove()
	}
	return nil
}

// refund takes the units from the first bucket not before since.
func (s *section) refund(n, since int64) bool {
	i := slices.IndexFunc(s.buckets, func(b bucket) bool { return b.last >= since })
	if i < 0 {
		return false
	}
	n = min(n, s.buckets[i].units)
	s.total -= n
	s.buckets[i].units -= n
	if s.buckets[i].units == 0 {
		if i == len(s.buckets)-1 {
			s.resolution = 1 // the bucket before it is closed: nothing joins it
		}
		s.buckets = slices.Delete(s.buckets, i, i+1)
	}
	return true
}

// clean empties the sections that are forgotten, and tells whether all of them are.
func (r *record) clean(limits []bounds, now int64) bool {
	empty := true
	for i, b := range limits {
		if r.sections[i].forgotten(b.per, now) {
			r.sections[i] = section{}
		} else {
			empty = false
		}
	}
	return empty
}

func (m *local) inspect(_ context.Context, event string) (time.Time, []LimitState, error) {
	e, err := m.Open(event)
	if err != nil {
		return time.Time{}, nil, err
	}
	defer e.Close()
	var d decision
	at, states := int64(maxTime), make([]LimitState, len(m.limits))
	for i, b := range m.limits {
		view, _ := e.Record.at(i).view(e.Now, b.per)
		at = min(at, view.date(e.Now))
		used, retry, reset := view.usage(b, 1, false, view.date(e.Now), e.Now)
		m.l.Use(&d, i, used, retry, reset)
		states[i].Usage = d.Usage[i]
		for _, bucket := range view.buckets {
			states[i].Buckets = append(states[i].Buckets, Bucket{Last: utc(bucket.last), Units: bucket.units})
		}
	}
	return utc(at), states, nil
}

// forgotten tells whether every unit of the record is.
func (r *record) forgotten(limits []bounds, now int64) bool {
	for i, b := range limits {
		if !r.sections[i].forgotten(b.per, now) {
			return false
		}
	}
	return true
}

func (s section) forgotten(per, now int64) bool {
	n := len(s.buckets)
	return n == 0 || s.buckets[n-1].last+per <= now
}
