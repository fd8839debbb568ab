package window_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/window"
)

// exactLog is the model that limiters are compared with. It keeps every counted attempt on one
// event with its own time, computes every answer from the whole log, and finds waits by trial. It
// shares no code with package window.
type exactLog struct {
	windows map[int64][]*entry // by Per in ms, in the order in which they were counted
	buckets int                // number of buckets ever opened
}

// entry is one attempt in one window.
type entry struct {
	at, units int64
	bucket    int   // attempts in one bucket are forgotten together
	width     int64 // the Resolution under which the bucket was opened
	shut      bool  // a later bucket was opened, even if it is gone by now: only an attempt at the same time joins this one
}

// rule is a limit in ms.
type rule struct{ per, max, width int64 }

func newExactLog() *exactLog { return &exactLog{windows: map[int64][]*entry{}} }

func rulesOf(limits []window.Limit, countDenied bool) (rules []rule) {
	for _, l := range limits {
		r := rule{per: l.Per.Milliseconds(), max: l.Max, width: l.Resolution.Milliseconds()}
		if r.width == 0 && l.Max <= 60 && !countDenied {
			r.width = 1
		}
		if r.width == 0 {
			r.width = (r.per + 59) / 60
		}
		if countDenied {
			r.width = max(r.width, (r.per+254)/255)
		}
		rules = append(rules, r)
	}
	return rules
}

func (x *exactLog) clone() *exactLog {
	c := &exactLog{windows: map[int64][]*entry{}, buckets: x.buckets}
	for per, log := range x.windows {
		entries := make([]entry, len(log))
		for i, e := range log {
			entries[i] = *e
			c.windows[per] = append(c.windows[per], &entries[i])
		}
	}
	return c
}

// String lists the entries of each window.
func (x *exactLog) String() string {
	var text strings.Builder
	for per, log := range x.windows {
		fmt.Fprintf(&text, "%d ms:", per)
		for _, e := range log {
			fmt.Fprintf(&text, " %+v", *e)
		}
		text.WriteString("\n")
	}
	return text.String()
}

// newest returns the time of the newest entry, or 0 if there is none.
func newest(log []*entry) (at int64) {
	for _, e := range log {
		at = max(at, e.at)
	}
	return at
}

// lastOf returns the time of the last event in the bucket of e.
func lastOf(log []*entry, e *entry) (last int64) {
	for _, other := range log {
		if other.bucket == e.bucket {
			last = max(last, other.at)
		}
	}
	return last
}

// repair moves entries dated after now + Per back to now + Per, as one bucket.
func (x *exactLog) repair(now int64) (repaired bool) {
	for per, log := range x.windows {
		if newest(log) <= now+per {
			continue
		}
		repaired = true
		open := *log[len(log)-1]
		var late []*entry
		for _, e := range log {
			if lastOf(log, e) >= now+per {
				late = append(late, e)
			}
		}
		for _, e := range late {
			e.at, e.bucket, e.width, e.shut = now+per, open.bucket, open.width, open.shut
		}
	}
	return repaired
}

// alive returns the entries that the window still counts at now.
func alive(log []*entry, per, now int64) (kept []*entry) {
	date := max(now, newest(log))
	for _, e := range log {
		if lastOf(log, e)+per > date {
			kept = append(kept, e)
		}
	}
	return kept
}

func sum(log []*entry) (units int64) {
	for _, e := range log {
		units += e.units
	}
	return units
}

// forget drops the entries that are forgotten under the given rules, and drops other windows once
// no entry in them counts.
func (x *exactLog) forget(rules []rule, now int64) {
	for per, log := range x.windows {
		ours := slices.ContainsFunc(rules, func(r rule) bool { return r.per == per })
		if kept := alive(log, per, now); ours || newest(log)+per <= now {
			x.windows[per] = kept
		}
	}
}

func (x *exactLog) count(r rule, n, now int64) {
	log := x.windows[r.per]
	date := max(now, newest(log))
	e := &entry{at: date, units: n, bucket: x.buckets, width: r.width}
	x.buckets++
	if len(log) > 0 {
		if open := log[len(log)-1]; lastOf(log, open) == date || !open.shut && lastOf(log, open)/open.width == date/open.width {
			e.bucket, e.width, e.shut = open.bucket, open.width, open.shut
		} else {
			open.shut = true
		}
	}
	x.windows[r.per] = append(log, e)
}

func (x *exactLog) fits(r rule, n, now int64) bool {
	return sum(alive(x.windows[r.per], r.per, now))+n <= r.max
}

// wait returns how long it takes until the rule allows n units. It tries every time at which
// something is forgotten.
func (x *exactLog) wait(r rule, n, now int64) int64 {
	if x.fits(r, n, now) {
		return 0
	}
	log, soonest := x.windows[r.per], int64(-1)
	for _, e := range log {
		moment := lastOf(log, e) + r.per
		if moment > now && (soonest < 0 || moment < soonest) && x.fits(r, n, moment) {
			soonest = moment
		}
	}
	return soonest - now
}

