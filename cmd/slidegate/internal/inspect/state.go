package inspect

import (
	"slices"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/estimator"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// State represents the state of an event. --json prints it. Durations are in milliseconds.
type State struct {
	Limiter   string         `json:"limiter"`
	Event     string         `json:"event"`
	Key       string         `json:"key"`
	Redis     string         `json:"redis"`
	Estimator string         `json:"estimator"`
	At        time.Time      `json:"at"`                 // by the Redis clock
	Stored    bool           `json:"stored"`             // Redis holds the key
	Override  *overrideState `json:"override,omitempty"` // of the event, if it has one

	OverrideError string `json:"override_error,omitempty"` // why the override could not be read

	*Decision
	*Turns
	*Places
	Limits []*section `json:"limits"` // first those given with --limit, in order, then any others that Redis stores

	server []string // flags that name the Redis server, quoted for a shell
	flags  []string // these, and flags that name the limiter
}

// Decision represents the decision on one more unit. For package pace, it says whether the next
// turn would come at once and, if not, how long until then. It is omitted without --limit.
type Decision struct {
	Allowed    bool  `json:"allowed"`
	RetryAfter int64 `json:"retry_after_ms"`
}

// Turns describes what package pace stores in addition to the limits' counts. A duration is 0 if it
// ends in the past.
type Turns struct {
	Newest      time.Time `json:"newest,omitzero"`
	NewestAfter int64     `json:"newest_after_ms"`
	PausedUntil time.Time `json:"paused_until,omitzero"`
	PausedFor   int64     `json:"paused_for_ms"`

	wait int64 // ms until the next turn under the given limits
}

// Places describes the leases of package inflight.
type Places struct {
	Token  int64   `json:"token"`  // the last token; 0 if none is known
	Leases []lease `json:"leases"` // in the order in which they end
}

type lease struct {
	Holder string    `json:"holder"` // empty if unknown
	Units  int64     `json:"units"`
	Token  int64     `json:"token"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"` // if the lease is not renewed
}

// section represents the state under one limit, or that of a stored window that matches none of the
// given limits. For package inflight there is a single section, without a Per.
type section struct {
	Per    int64 `json:"per_ms,omitzero"`
	Stored bool  `json:"stored"`
	*Bound
	ResetAfter int64 `json:"reset_after_ms"` // until all units are back
	*Counts
	*Level

	per time.Duration
	now time.Time // by the Redis clock, even if that has stepped back
}

// Bound describes how much of a limit is left. It is omitted unless --limit supplies Max, because
// Redis does not store Max.
type Bound struct {
	Limit      string `json:"limit"`
	Max        int64  `json:"max"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after_ms"` // until the limit would allow one unit
}

// Counts describes the units counted in a window.
type Counts struct {
	Used      int64    `json:"used"`
	Ahead     *int64   `json:"ahead,omitempty"` // pace: units whose turns have not come yet
	NextUnits int64    `json:"next_units"`      // the units that come back first
	NextAfter int64    `json:"next_after_ms"`
	Buckets   []bucket `json:"buckets,omitzero"` // oldest first; empty for package inflight, which has leases instead
}

type bucket struct {
	Last  time.Time `json:"last"`
	Units int64     `json:"units"`
}

// Level describes an ar1 level.
type Level struct {
	Level    float64 `json:"level"`
	Rate     float64 `json:"rate_per_second"`
	HalfLife int64   `json:"half_life_ms"`
}

func (s *Subject) newState(key string, at time.Time) *State {
	return &State{
		Limiter: s.Name, Event: s.Event, Key: key, Redis: s.Redis.String(), Estimator: s.estimator().String(), At: at,
		server: s.server(), flags: s.flags(),
	}
}

// windowState converts a snapshot of a window.Limiter.
func (s *Subject) windowState(snap window.Snapshot) *State {
	st := s.newState(snap.Key, snap.At)
	for _, l := range slices.Concat(snap.Limits, snap.Others) {
		sec := newSection(l.Usage, snap.At, l.Limit.String())
		sec.count(l)
		st.Limits = append(st.Limits, sec)
	}
	return st
}

// ar1State converts a snapshot of an ar1.Limiter.
func (s *Subject) ar1State(snap ar1.Snapshot) *State {
	st := s.newState(snap.Key, snap.At)
	for _, l := range slices.Concat(snap.Limits, snap.Others) {
		sec := newSection(l.Usage, snap.At, estimator.AR1.Text(l.Limit))
		sec.Level = &Level{l.Level, l.Rate, l.HalfLife.Milliseconds()}
		st.Limits = append(st.Limits, sec)
	}
	return st
}

// paceState converts a snapshot of a pace.Limiter.
func (s *Subject) paceState(snap pace.Snapshot) *State {
	st := s.newState(snap.Key, snap.At)
	after := func(t time.Time) int64 { return max(0, t.Sub(snap.At).Milliseconds()) }
	st.Estimator, st.Turns = "pace", &Turns{snap.Newest, after(snap.Newest), snap.PausedUntil, after(snap.PausedUntil), after(snap.Next)}
	for _, l := range slices.Concat(snap.Limits, snap.Others) {
		sec := newSection(l.Usage, snap.At, l.Limit.Label())
		sec.count(l)
		sec.Ahead = new(int64)
		for _, b := range l.Buckets {
			if b.Last.After(snap.At) {
				*sec.Ahead += b.Units
			}
		}
		st.Limits = append(st.Limits, sec)
	}
	return st
}

// inflightState converts a snapshot of an inflight.Limiter. A Max of 0 means that Max is unknown.
func (s *Subject) inflightState(snap inflight.Snapshot) *State {
	st := s.newState(snap.Key, snap.At)
	st.Estimator, st.Places, st.Limits = "inflight", &Places{snap.Token, []lease{}}, []*section{}
	for _, held := range snap.Leases {
		st.Leases = append(st.Leases, lease(held))
	}
	if snap.Max > 0 || st.recorded() {
		st.Limits = append(st.Limits, heldSection(snap))
	}
	return st
}

// heldSection returns a section that covers all leases. It assumes that no lease is renewed or
// released before its end.
func heldSection(snap inflight.Snapshot) *section {
	l := window.LimitState{Usage: window.Usage{Limit: window.Limit{Max: snap.Max}, Used: snap.Used, Remaining: max(0, snap.Max-snap.Used)}}
	for _, held := range snap.Leases {
		l.Buckets = append(l.Buckets, window.Bucket{Last: held.Until, Units: held.Units})
		l.ResetAfter = held.Until.Sub(snap.At)
	}
	sec := newSection(l.Usage, snap.At, strconv.FormatInt(snap.Max, 10))
	sec.count(l)
	sec.Buckets = nil
	if sec.Bound != nil && sec.Remaining == 0 {
		sec.RetryAfter = max(1, sec.NextAfter)
	}
	return sec
}

// newSection returns a section that has no counts yet. It has no Bound if Max is unknown.
func newSection(u window.Usage, at time.Time, limit string) *section {
	sec := &section{Per: u.Limit.Per.Milliseconds(), ResetAfter: u.ResetAfter.Milliseconds(), per: u.Limit.Per, now: at}
	if u.Limit.Max > 0 {
		sec.Bound = &Bound{limit, u.Limit.Max, u.Remaining, u.RetryAfter.Milliseconds()}
	}
	return sec
}

// count adds the buckets of l, and computes when units come back. The newest bucket expires last.
func (sec *section) count(l window.LimitState) {
	sec.Counts = &Counts{Used: l.Used, Buckets: []bucket{}}
	if len(l.Buckets) == 0 {
		return
	}
	sec.now = l.Buckets[len(l.Buckets)-1].Last.Add(sec.per - l.ResetAfter)
	excess := int64(0) // units above Max; nothing is free until they have expired
	if sec.Bound != nil {
		excess = max(0, l.Used-l.Limit.Max)
	}
	for _, b := range l.Buckets {
		sec.Buckets = append(sec.Buckets, bucket(b))
		if excess >= 0 {
			excess -= b.Units
			sec.NextUnits, sec.NextAfter = -excess, b.Last.Add(sec.per).Sub(sec.now).Milliseconds()
		}
	}
}

// decide marks the stored sections, and decides on one more unit under the given limits.
func (st *State) decide(stored []*section) {
	st.Stored = len(stored) > 0 || st.recorded()
	for _, sec := range st.Limits {
		sec.Stored = slices.ContainsFunc(stored, func(other *section) bool { return other.per == sec.per })
	}
	for _, sec := range st.given() {
		if st.Decision == nil {
			st.Decision = &Decision{Allowed: true}
		}
		st.Allowed = st.Allowed && sec.RetryAfter == 0
		st.RetryAfter = max(st.RetryAfter, sec.RetryAfter)
	}
	if st.Decision != nil && st.Turns != nil {
		st.Allowed, st.RetryAfter = st.wait == 0, st.wait
	}
}

// recorded reports whether Redis holds the key, even if the key counts no units.
func (st *State) recorded() bool {
	return st.Turns != nil && (!st.Newest.IsZero() || !st.PausedUntil.IsZero()) || st.Places != nil && st.Token > 0
}

// dropPlaceholders keeps only the sections that Redis stores if no limits were given.
func (st *State) dropPlaceholders() []*section {
	st.Limits = slices.DeleteFunc(st.Limits, func(sec *section) bool { return sec.Bound != nil })
	return st.Limits
}

// countingSections returns the sections that count at least one unit.
func (st *State) countingSections() (counted []*section) {
	for _, sec := range st.Limits {
		if sec.ResetAfter > 0 {
			counted = append(counted, sec)
		}
	}
	return counted
}

// status returns the exit status for the state.
func (st *State) status() cli.ExitStatus {
	switch {
	case st.Decision != nil && !st.Allowed && st.Turns == nil:
		return statusDenied
	case !st.Stored && st.Override == nil:
		return statusUnknown
	}
	return 0
}

// attemptTime returns the time that would be recorded for an attempt made now: the earliest time of
// all sections. With package pace, turns can be later.
func (st *State) attemptTime() time.Time {
	earliest := st.At
	if st.Turns != nil {
		return earliest
	}
	for i, sec := range st.Limits {
		if date := sec.attemptTime(); i == 0 || date.Before(earliest) {
			earliest = date
		}
	}
	return earliest
}

// attemptTime returns the time that this section would record for an attempt made now: the current
// time, but never before the section's last event.
func (sec *section) attemptTime() time.Time {
	if sec.Counts != nil && len(sec.Buckets) > 0 {
		if last := sec.Buckets[len(sec.Buckets)-1].Last; last.After(sec.now) {
			return last
		}
	}
	return sec.now
}
