package window

import (
	"context"
	"errors"
	"slices"

	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/internal/memory"
)

// counts keeps the counts in memory.
type counts struct {
	countDenied bool
	*memory.Store[record]
}

// record is the state of one event: a section for each limit that was counted, in the order in which they first were. Callers can have
// different limits. A section belongs to the limits of its Per.
type record struct{ sections []section }

// section is the state of one limit of one event. Times are in ms.
type section struct {
	per        int64
	resolution int64 // of the last bucket
	total      int64 // units in all buckets
	buckets    []bucket
}

type bucket struct{ last, units int64 }

func newMemory(cfg engine.Config) *counts {
	return &counts{cfg.CountDenied, memory.New(cfg.Clock, (*record).forgotten)}
}

// maxSections is how many limits one event can be counted for.
const maxSections = 31

var (
	errTooManyUnits  = errors.New("more than 2^53 units would be counted; wait until some are forgotten, or Reset the event")
	errTooManyLimits = errors.New("the event would count for more than 31 limits; wait until some are forgotten, or Reset it")
)

// Decide answers a request.
func (m *counts) Decide(_ context.Context, limits *engine.Limits, v engine.Verb, event string, n int64) (engine.Reply, error) {
	e, err := m.Open(event)
	if err != nil {
		return engine.Reply{}, err
	}
	defer e.Close()
	var few [4]section // no allocation, unless there are more limits
	views, repaired := e.Record.views(few[:0], limits.All(), e.Now)
	r := answer(views, limits.All(), v, n, e.Now)
	if r.Counted > 0 {
		return r, m.count(&e, views, limits.All(), &r, v == engine.Charge)
	}
	if repaired && v != engine.Peek {
		e.Record.store(views, e.Now)
	}
	return r, nil
}

// views appends the sections of limits as they are to be read now, and reports whether a date needs repair.
func (r *record) views(views []section, limits []engine.Limit, now int64) (_ []section, repaired bool) {
	for i := range limits {
		s := section{per: limits[i].Per}
		if k := r.index(s.per, i); k >= 0 {
			var moved bool
			s, moved = r.sections[k].view(now)
			repaired = repaired || moved
		}
		views = append(views, s)
	}
	return views, repaired || r.othersAhead(views, now)
}

// othersAhead reports whether what callers with other limits count has a date that needs repair.
func (r *record) othersAhead(views []section, now int64) bool {
	return r != nil && len(r.sections) > len(views) &&
		slices.ContainsFunc(r.sections, func(s section) bool { return s.ahead(now) && !among(views, &s) })
}

// index returns which section is that of a Per, or -1. It is probably at guess.
func (r *record) index(per int64, guess int) int {
	if r == nil {
		return -1
	}
	if guess < len(r.sections) && r.sections[guess].per == per {
		return guess
	}
	return slices.IndexFunc(r.sections, func(s section) bool { return s.per == per })
}

// answer decides by the sections as they are now.
func answer(views []section, limits []engine.Limit, v engine.Verb, n, now int64) engine.Reply {
	fit := n
	for i := range limits {
		fit = min(fit, limits[i].Max-views[i].total)
	}
	again, adds := n, n // units that the waits are for, and that the rows count
	switch fit = max(0, fit); {
	case v == engine.Some:
		again, adds = 1, fit
	case v == engine.CountSome || v == engine.Charge:
		again = 1
	case fit < n:
		fit = 0
		if v != engine.Count {
			adds = 0
		}
	}
	r := engine.Reply{At: maxTime}
	r.Grant(v, n, fit)
	for i := range limits {
		date := views[i].date(now)
		r.At = min(r.At, date)
		used, retry, reset := views[i].usage(limits[i].Max, again, adds, date, now)
		r.SetRow(i, len(limits), used, retry, reset)
	}
	return r
}

// count stores the sections with the units that a reply counts.
func (m *counts) count(e *memory.Event[record], views []section, limits []engine.Limit, r *engine.Reply, charge bool) error {
	for i := range limits {
		if r.Row(i)[0] > maxUnits {
			return errTooManyUnits
		}
	}
	if e.Record == nil {
		e.Add().sections = make([]section, 0, len(limits))
	}
	if e.Record.others(views, e.Now) > maxSections-len(views) {
		return errTooManyLimits
	}
	for i := range views {
		views[i].add(r.Counted, views[i].date(e.Now), limits[i].Width(charge || m.countDenied))
	}
	e.Record.store(views, e.Now)
	return nil
}

// others returns for how many limits that are not among views the record counts.
func (r *record) others(views []section, now int64) (n int) {
	for i := range r.sections {
		if !among(views, &r.sections[i]) && !r.sections[i].forgotten(now) {
			n++
		}
	}
	return n
}

// among reports whether views has a section for the same limit.
func among(views []section, s *section) bool {
	return slices.ContainsFunc(views, func(v section) bool { return v.per == s.per })
}

// store writes sections into the record, and drops others that are forgotten.
func (r *record) store(views []section, now int64) {
	for i := range views {
		if k := r.index(views[i].per, i); k >= 0 {
			r.sections[k] = views[i]
		} else if len(views[i].buckets) > 0 {
			r.sections = append(r.sections, views[i])
		}
	}
	if len(r.sections) > len(views) {
		r.carry(views, now)
	}
}