// granted returns how many units every rule allows: all or none, or as many as fit.
func (x *exactLog) granted(rules []rule, verb string, n, now int64) int64 {
	fit := n
	for _, r := range rules {
		fit = min(fit, r.max-sum(alive(x.windows[r.per], r.per, now)))
	}
	if whole := verb == "allow" || verb == "peek"; fit < 0 || whole && fit < n {
		return 0
	}
	return fit
}

// decide returns the correct answer to AllowN, PeekN, AllowUpTo or Charge.
func (x *exactLog) decide(limits []window.Limit, verb string, n, now int64, countDenied bool) window.Decision {
	if verb == "peek" {
		x = x.clone()
	}
	rules := rulesOf(limits, countDenied || verb == "charge")
	repaired := x.repair(now)
	d := window.Decision{Granted: x.granted(rules, verb, n, now), Remaining: 1 << 62}
	d.Allowed = d.Granted == n || verb == "upTo" && d.Granted > 0
	d.At = x.date(rules, now)
	seen := d.Granted // units that Usage includes
	if verb == "charge" || countDenied && verb != "peek" {
		seen = n
	}
	if verb != "peek" {
		d.Counted = seen
	}
	if seen > 0 || repaired {
		x.forget(rules, now)
	}
	again := n
	if verb == "upTo" || verb == "charge" {
		again = 1
	}
	for i, r := range rules {
		if seen > 0 {
			x.count(r, seen, now)
		}
		u := x.usage(limits[i], r, again, now)
		d.Usage = append(d.Usage, u)
		d.Remaining = min(d.Remaining, u.Remaining)
		if d.Granted < n {
			d.RetryAfter = max(d.RetryAfter, u.RetryAfter)
		}
	}
	return d
}

// date returns the time of the attempt: the earliest of the times at which it is counted under the
// rules.
func (x *exactLog) date(rules []rule, now int64) time.Time {
	at := int64(1 << 62)
	for _, r := range rules {
		at = min(at, max(now, newest(alive(x.windows[r.per], r.per, now))))
	}
	return time.UnixMilli(at).UTC()
}

func (x *exactLog) usage(l window.Limit, r rule, n, now int64) window.Usage {
	log := alive(x.windows[r.per], r.per, now)
	u := window.Usage{Limit: l, Used: sum(log), RetryAfter: ms(x.wait(r, n, now))}
	u.Remaining = max(0, l.Max-u.Used)
	if len(log) > 0 {
		u.ResetAfter = ms(newest(log) + r.per - now)
	}
	return u
}

// refund gives back the units that d counted, in every limit that counted them and still counts
// them.
func (x *exactLog) refund(limits []window.Limit, d window.Decision, now int64) {
	changed, since := false, d.At.UnixMilli()
	for _, r := range rulesOf(limits, false) {
		log := x.windows[r.per]
		had := slices.ContainsFunc(d.Usage, func(u window.Usage) bool { return u.Limit.Per == ms(r.per) })
		if !had || since+r.per <= max(now, newest(log)) {
			continue
		}
		i := slices.IndexFunc(log, func(e *entry) bool { return lastOf(log, e) >= since })
		if i < 0 {
			continue
		}
		changed = true
		x.take(r.per, log[i].bucket, d.Counted)
	}
	for per, log := range x.windows {
		if changed && newest(log)+per <= now {
			delete(x.windows, per)
		}
	}
}

// take removes units from a bucket. The time of the bucket's last event stays as long as any unit
// is left in it.
func (x *exactLog) take(per int64, bucket int, units int64) {
	log := x.windows[per]
	last := lastOf(log, log[slices.IndexFunc(log, func(e *entry) bool { return e.bucket == bucket })])
	wasOpen := log[len(log)-1].bucket == bucket
	var kept []*entry
	for _, e := range log {
		if e.bucket == bucket {
			taken := min(units, e.units)
			units, e.units, e.at = units-taken, e.units-taken, last
		}
		if e.units > 0 {
			kept = append(kept, e)
		}
	}
	if len(kept) > 0 && wasOpen && kept[len(kept)-1].bucket != bucket {
		kept[len(kept)-1].shut = true // a later bucket may be gone, but nothing joins this one
	}
	x.windows[per] = kept
}

// inspect returns the states that Inspect should return.
func (x *exactLog) inspect(limits []window.Limit, now int64, countDenied bool) (states []window.LimitState) {
	x = x.clone()
	x.repair(now)
	for i, r := range rulesOf(limits, countDenied) {
		log := alive(x.windows[r.per], r.per, now)
		state := window.LimitState{Usage: x.usage(limits[i], r, 1, now)}
		for k, e := range log {
			if k == 0 || log[k-1].bucket != e.bucket {
				state.Buckets = append(state.Buckets, window.Bucket{Last: time.UnixMilli(lastOf(log, e)).UTC()})
			}
			state.Buckets[len(state.Buckets)-1].Units += e.units
		}
		states = append(states, state)
	}
	return states
}
