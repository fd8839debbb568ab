package window

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/internal/memory"
)

// counts keeps the counts of events in memory.
type counts struct {
	*memory.Store[record]
	countDenied, allowWhenFull bool
}

// record is the state of one event. It has a section for each Per under which the event was
// counted, in the order in which they were first used. Callers with different limits share the
// section of limits that have the same Per.
type record struct{ sections []section }

// section is the state of the limits of one event that have the same Per. Times are in ms.
type section struct {
	per        int64
	resolution int64 // width of the last bucket
	total      int64 // sum of the units in all buckets
	buckets    []bucket
}

type bucket struct{ last, units int64 }

func newMemory(cfg limiter.Config) *counts {
	return &counts{memory.New(cfg.Clock, cfg.MaxEvents, (*record).forgotten), cfg.CountDenied, cfg.AllowWhenFull}
}

var (
	errTooManyUnits  = errors.New("more than 2^53 units would be counted; wait until some are forgotten, or Reset the event")
	errTooManyLimits = errors.New("the event would count for more than 31 limits; wait until some are forgotten, or Reset it")
)

// Decide answers a request for n units of the event.
func (m *counts) Decide(_ context.Context, l *limiter.Limits, v limiter.Verb, event string, n int64) (r limiter.Reply, err error) {
	var e memory.Event[record]
	if err := m.Open(&e, event); err != nil {
		return r, err
	}
	defer e.Close()
	var few [5]view // avoids an allocation unless there are more limits
	limits := l.All()
	views := e.Record.views(few[:0], limits, e.Now)
	answer(&r, views, limits, v, n, e.Now)
	switch {
	case r.Counted > 0:
		err = m.count(&e, views, limits, &r, v, n)
		return r, err
	case v == limiter.Peek && r.Allowed && e.Record == nil && !e.HasRoom():
		r = limiter.Full(m.allowWhenFull, limits, r.At, n)
	}
	if v != limiter.Peek && e.Record.ahead(e.Now) {
		for i := range views {
			if views[i].section != nil {
				e.Record.take(&views[i])
			}
		}
		e.Record.carry(views, e.Now)
	}
	return r, nil
}

// A view is the state of a limit's section at the time of a decision.
type view struct {
	per     int64
	section *section // nil if there is none; a copy if its timestamps needed repair
	total   int64    // units in the buckets that count
	from    int      // index of the first bucket that counts
}

// views appends the view for each limit to views.
func (r *record) views(views []view, limits []limiter.Limit, now int64) []view {
	if r == nil {
		r = &record{}
	}
	for i := range limits {
		views = append(views, view{per: limits[i].Per})
		if k := r.index(limits[i].Per, i); k >= 0 {
			views[i].read(&r.sections[k], now)
		}
	}
	return views
}

// ahead reports whether any timestamp in the record needs repair.
func (r *record) ahead(now int64) bool {
	return r != nil && slices.ContainsFunc(r.sections, func(s section) bool { return s.ahead(now) })
}

// among reports whether any of views has the given Per.
func among(views []view, per int64) bool {
	return slices.ContainsFunc(views, func(v view) bool { return v.per == per })
}

// index returns the index of the section with the given Per, or -1. It tries guess first.
func (r *record) index(per int64, guess int) int {
	if guess < len(r.sections) && r.sections[guess].per == per {
		return guess
	}
	return slices.IndexFunc(r.sections, func(s section) bool { return s.per == per })
}

// answer decides on n units according to views, and fills in r.
func answer(r *limiter.Reply, views []view, limits []limiter.Limit, v limiter.Verb, n, now int64) {
	fit := n
	for i := range limits {
		fit = min(fit, limits[i].Max-views[i].total)
	}
	again, adds := n, n // how many units RetryAfter is for, and how many units Usage includes
	fit = max(0, fit)
	switch {
	case v == limiter.Some:
		again, adds = 1, fit
	case v == limiter.CountSome || v == limiter.Charge:
		again = 1
	case fit < n:
		fit = 0
		if v != limiter.Count {
			adds = 0
		}
	}
	r.At = math.MaxInt64
	r.Grant(v, n, fit)
	for i := range limits {
		date := views[i].date(now)
		r.At = min(r.At, date)
		used, retry, reset := views[i].usage(limits[i].Max, again, adds, date, now)
		r.SetRow(i, len(limits), used, retry, reset)
	}
}

