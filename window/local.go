package window

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// local keeps the counts in memory. Events are spread over shards, each with a lock, so that callers on different events do
// not queue. There is no goroutine: now and then a call sweeps a few events of the next shard.
type local struct {
	l      *Limiter
	begin  time.Time // when it was made; the clock is what passed since on the monotonic clock
	limits []bounds
	seed   maphash.Seed
	next   atomic.Uint32 // the shard to sweep next
	shards [64]shard
}

// bounds is a limit in ms.
type bounds struct{ per, max, resolution int64 }

type shard struct {
	mu     sync.Mutex
	events map[string]*record
	order  []*record // all of events, in any order, for the sweep
	hand   int       // where in order the sweep goes on
	peak   int       // most events since the map was made: maps do not shrink
	calls  uint32
	_      [64]byte // keeps neighbours off one cache line
}

// record is the state of one event.
type record struct {
	event    string
	place    int  // its index in order
	idle     bool // a sweep found it forgotten, and nobody asked for it since
	sections []section
}

// section is the state of one limit of one event.
type section struct {
	resolution int64 // of the last bucket
	total      int64 // units in all buckets
	buckets    []bucket
}

type bucket struct{ last, units int64 }

func newLocal(l *Limiter) *local {
	m := &local{l: l, begin: time.Now(), seed: maphash.MakeSeed()}
	for _, limit := range l.cfg.Limits {
		m.limits = append(m.limits, bounds{limit.Per.Milliseconds(), limit.Max, limit.resolution(l.cfg.CountDenied).Milliseconds()})
	}
	for i := range m.shards {
		m.shards[i].events = map[string]*record{}
	}
	return m
}

// held is what stands for an event in memory: a hash of one that is longer than any event that stands for itself.
func held(event string) string {
	if len(event) <= longest {
		return event
	}
	sum := sha512.Sum512([]byte(event))
	return "~" + hex.EncodeToString(sum[:])
}

// open locks the shard of the event and returns both, and the time; the record is nil if there is none. The clock is read
// under the lock: else a sweep could go by a later time, and drop what counts at this one.
func (m *local) open(event string) (s *shard, rec *record, now int64, err error) {
	if m.l.cfg.Now != nil {
		if now, err = m.l.nowMS(); err != nil {
			return nil, nil, 0, err
		}
	}
	s = &m.shards[maphash.String(m.seed, event)%uint64(len(m.shards))]
	s.mu.Lock()
	if m.l.cfg.Now == nil {
		now = m.begin.Add(time.Since(m.begin)).UnixMilli()
	}
	if rec = s.events[event]; rec != nil {
		rec.idle = false
	}
	return s, rec, now, nil
}

func (m *local) decide(_ context.Context, v verb, event string, n int64) (Decision, error) {
	event = held(event)
	s, rec, now, err := m.open(event)
	if err != nil {
		return Decision{}, err
	}
	defer m.leave(s, now)
	d, changed := m.answer(rec, v, n, now)
	if d.Counted > 0 && d.most() > maxUnits {
		return Decision{}, errors.New("more than 2^53 units would be counted; wait until some are forgotten, or Reset the event")
	}
	if d.Counted > 0 && rec == nil {
		rec = s.add(event, len(m.limits))
	}
	if rec != nil && (d.Counted > 0 || changed && v != peek) {
		m.store(rec, d.Counted, now)
	}
	return d, nil
}

// most is the highest count of a limit.
func (d Decision) most() (units int64) {
	for _, u := range d.Usage {
		units = max(units, u.Used)
	}
	return units
}