// carry drops from the sections that are not among views those that are forgotten, and repairs dates.
func (r *record) carry(views []section, now int64) {
	r.sections = slices.DeleteFunc(r.sections, func(s section) bool { return s.forgotten(now) && !among(views, &s) })
	for i := range r.sections {
		if s := &r.sections[i]; s.ahead(now) {
			*s = s.redated(now + s.per)
		}
	}
}

// view returns the section as it is to be read now: without what is forgotten, and with buckets dated more than Per ahead merged
// into one at now + Per, which it reports. It leaves the section itself as it is.
func (s *section) view(now int64) (view section, repair bool) {
	view = *s
	if len(s.buckets) == 0 {
		return view, false
	}
	if repair = s.ahead(now); repair {
		view = s.redated(now + s.per)
	}
	date, forgotten := view.date(now), 0
	for forgotten < len(view.buckets) && view.buckets[forgotten].last+s.per <= date {
		view.total -= view.buckets[forgotten].units
		forgotten++
	}
	view.buckets = view.buckets[forgotten:]
	return view, repair
}

// ahead reports whether the section has a date that needs repair, since the clock stepped back by more than Per.
func (s *section) ahead(now int64) bool {
	n := len(s.buckets)
	return n > 0 && s.buckets[n-1].last > now+s.per
}

func (s *section) redated(latest int64) section {
	view, n := *s, len(s.buckets)
	merged := bucket{last: latest}
	for n > 0 && s.buckets[n-1].last >= latest {
		n--
		merged.units += s.buckets[n].units
	}
	view.buckets = append(slices.Clone(s.buckets[:n]), merged)
	return view
}

// date returns when the section takes an attempt to happen: now, but not before its newest bucket.
func (s *section) date(now int64) int64 {
	if n := len(s.buckets); n > 0 {
		return max(now, s.buckets[n-1].last)
	}
	return now
}

// usage returns how much of a limit is used after some units were added, when it would admit others again, and when it is as if
// never used.
func (s *section) usage(most, again, added, date, now int64) (used, retry, reset int64) {
	used, last := s.total+added, date
	if added == 0 {
		last = s.date(0)
	}
	if used+again > most {
		retry = s.freed(used+again-most, last, added > 0) + s.per - now
	}
	if used > 0 {
		reset = last + s.per - now
	}
	return used, retry, reset
}

// freed returns the date of the bucket with which the oldest units leave. If units were added at date, those are the newest, and
// the last bucket has that date if they joined it.
func (s *section) freed(units, date int64, added bool) int64 {
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

// joins reports whether an event at date joins the last bucket.
func (s *section) joins(date int64) bool {
	n := len(s.buckets)
	return n > 0 && (s.buckets[n-1].last == date || s.resolution > 1 && s.buckets[n-1].last/s.resolution == date/s.resolution)
}

// add adds units at date, in a bucket of the width if none is open.
func (s *section) add(units, date, width int64) {
	s.total += units
	if n := len(s.buckets); s.joins(date) {
		s.buckets[n-1] = bucket{date, s.buckets[n-1].units + units}
		return
	}
	s.buckets, s.resolution = append(s.buckets, bucket{date, units}), width
}

// Refund gives back the units of a charge.
func (m *counts) Refund(_ context.Context, event string, c engine.Counted) error {
	e, err := m.Open(event)
	if err != nil {
		return err
	}
	defer e.Close()
	if e.Record == nil {
		return nil
	}
	changed := false
	for i := range e.Record.sections {
		s := &e.Record.sections[i]
		given := c.Of(s.per) && c.At+s.per > s.date(e.Now) && s.refund(c.Units, c.At)
		changed = changed || given
	}
	if changed && e.Record.clean(e.Now) {
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

// clean drops the sections that are forgotten, and reports whether all of them are.
func (r *record) clean(now int64) bool {
	r.sections = slices.DeleteFunc(r.sections, func(s section) bool { return s.forgotten(now) })
	return len(r.sections) == 0
}

// Inspect returns the state of an event as the script does.
func (m *counts) Inspect(_ context.Context, limits *engine.Limits, event string) ([]int64, error) {
	e, err := m.Open(event)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	views, _ := e.Record.views(nil, limits.All(), e.Now)
	reply := []int64{0, maxTime}
	for i := range views {
		reply[1] = min(reply[1], views[i].date(e.Now))
		used, retry, reset := views[i].usage(limits.All()[i].Max, 1, 0, 0, e.Now)
		reply = views[i].list(append(reply, used, retry, reset))
	}
	return e.Record.listOthers(reply, views, e.Now), nil
}

// listOthers appends what callers with other limits count.
func (r *record) listOthers(reply []int64, views []section, now int64) []int64 {
	if r == nil {
		return reply
	}
	for i := range r.sections {
		if s, _ := r.sections[i].view(now); !among(views, &s) {
			used, _, reset := s.usage(maxUnits, 0, 0, 0, now)
			reply = s.list(append(reply, s.per, used, reset))
		}
	}
	return reply
}

// list appends the number of buckets, and the time and units of each.
func (s *section) list(reply []int64) []int64 {
	reply = append(reply, int64(len(s.buckets)))
	for _, b := range s.buckets {
		reply = append(reply, b.last, b.units)
	}
	return reply
}

// forgotten reports whether every unit of the record is.
func (r *record) forgotten(now int64) bool {
	return !slices.ContainsFunc(r.sections, func(s section) bool { return !s.forgotten(now) })
}

func (s *section) forgotten(now int64) bool {
	n := len(s.buckets)
	return n == 0 || s.buckets[n-1].last+s.per <= now
}