// count adds the counted units of the reply r to the sections of the event.
func (m *counts) count(e *memory.Event[record], views []view, limits []limiter.Limit, r *limiter.Reply, v limiter.Verb, n int64) error {
	for i := range limits {
		if r.Row(i)[0] > maxUnits {
			return errTooManyUnits
		}
	}
	switch {
	case e.Record == nil && !e.Add() && v == limiter.Charge:
		return limiter.ErrFull
	case e.Record == nil:
		*r = limiter.Full(m.allowWhenFull, limits, r.At, n)
		return nil
	case e.Record.sections == nil:
		e.Record.sections = newSections(limits)
	case len(e.Record.sections) > limiter.MaxLimits-len(views) && e.Record.others(views, e.Now) > limiter.MaxLimits-len(views):
		return errTooManyLimits
	}
	for i := range views {
		date := views[i].date(e.Now)
		e.Record.take(&views[i]).add(r.Counted, date, limits[i].Width(v == limiter.Charge || m.countDenied))
	}
	if len(e.Record.sections) > len(views) {
		e.Record.carry(views, e.Now)
	}
	return nil
}

// newSections returns an empty section for each limit. It allocates the first buckets of all
// sections at once.
func newSections(limits []limiter.Limit) []section {
	sections, buckets := make([]section, len(limits)), make([]bucket, len(limits))
	for i := range sections {
		sections[i] = section{per: limits[i].Per, buckets: buckets[i : i : i+1]}
	}
	return sections
}

// others returns how many sections that still count are not among views.
func (r *record) others(views []view, now int64) (n int) {
	for i := range r.sections {
		if !r.sections[i].forgotten(now) && !among(views, r.sections[i].per) {
			n++
		}
	}
	return n
}

// take updates the section of v from v, and returns it. If there is no such section, take adds one.
func (r *record) take(v *view) *section {
	k := r.index(v.per, 0)
	if k < 0 {
		k, r.sections = len(r.sections), append(r.sections, section{per: v.per})
	}
	s := &r.sections[k]
	if v.section != nil {
		*s = *v.section // the section itself, or the copy with repaired timestamps
	}
	s.total, s.buckets = v.total, s.buckets[v.from:]
	return s
}

// carry updates the sections that are not among views: it drops sections that no longer count, and
// repairs timestamps.
func (r *record) carry(views []view, now int64) {
	r.sections = slices.DeleteFunc(r.sections, func(s section) bool { return s.forgotten(now) && !among(views, s.per) })
	for i := range r.sections {
		if s := &r.sections[i]; s.ahead(now) {
			*s = *s.redated(now + s.per)
		}
	}
}

// read makes v the view of s, without buckets that no longer count. In the view, buckets later than
// now + Per are merged into one at now + Per. The section itself stays unchanged.
func (v *view) read(s *section, now int64) {
	v.section, v.total = s, s.total
	if s.ahead(now) {
		v.section = s.redated(now + s.per)
	}
	date := v.date(now)
	for _, b := range v.section.buckets {
		if b.last+s.per > date {
			return
		}
		v.total -= b.units
		v.from++
	}
}

// ahead reports whether the section has a timestamp that needs repair, because the clock stepped
// back by more than Per.
func (s *section) ahead(now int64) bool {
	return s.last() > now+s.per
}

// redated returns a copy of the section in which all buckets that are not before latest are merged
// into one at latest.
func (s *section) redated(latest int64) *section {
	copied, n := *s, len(s.buckets)
	merged := bucket{last: latest}
	for n > 0 && s.buckets[n-1].last >= latest {
		n--
		merged.units += s.buckets[n].units
	}
	copied.buckets = append(slices.Clone(s.buckets[:n]), merged)
	return &copied
}

// buckets returns the buckets that count, oldest first.
func (v *view) buckets() []bucket {
	if v.section == nil {
		return nil
	}
	return v.section.buckets[v.from:]
}

// date returns the time at which an attempt is counted: now, or the time of the newest bucket if
// that is later.
func (v *view) date(now int64) int64 {
	if v.section == nil {
		return now
	}
	return max(now, v.section.last())
}

