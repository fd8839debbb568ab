package mostdenied

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/slidegate/slidegate/window"
)

const reported = 50 // maximum number of events in a Report

// Report is a summary of a List.
type Report struct {
	Denied int64   `json:"denied"` // all denials since New
	Events int     `json:"events"` // how many of the counted events were denied in the last hour; at most 4,096
	Most   []Entry `json:"most"`   // the events with the highest rates of denials, at most 50
}

// Entry is an event that was denied.
type Entry struct {
	Limiter string `json:"limiter"`          // Config.Name; for login, followed by a dot and the budget: login.account
	Event   string `json:"event"`            // as in window.Denial
	Hashed  bool   `json:"hashed,omitempty"` // whether Event is a hash, as in window.Denial

	// Limit is the limit that denied the last attempt: "5/1h", or "5 at once" for inflight. It is
	// empty if an override blocked the event, or if a limiter in memory had no room for it.
	Limit string `json:"limit"`

	// Override is the mode of the override that applied to the last attempt, or "" if none did.
	Override window.OverrideMode `json:"override,omitempty"`

	Denied int64 `json:"denied"` // denials since Since

	// PerMinute is the rate of denials, averaged over 15 minutes like a Unix load average: it
	// approaches the rate of a steady client, and falls to about a third during 15 minutes of
	// silence.
	PerMinute float64 `json:"per_minute"`

	Since time.Time `json:"since"` // the first denial since the event was last added to the List
	Last  time.Time `json:"last"`  // the last denial
	Until time.Time `json:"until"` // when an attempt like the last one can be allowed
}

// Report returns the events with the highest rates of denials, highest first. Times are in UTC, on
// this process's clock, and accurate to about a second.
func (l *List) Report() Report {
	denied, events, scale := l.current(time.Now())
	slices.SortFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(b.own(), a.own()), cmp.Compare(a.limiter, b.limiter), cmp.Compare(a.event, b.event))
	})
	r := Report{Denied: denied, Events: len(events), Most: []Entry{}}
	for _, e := range events[:min(len(events), reported)] {
		r.Most = append(r.Most, e.report(scale))
	}
	return r
}

// current returns the number of all denials, copies of the events that are listed at the given
// time, and the total weight of denials at a steady rate of one per minute.
func (l *List) current(now time.Time) (denied int64, events []event, scale float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if now.Sub(e.last) <= listed {
			events = append(events, *e)
		}
	}
	return l.denied, events, math.Exp(float64(now.Sub(l.landmark))/float64(average)) * average.Minutes()
}

// own returns the part of the weight that certainly belongs to the event.
func (e *event) own() float64 { return e.weight - e.inherited }

// report converts the event to an Entry. scale is the total weight of denials at a steady rate of
// one per minute.
func (e *event) report(scale float64) Entry {
	return Entry{
		Limiter: e.limiter, Event: e.event, Hashed: e.hashed, Limit: limitText(e.limit), Override: e.override, Denied: e.denied,
		PerMinute: math.Round(1000*e.own()/scale) / 1000,
		Since:     e.since.UTC(), Last: e.last.UTC(), Until: e.last.Add(e.retryAfter).UTC(),
	}
}

func limitText(l window.Limit) string {
	switch {
	case l == window.Limit{}:
		return ""
	case l.Per == 0:
		return fmt.Sprintf("%d at once", l.Max)
	}
	return l.Label()
}
