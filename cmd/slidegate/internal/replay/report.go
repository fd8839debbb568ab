package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/charts"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
)

const topEvents = 10 // the maximum number of events in a list of the report

// Report represents the outcome of a replay. --json prints it. Durations are in milliseconds.
type Report struct {
	logReport
	By            string    `json:"by,omitempty"`    // the value of the flag --by
	Redis         string    `json:"redis,omitempty"` // the addresses; empty means in memory
	Limiter       string    `json:"limiter,omitempty"`
	Estimator     string    `json:"estimator"`
	Events        int       `json:"events"`
	Estimated     bool      `json:"estimated"` // there were too many events to keep, so their numbers are accurate to about 2 %
	DefaultLimits bool      `json:"default_limits"`
	Sets          []*result `json:"sets"`
	Picture       string    `json:"picture,omitempty"`

	timeline *charts.Timeline
}

// logReport describes the log that was read.
type logReport struct {
	Sample          bool      `json:"sample"`          // it is the built-in log, not a file
	Files           []string  `json:"files,omitempty"` // as named
	Lines           int       `json:"lines"`
	NoAttempt       int       `json:"lines_without_attempt"`
	FirstNoEvent    string    `json:"first_without_event,omitempty"`
	Unreadable      int       `json:"unreadable_lines"`
	FirstUnreadable string    `json:"first_unreadable,omitempty"`
	Field           string    `json:"field,omitempty"` // if the log has named fields and --by names none: the field that is the event
	Attempts        int       `json:"attempts"`
	WithResult      int       `json:"attempts_with_result"` // attempts for which the log says whether they succeeded
	Succeeded       int       `json:"attempts_succeeded"`   // attempts that succeeded
	OutOfOrder      int       `json:"out_of_order"`         // attempts with an earlier time than a line before them
	FurthestBack    int64     `json:"furthest_back_ms"`
	Sorted          bool      `json:"sorted"`
	From            time.Time `json:"from"`
	To              time.Time `json:"to"`
	Period          int64     `json:"period_ms"`
	YearsAssumed    int       `json:"years_assumed"` // attempts from lines without a year

	reading []string // the flags and files with which the log was read
}

// result represents the outcome of a replay under one set of limits.
type result struct {
	Limits          []limitReport `json:"limits"`
	Allowed         int           `json:"allowed"`
	Denied          int           `json:"denied"`
	NeverAllowed    int           `json:"never_allowed"`    // denied attempts with more units than a limit's Max
	DeniedSucceeded int           `json:"denied_succeeded"` // denied attempts that succeeded according to the log
	DeniedEvents    int           `json:"denied_events"`
	waitReport
	Top           []Event `json:"denied_most"`
	MoreDenied    int     `json:"denied_more"`             // denied events that denied_most omits
	ByMistake     []Event `json:"denied_though_succeeded"` // the events with the most denied successes
	MoreByMistake int     `json:"denied_though_succeeded_more"`
	Lost          int     `json:"denials_lost,omitempty"` // if Estimated is set, how many further denials an event may have had, long before or after those counted

	set   flags.Limits
	waits *charts.Waits
}

// waitReport says how long denied attempts had to wait.
type waitReport struct {
	Wait50      int64 `json:"wait_50_ms"` // the median; up to 4.5 % too high
	Wait99      int64 `json:"wait_99_ms"` // the 99th percentile; up to 4.5 % too high
	LongestWait int64 `json:"longest_wait_ms"`
}

func waited(waits *charts.Waits) waitReport {
	return waitReport{waits.Quantile(0.5).Milliseconds(), waits.Quantile(0.99).Milliseconds(), waits.Longest().Milliseconds()}
}

type limitReport struct {
	Limit    string `json:"limit"`
	Needless string `json:"never_denies_because_of,omitempty"` // another limit of the set, which denies everything that this one would deny

	// Denied counts the attempts that this limit denies, whatever the other limits decide. An
	// attempt that can never be allowed counts only for those limits whose Max it exceeds.
	Denied int `json:"denied"`
}