// answer decides without touching the record. It also says whether a date needs repair.
func (m *local) answer(rec *record, v verb, n, now int64) (Decision, bool) {
	allowed, repaired := true, false
	for i, b := range m.limits {
		view, moved := rec.at(i).view(now, b.per)
		allowed, repaired = allowed && view.total+n <= b.max, repaired || moved
	}
	adds, at := allowed || v == count, int64(maxTime)
	usage := make([]Usage, len(m.limits))
	for i, b := range m.limits {
		view, _ := rec.at(i).view(now, b.per)
		date := view.date(now)
		at = min(at, date)
		usage[i] = view.usage(m.l.cfg.Limits[i], b, n, adds, date, now)
	}
	counted := int64(0)
	if adds && v != peek {
		counted = n
	}
	return newDecision(allowed, counted, utc(at), usage), repaired
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

// usage tells how much of the limit is used, after n units were added or not.
func (s section) usage(l Limit, b bounds, n int64, adds bool, date, now int64) Usage {
	last := s.date(0)
	if adds {
		s.total, last = s.total+n, date
	}
	retry, reset := int64(0), int64(0)
	if s.total+n > b.max {
		retry = s.freed(s.total+n-b.max, last, adds) + b.per - now
	}
	if s.total > 0 {
		reset = last + b.per - now
	}
	return newUsage(l, s.total, retry, reset)
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

// store writes what view reads, and adds the units.
func (m *local) store(rec *record, units, now int64) {
	for i, b := range m.limits {
		view, _ := rec.sections[i].view(now, b.per)
		if units > 0 {
			view = view.add(units, view.date(now), b.resolution)
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

func (m *local) refund(_ context.Context, event string, d Decision) error {
	s, rec, now, err := m.open(held(event))
	if err != nil {
		return err
	}
	defer m.leave(s, now)
	if rec == nil {
		return nil
	}
	changed, at := false, d.At.UnixMilli()
	for i, b := range m.limits {
		sec := &rec.sections[i]
		given := d.counted(m.l.cfg.Limits[i]) && at+b.per > sec.date(now) && sec.refund(d.Counted, at)
		changed = changed || given
	}
	if changed && rec.clean(m.limits, now) {
		s.remove(rec)
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

func (m *local) reset(_ context.Context, event string) error {
	s, rec, now, err := m.open(held(event))
	if err != nil {
		return err
	}
	defer m.leave(s, now)
	if rec != nil {
		s.remove(rec)
	}
	return nil
}

func (m *local) inspect(_ context.Context, event string) (time.Time, []LimitState, error) {
	s, rec, now, err := m.open(held(event))
	if err != nil {
		return time.Time{}, nil, err
	}
	defer m.leave(s, now)
	at, states := int64(maxTime), make([]LimitState, len(m.limits))
	for i, b := range m.limits {
		view, _ := rec.at(i).view(now, b.per)
		at = min(at, view.date(now))
		states[i].Usage = view.usage(m.l.cfg.Limits[i], b, 1, false, view.date(now), now)
		for _, bucket := range view.buckets {
			states[i].Buckets = append(states[i].Buckets, Bucket{Last: utc(bucket.last), Units: bucket.units})
		}
	}
	return utc(at), states, nil
}

const (
	sweepEvery = 16 // calls of a shard between two sweeps
	sweepSome  = 64 // records that a sweep looks at
)

// leave unlocks the shard. Every so many calls it sweeps the next shard that nobody is using; but not by the clock of
// Config.Now, which may step back to when a record was not yet forgotten.
func (m *local) leave(s *shard, now int64) {
	s.calls++
	due := s.calls%sweepEvery == 0 && m.l.cfg.Now == nil
	s.mu.Unlock()
	if !due {
		return
	}
	s = &m.shards[m.next.Add(1)%uint32(len(m.shards))]
	if s.mu.TryLock() {
		s.sweep(m.limits, now)
		s.mu.Unlock()
	}
}

// sweep removes some records that are forgotten and that nobody asked for since the last sweep: a clock that jumped ahead
// for a moment frees nothing by being swept.
func (s *shard) sweep(limits []bounds, now int64) {
	for range min(sweepSome, len(s.order)) {
		if s.hand >= len(s.order) {
			s.hand = 0
		}
		rec := s.order[s.hand]
		switch {
		case !rec.forgotten(limits, now):
			rec.idle = false
			s.hand++
		case rec.idle:
			s.remove(rec)
		default:
			rec.idle = true
			s.hand++
		}
		if len(s.order) == 0 {
			return
		}
	}
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

func (s *shard) add(event string, limits int) *record {
	rec := &record{event: strings.Clone(event), place: len(s.order), sections: make([]section, limits)}
	s.events[rec.event], s.order = rec, append(s.order, rec)
	s.peak = max(s.peak, len(s.order))
	return rec
}

func (s *shard) remove(rec *record) {
	last := len(s.order) - 1
	s.order[rec.place], s.order[last].place = s.order[last], rec.place
	s.order[last], s.order = nil, s.order[:last]
	delete(s.events, rec.event)
	if s.peak > 64 && last < s.peak/4 {
		s.shrink()
	}
}

// shrink makes the map and the list anew, since neither gives back memory by itself.
func (s *shard) shrink() {
	s.events, s.order, s.peak = make(map[string]*record, len(s.order)), slices.Clone(s.order), len(s.order)
	for _, rec := range s.order {
		s.events[rec.event] = rec
	}
}