// usage returns how many units of a limit are used once the added units count. It also returns how
// long it takes until the limit allows a request for the number of units in again, and until it is
// as if never used.
func (v *view) usage(most, again, added, date, now int64) (used, retry, reset int64) {
	used = v.total + added
	last := date
	if added == 0 {
		last = v.date(0)
	}
	if used+again > most {
		retry = v.freed(used+again-most, last, added > 0) + v.per - now
	}
	if used > 0 {
		reset = last + v.per - now
	}
	return used, retry, reset
}

// freed returns the time of the bucket whose expiry frees the given number of the oldest units. The
// units added at date are the newest. If they join the last bucket, its time becomes date.
func (v *view) freed(units, date int64, added bool) int64 {
	buckets := v.buckets()
	for i, b := range buckets {
		if units -= b.units; units <= 0 {
			if added && i == len(buckets)-1 && v.section.joins(date) {
				return date
			}
			return b.last
		}
	}
	return date
}

// joins reports whether a unit counted at date joins the last bucket.
func (s *section) joins(date int64) bool {
	n := len(s.buckets)
	return n > 0 && (s.buckets[n-1].last == date || s.resolution > 1 && s.buckets[n-1].last/s.resolution == date/s.resolution)
}

// add counts units at date. If they do not join the last bucket, they start a new one of the given
// width.
func (s *section) add(units, date, width int64) {
	s.total += units
	if n := len(s.buckets); s.joins(date) {
		s.buckets[n-1] = bucket{date, s.buckets[n-1].units + units}
		return
	}
	s.buckets, s.resolution = append(s.buckets, bucket{date, units}), width
}

// Refund gives back the units that the decision described by c counted.
func (m *counts) Refund(_ context.Context, event string, c limiter.Counted) error {
	var e memory.Event[record]
	if err := m.Open(&e, event); err != nil {
		return err
	}
	defer e.Close()
	if e.Record == nil {
		return nil
	}
	changed := false
	for i := range e.Record.sections {
		s := &e.Record.sections[i]
		given := c.Of(s.per) && c.At+s.per > max(e.Now, s.last()) && s.refund(c.Units, c.At)
		changed = changed || given
	}
	if !changed {
		return nil
	}
	e.Record.sections = slices.DeleteFunc(e.Record.sections, func(s section) bool { return s.forgotten(e.Now) })
	if len(e.Record.sections) == 0 {
		e.Remove()
	}
	return nil
}

// refund takes n units from the first bucket that is not before since, or as many as it has. It
// reports whether there is such a bucket.
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
			s.resolution = 1 // the previous bucket is closed: nothing joins it
		}
		s.buckets = slices.Delete(s.buckets, i, i+1)
	}
	return true
}

// Inspect returns the state of the event in the same form as the script.
func (m *counts) Inspect(_ context.Context, limits *limiter.Limits, event string) ([]int64, error) {
	var e memory.Event[record]
	if err := m.Open(&e, event); err != nil {
		return nil, err
	}
	defer e.Close()
	views := e.Record.views(nil, limits.All(), e.Now)
	reply := []int64{0, math.MaxInt64}
	for i := range views {
		reply[1] = min(reply[1], views[i].date(e.Now))
		used, retry, reset := views[i].usage(limits.All()[i].Max, 1, 0, 0, e.Now)
		reply = views[i].list(append(reply, used, retry, reset))
	}
	if e.Record == nil {
		return reply, nil
	}
	for i := range e.Record.sections {
		v := view{per: e.Record.sections[i].per}
		v.read(&e.Record.sections[i], e.Now)
		if !among(views, v.per) {
			used, _, reset := v.usage(maxUnits, 0, 0, 0, e.Now)
			reply = v.list(append(reply, v.per, used, reset))
		}
	}
	return reply, nil
}

// list appends the number of buckets, and then the time and units of each bucket, to reply.
func (v *view) list(reply []int64) []int64 {
	reply = append(reply, int64(len(v.buckets())))
	for _, b := range v.buckets() {
		reply = append(reply, b.last, b.units)
	}
	return reply
}

// forgotten reports whether the record holds no units that still count.
func (r *record) forgotten(now int64) bool {
	return !slices.ContainsFunc(r.sections, func(s section) bool { return !s.forgotten(now) })
}

func (s *section) forgotten(now int64) bool { return len(s.buckets) == 0 || s.last()+s.per <= now }

// last returns the time of the newest bucket, or 0 if there is none.
func (s *section) last() int64 {
	if n := len(s.buckets); n > 0 {
		return s.buckets[n-1].last
	}
	return 0
}