// Event represents the outcome of all attempts of an event, such as an address or an account, under
// one set of limits.
type Event struct {
	Event     string `json:"event"`
	Attempts  int    `json:"attempts"`
	Denied    int    `json:"denied"`
	Succeeded int    `json:"denied_succeeded"`
	Never     bool   `json:"never"`                     // all its denied attempts had more units than a limit's Max, so no wait helps
	Longest   int64  `json:"longest_wait_ms,omitempty"` // omitted if Never is set
}

// report adds up the counts of all workers.
func (c *Command) report(r *replay, log *logs.Reader) *Report {
	p := &Report{
		logReport: c.readFrom(log), By: c.By.Text, Redis: c.Redis.String(), DefaultLimits: len(c.Limits)+len(c.Compare) == 0,
		Picture: string(c.Picture), Estimator: c.Estimator.String(),
	}
	if r.client != nil {
		p.Limiter = r.name
	}
	if c.Picture != "" {
		p.timeline = charts.NewTimeline(len(r.sets))
	}
	for i, limits := range r.sets {
		p.Sets = append(p.Sets, newResult(r, i, limits))
	}
	for _, w := range r.workers {
		p.addEvents(w)
	}
	return p
}

func (c *Command) readFrom(log *logs.Reader) logReport {
	return logReport{
		Sample: len(c.Files) == 0, Files: c.files(), Sorted: c.Sort,
		Lines: log.Lines, NoAttempt: log.NoAttempt, FirstNoEvent: log.FirstNoEvent,
		Unreadable: log.Unreadable, FirstUnreadable: log.FirstUnreadable,
		Field: log.Field(), Attempts: log.Attempts, WithResult: log.WithResult, Succeeded: log.Succeeded, YearsAssumed: log.Yearless,
		OutOfOrder: log.OutOfOrder, FurthestBack: log.FurthestBack.Milliseconds(),
		reading: c.reading(), From: log.From, To: log.To, Period: log.To.Sub(log.From).Milliseconds(),
	}
}

func (p *Report) addEvents(w *worker) {
	all, denied := w.count()
	p.Events += all
	for i, s := range p.Sets {
		s.DeniedEvents += denied[i]
		s.Lost = max(s.Lost, w.lost)
	}
	p.Estimated = p.Estimated || w.lost >= 0
	if p.timeline != nil {
		p.timeline.Merge(w.timeline)
	}
}

func newResult(r *replay, set int, limits flags.Limits) *result {
	total := newOutcome(limits)
	for _, w := range r.workers {
		total.add(w.sets[set])
	}
	s := &result{
		Allowed: total.allowed, Denied: total.denied, NeverAllowed: total.neverAllowed, DeniedSucceeded: total.succeeded,
		waitReport: waited(total.waits), set: limits, waits: total.waits,
	}
	for i, l := range limits {
		s.Limits = append(s.Limits, limitReport{r.how.Text(l), r.how.Needless(l, limits), total.by[i]})
	}
	var events []Event
	for _, w := range r.workers {
		events = append(events, w.deniedBy(set)...)
	}
	s.Top, s.MoreDenied = topBy(events, func(e Event) int { return e.Denied })
	s.ByMistake, s.MoreByMistake = deniedByMistake(events)
	return s
}

// deniedByMistake returns the events with the most denied attempts that succeeded in the log, and how
// many other events have such attempts.
func deniedByMistake(events []Event) (top []Event, more int) {
	events = slices.DeleteFunc(events, func(e Event) bool { return e.Succeeded == 0 })
	return topBy(events, func(e Event) int { return e.Succeeded })
}

// topBy returns the events with the largest numbers, and how many further events there are.
func topBy(events []Event, number func(Event) int) (top []Event, more int) {
	slices.SortFunc(events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(number(b), number(a)), cmp.Compare(b.Longest, a.Longest), cmp.Compare(a.Event, b.Event))
	})
	n := min(topEvents, len(events))
	return append([]Event{}, events[:n]...), len(events) - n
}
