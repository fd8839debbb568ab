package window

import (
	"context"
	"errors"
	"slices"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/internal/memory"
)

// counts keeps the counts in memory.
type counts struct {
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

func newMemory(limits []engine.Limit, c clock.Clock) *counts {
	m := &counts{}
	for _, limit := range limits {
		m.limits = append(m.limits, bounds{limit.Per.Milliseconds(), limit.Max, limit.Resolution.Milliseconds()})
	}
	m.Store = memory.New(c, func(r *record, now int64) bool { return r.forgotten(m.limits, now) })
	return m
}

// Decide answers a request.
func (m *counts) Decide(_ context.Context, v engine.Verb, event string, n int64) (engine.Reply, error) {
	e, err := m.Open(event)
	if err != nil {
		return engine.Reply{}, err
	}
	defer e.Close()
	var few [4]section // no allocation, unless there are more limits
	views, repaired := m.views(few[:0], e.Record, e.Now)
	r := m.answer(views, v, n, e.Now)
	if r.Counted > 0 && m.mostUsed(&r) > maxUnits {
		return engine.Reply{}, errors.New("more than 2^53 units would be counted; wait until some are forgotten, or Reset the event")
	}
	if r.Counted > 0 && e.Record == nil {
		e.Add().sections = make([]section, len(m.limits))
	}
	if e.Record != nil && (r.Counted > 0 || repaired && v != engine.Peek) {
		m.store(e.Record, views, r.Counted, e.Now)
	}
	return r, nil
}

// mostUsed returns the highest count of a limit.
func (m *counts) mostUsed(r *engine.Reply) (units int64) {
	for i := range m.limits {
		units = max(units, r.Row(i)[0])
	}
	return units
}

// views appends the sections as they are to be read now, and tells whether a date needs repair.
func (m *counts) views(views []section, rec *record, now int64) (_ []section, repaired bool) {
	for i := range m.limits {
		view, moved := rec.at(i).view(now, m.limits[i].per)
		views, repaired = append(views, view), repaired || moved
	}
	return views, repaired
}

// answer decides by the sections as they are now.
func (m *counts) answer(views []section, v engine.Verb, n, now int64) engine.Reply {
	r := engine.Reply{Allowed: true, At: maxTime}
	for i := range m.limits {
		r.Allowed = r.Allowed && views[i].total+n <= m.limits[i].max
	}
	adds := r.Allowed || v == engine.Count
	for i, b := range m.limits {
		date := views[i].date(now)
		r.At = min(r.At, date)
		used, retry, reset := views[i].usage(b, n, adds, date, now)
		r.SetRow(i, len(m.limits), used, retry, reset)
	}
	if adds && v != engine.Peek {
		r.Counted = n
	}
	return r
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
func (m *counts) store(rec *record, views []section, units, now int64) {
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

// Refund gives back the units of a charge.
func (m *counts) Refund(_ context.Context, event string, c engine.Charge) error {
	e, err := m.Open(event)
	if err != nil {
		return err
	}
	defer e.Close()
	if e.Record == nil {
		return nil
	}
	changed := false
	for _, i := range c.Limits {
		sec := &e.Record.sections[i]
		given := c.At+m.limits[i].per > sec.date(e.Now) && sec.refund(c.Units, c.At)
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

// Inspect returns the state of an event as the script does.
func (m *counts) Inspect(_ context.Context, event string) ([]int64, error) {
	e, err := m.Open(event)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	reply := []int64{0, maxTime}
	for i, b := range m.limits {
		view, _ := e.Record.at(i).view(e.Now, b.per)
		reply[1] = min(reply[1], view.date(e.Now))
		used, retry, reset := view.usage(b, 1, false, view.date(e.Now), e.Now)
		reply = append(reply, used, retry, reset, int64(len(view.buckets)))
		for _, bucket := range view.buckets {
			reply = append(reply, bucket.last, bucket.units)
		}
	}
	return reply, nil
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
