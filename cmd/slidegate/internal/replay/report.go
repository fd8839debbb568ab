package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/picture"
)

const topEvents = 10 // how many of the events denied most are reported

// Report is the outcome of a replay, as --json prints it. Durations are in milliseconds.
type Report struct {
	logReport
	By            string    `json:"by,omitempty"`    // the flag
	Redis         string    `json:"redis,omitempty"` // the addresses; in memory without
	Limiter       string    `json:"limiter,omitempty"`
	Estimator     string    `json:"estimator"`
	Events        int       `json:"events"`
	Estimated     bool      `json:"estimated"` // there were too many events to keep: their numbers are within about 2 %
	DefaultLimits bool      `json:"default_limits"`
	Sets          []*result `json:"sets"`
	Picture       string    `json:"picture,omitempty"`

	timeline *picture.Timeline
}

// logReport is what was read.
type logReport struct {
	Sample          bool      `json:"sample"`          // the built-in log, no file
	Files           []string  `json:"files,omitempty"` // as named
	Lines           int       `json:"lines"`
	NoAttempt       int       `json:"lines_without_attempt"`
	FirstNoEvent    string    `json:"first_without_event,omitempty"`
	Unreadable      int       `json:"unreadable_lines"`
	FirstUnreadable string    `json:"first_unreadable,omitempty"`
	Field           string    `json:"field,omitempty"` // the event, where fields have names and the flag --by names none
	Attempts        int       `json:"attempts"`
	WithResult      int       `json:"attempts_with_result"` // of which the log says whether they succeeded
	Succeeded       int       `json:"attempts_succeeded"`   // of which it says that they did
	OutOfOrder      int       `json:"out_of_order"`         // attempts dated before one that stands above them
	FurthestBack    int64     `json:"furthest_back_ms"`
	Sorted          bool      `json:"sorted"`
	From            time.Time `json:"from"`
	To              time.Time `json:"to"`
	Period          int64     `json:"period_ms"`
	YearsAssumed    int       `json:"years_assumed"` // attempts from lines without a year

	reading []string // the flags and files by which it was read
}

// result is what became of the attempts under one set of limits.
type result struct {
	Limits          []limitReport `json:"limits"`
	Admitted        int           `json:"admitted"`
	Denied          int           `json:"denied"`
	Hopeless        int           `json:"never_admissible"` // of the denied: they ask for more units than a limit holds
	DeniedSucceeded int           `json:"denied_succeeded"` // of the denied: the log says that they succeeded
	DeniedEvents    int           `json:"denied_events"`
	waitReport
	Top        []Event `json:"denied_most"`
	MoreDenied int     `json:"denied_more"`             // events denied that denied_most leaves out
	Hurt       []Event `json:"denied_though_succeeded"` // of most successes denied
	MoreHurt   int     `json:"denied_though_succeeded_more"`
	Lost       int     `json:"denials_lost,omitempty"` // if estimated, an event may have had so many more, long before or after

	waits *picture.Waits
}

// waitReport is how long those denied had to wait.
type waitReport struct {
	Wait50      int64 `json:"wait_50_ms"` // half of the denied had to wait no longer; up to 4.5 % too high
	Wait99      int64 `json:"wait_99_ms"`
	LongestWait int64 `json:"longest_wait_ms"`
}

func waited(waits *picture.Waits) waitReport {
	return waitReport{waits.Quantile(0.5).Milliseconds(), waits.Quantile(0.99).Milliseconds(), waits.Longest().Milliseconds()}
}

type limitReport struct {
	Limit    string `json:"limit"`
	Needless string `json:"never_denies_because_of,omitempty"` // another limit of the set, which always denies before this one does
	Denied   int    `json:"denied"`                            // attempts that this limit denies, whatever the others say; of those never admissible, only for limits that never hold them
}

// Event is what became of the attempts of one event under one set of limits: those of an address, an account or the like.
type Event struct {
	Event     string `json:"event"`
	Attempts  int    `json:"attempts"`
	Denied    int    `json:"denied"`
	Succeeded int    `json:"denied_succeeded"`
	Never     bool   `json:"never"`                     // all that it was denied asked for more units than a limit holds: no wait helps
	Longest   int64  `json:"longest_wait_ms,omitempty"` // left out if never
}

// report adds up what the workers counted.
func (c *Command) report(r *replay, log *logs.Reader) *Report {
	p := &Report{
		logReport: c.readFrom(log), By: c.By.Text, Redis: c.Redis.String(), DefaultLimits: len(c.Limits)+len(c.Compare) == 0,
		Picture: string(c.Picture), Estimator: c.Estimator.String(),
	}
	if r.client != nil {
		p.Limiter = r.name
	}
	if c.Picture != "" {
		p.timeline = picture.NewTimeline(len(r.sets))
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
		Admitted: total.admitted, Denied: total.denied, Hopeless: total.hopeless, DeniedSucceeded: total.succeeded,
		waitReport: waited(total.waits), waits: total.waits,
	}
	for i, l := range limits {
		s.Limits = append(s.Limits, limitReport{r.how.Text(l), r.how.Needless(l, limits), total.by[i]})
	}
	var events []Event
	for _, w := range r.workers {
		events = append(events, w.deniedBy(set)...)
	}
	s.Top, s.MoreDenied = most(events, func(e Event) int { return e.Denied })
	s.Hurt, s.MoreHurt = hurt(events)
	return s
}

// hurt are the first of those that were denied what had succeeded.
func hurt(events []Event) (top []Event, more int) {
	events = slices.DeleteFunc(events, func(e Event) bool { return e.Succeeded == 0 })
	return most(events, func(e Event) int { return e.Succeeded })
}

// most are the first by number, and how many more there are.
func most(events []Event, number func(Event) int) (top []Event, more int) {
	slices.SortFunc(events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(number(b), number(a)), cmp.Compare(b.Longest, a.Longest), cmp.Compare(a.Event, b.Event))
	})
	n := min(topEvents, len(events))
	return append([]Event{}, events[:n]...), len(events) - n
}
