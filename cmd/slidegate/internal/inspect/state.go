package inspect

import (
	"slices"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/estimator"
	"github.com/slidegate/slidegate/window"
)

// State is what is counted for an event, as --json prints it. Durations are in milliseconds.
type State struct {
	Limiter   string    `json:"limiter"`
	Event     string    `json:"event"`
	Key       string    `json:"key"`
	Redis     string    `json:"redis"`
	Estimator string    `json:"estimator"`
	At        time.Time `json:"at"`     // by the clock of Redis
	Stored    bool      `json:"stored"` // Redis holds the key
	*Verdict
	Limits []*section `json:"limits"` // those of --limit, in order, then what else is stored

	flags []string // that name the limiter, quoted for a shell
}

// Verdict is what one more unit would be told. It is missing without --limit.
type Verdict struct {
	Allowed    bool  `json:"allowed"`
	RetryAfter int64 `json:"retry_after_ms"`
}

// section is the state under one limit, or in one window that is stored under none of the limits given.
type section struct {
	Per    int64 `json:"per_ms"`
	Stored bool  `json:"stored"`
	*Bound
	ResetAfter int64 `json:"reset_after_ms"` // until it is as if never used
	*Counts
	*Level

	per time.Duration
	now time.Time // by the clock of Redis, also where it stepped back
}

// Bound is what a limit makes of the counts. It is missing where no --limit says how much the limit holds: Redis does not know.
type Bound struct {
	Limit      string `json:"limit"`
	Max        int64  `json:"max"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after_ms"` // until it would admit one unit
}

// Counts is what a window counts.
type Counts struct {
	Used      int64    `json:"used"`
	NextUnits int64    `json:"next_units"` // that come back first
	NextAfter int64    `json:"next_after_ms"`
	Buckets   []bucket `json:"buckets"` // oldest first
}

type bucket struct {
	Last  time.Time `json:"last"`
	Units int64     `json:"units"`
}

// Level is that of ar1.
type Level struct {
	Level    float64 `json:"level"`
	Rate     float64 `json:"rate_per_second"`
	HalfLife int64   `json:"half_life_ms"`
}

func (s *Subject) newState(key string, at time.Time) *State {
	return &State{flags: s.flags(), Limiter: s.Name, Event: s.Event, Key: key, Redis: s.Redis.String(), Estimator: s.estimator().String(), At: at}
}

// windows returns the state that a limiter of window reports.
func (s *Subject) windows(told window.Snapshot) *State {
	st := s.newState(told.Key, told.At)
	for _, l := range slices.Concat(told.Limits, told.Others) {
		sec := newSection(l.Usage, told.At, l.Limit.String())
		sec.count(l)
		st.Limits = append(st.Limits, sec)
	}
	return st
}

// levels returns the state that a limiter of ar1 reports.
func (s *Subject) levels(told ar1.Snapshot) *State {
	st := s.newState(told.Key, told.At)
	for _, l := range slices.Concat(told.Limits, told.Others) {
		sec := newSection(l.Usage, told.At, estimator.AR1.Text(l.Limit))
		sec.Level = &Level{l.Level, l.Rate, l.HalfLife.Milliseconds()}
		st.Limits = append(st.Limits, sec)
	}
	return st
}

// newSection returns a section without its counts. It has no Bound if how much the limit holds is not known.
func newSection(u window.Usage, at time.Time, limit string) *section {
	sec := &section{Per: u.Limit.Per.Milliseconds(), ResetAfter: u.ResetAfter.Milliseconds(), per: u.Limit.Per, now: at}
	if u.Limit.Max > 0 {
		sec.Bound = &Bound{limit, u.Limit.Max, u.Remaining, u.RetryAfter.Milliseconds()}
	}
	return sec
}

// count takes over the buckets, and finds out when something comes back: the newest bucket is forgotten last.
func (sec *section) count(l window.LimitState) {
	sec.Counts = &Counts{Used: l.Used, Buckets: []bucket{}}
	if len(l.Buckets) == 0 {
		return
	}
	sec.now = l.Buckets[len(l.Buckets)-1].Last.Add(sec.per - l.ResetAfter)
	excess := int64(0) // what may be forgotten without anything being free
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

// judge finds which sections are stored, and what the limits given say of one more unit.
func (st *State) judge(stored []*section) {
	st.Stored = len(stored) > 0
	for _, sec := range st.Limits {
		sec.Stored = slices.ContainsFunc(stored, func(other *section) bool { return other.per == sec.per })
	}
	for _, sec := range st.given() {
		if st.Verdict == nil {
			st.Verdict = &Verdict{Allowed: true}
		}
		st.Allowed = st.Allowed && sec.RetryAfter == 0
		st.RetryAfter = max(st.RetryAfter, sec.RetryAfter)
	}
}

// counted returns the sections that count something.
func (st *State) counted() (counted []*section) {
	for _, sec := range st.Limits {
		if sec.ResetAfter > 0 {
			counted = append(counted, sec)
		}
	}
	return counted
}

// status returns the exit status that the state stands for.
func (st *State) status() cli.ExitStatus {
	switch {
	case st.Verdict != nil && !st.Allowed:
		return statusDenied
	case !st.Stored:
		return statusUnknown
	}
	return 0
}

// date returns when an attempt would happen: the earliest of what the sections take for now.
func (st *State) date() time.Time {
	earliest := st.At
	for i, sec := range st.Limits {
		if date := sec.date(); i == 0 || date.Before(earliest) {
			earliest = date
		}
	}
	return earliest
}

// date returns when the section takes an attempt to happen: now, but not before its last event.
func (sec *section) date() time.Time {
	if sec.Counts != nil && len(sec.Buckets) > 0 {
		if last := sec.Buckets[len(sec.Buckets)-1].Last; last.After(sec.now) {
			return last
		}
	}
	return sec.now
}
