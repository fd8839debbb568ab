package replay

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/axiomhq/hyperloglog"

	"github.com/slidegate/slidegate/cmd/slidegate/charts"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/estimator"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/window"
)

// outcome counts one worker's decisions under one set of limits.
type outcome struct {
	limits          flags.Limits
	allowed, denied int
	neverAllowed    int   // denied attempts with more units than a limit's Max
	succeeded       int   // denied attempts that had the right password or key according to the log
	by              []int // attempts that each limit denies, whatever the other limits decide
	waits           *charts.Waits
}

func newOutcome(limits flags.Limits) *outcome {
	return &outcome{limits: limits, by: make([]int, len(limits)), waits: &charts.Waits{}}
}

// count counts a decision. A limit denies an attempt if it alone would require a wait, or if the
// units exceed its Max.
func (o *outcome) count(a logs.Attempt, d window.Decision, of *denials) {
	if d.Allowed {
		o.allowed++
		return
	}
	o.denied++
	if of.add(d.RetryAfter, a.Succeeded); a.Succeeded {
		o.succeeded++
	}
	if d.Usage == nil {
		o.neverAllowed++
	} else {
		o.waits.Add(d.RetryAfter)
	}
	for i, l := range o.limits {
		if d.Usage == nil && a.Units > l.Max || d.Usage != nil && d.Usage[i].RetryAfter > 0 {
			o.by[i]++
		}
	}
}

// add adds the counts of another worker.
func (o *outcome) add(other *outcome) {
	o.allowed += other.allowed
	o.denied += other.denied
	o.neverAllowed += other.neverAllowed
	o.succeeded += other.succeeded
	o.waits.Merge(other.waits)
	for i := range o.by {
		o.by[i] += other.by[i]
	}
}

// tally counts the attempts of an event.
type tally struct {
	attempts int
	last     time.Time // the time of the latest attempt
	sets     []denials // the denials under each set of limits
}

// denials counts the denied attempts of an event under one set of limits, and how many of them
// succeeded according to the log. It also records the longest wait.
type denials struct {
	denied, succeeded int
	longest           time.Duration
}

// add counts a denial.
func (d *denials) add(wait time.Duration, succeeded bool) {
	d.denied++
	d.longest = max(d.longest, wait)
	if succeeded {
		d.succeeded++
	}
}

func (t *tally) denied() (n int) {
	for _, d := range t.sets {
		n += d.denied
	}
	return n
}

// tallies holds one worker's tallies, one per event, in bounded memory. An event is idle if its
// last attempt is longer ago than the longest window plus the time for which a limit remembers the
// attempt. Only a fixed number of idle events are kept, namely those with the most denials. Once a
// tally has been dropped, the number of events is an estimate. The current time of the log is
// derived from the earliest recent attempts, so that a few lines dated far in the future do not
// make events idle.
type tallies struct {
	events  map[string]*tally
	all     *hyperloglog.Sketch   // all events so far
	denied  []*hyperloglog.Sketch // the denied events, per set
	recent  [2]time.Time          // the earliest time in the current block of 100 attempts, and in the previous block
	seen    int                   // the total number of attempts
	idle    time.Duration         // an event is idle if its last attempt is longer ago than this
	keep    int                   // how many idle events to keep
	sweepAt int                   // the number of events at which to look for idle events
	lost    int                   // the maximum number of denials in a dropped tally, or -1 if none was dropped
}

func newTallies(sets flags.Sets, how estimator.Estimator, keep int) tallies {
	t := tallies{events: map[string]*tally{}, all: hyperloglog.New14(), keep: keep, sweepAt: 2 * keep, lost: -1}
	for _, set := range sets {
		t.denied = append(t.denied, hyperloglog.New14())
		for _, l := range set {
			t.idle = max(t.idle, l.Per+how.Memory(l))
		}
	}
	return t
}

// tallyOf returns the tally of an event that has an attempt at the given time.
func (ts *tallies) tallyOf(event string, at time.Time) *tally {
	t := ts.events[event]
	if t == nil {
		t = &tally{sets: make([]denials, len(ts.denied))}
		ts.events[event] = t
	}
	t.last = later(t.last, at)
	ts.observe(at)
	return t
}

// observe records the time of an attempt.
func (ts *tallies) observe(at time.Time) {
	if ts.seen%100 == 0 {
		ts.recent = [2]time.Time{at, ts.recent[0]}
	}
	ts.seen++
	if at.Before(ts.recent[0]) {
		ts.recent[0] = at
	}
}

// now returns the current time of the log. If attempts are out of order, it may return an earlier
// time.
func (ts *tallies) now() time.Time {
	if ts.recent[1].Before(ts.recent[0]) {
		return ts.recent[1]
	}
	return ts.recent[0]
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// sweep drops the tallies of idle events once there are many events. It calls drop for each of
// these events.
func (ts *tallies) sweep(ctx context.Context, drop func(context.Context, string) error) error {
	if len(ts.events) < ts.sweepAt {
		return nil
	}
	now, idle := ts.now(), []string(nil)
	for event, t := range ts.events {
		if now.Sub(t.last) > ts.idle {
			idle = append(idle, event)
		}
	}
	slices.SortFunc(idle, func(a, b string) int { return cmp.Compare(ts.events[b].denied(), ts.events[a].denied()) })
	for _, event := range idle[min(ts.keep, len(idle)):] {
		if err := drop(ctx, event); err != nil {
			return err
		}
		ts.dropTally(event)
	}
	ts.sweepAt = 2 * max(ts.keep, len(ts.events))
	return nil
}

// dropTally drops the tally of an event, which is then included only in the estimates.
func (ts *tallies) dropTally(event string) {
	t := ts.events[event]
	ts.lost = max(ts.lost, t.denied())
	ts.estimate(event, t)
	delete(ts.events, event)
}

// estimate adds an event to the estimates of the numbers of events.
func (ts *tallies) estimate(event string, t *tally) {
	ts.all.Insert([]byte(event))
	for i, d := range t.sets {
		if d.denied > 0 {
			ts.denied[i].Insert([]byte(event))
		}
	}
}

// count returns the number of events, and how many of them each set denied. The numbers are exact
// unless a tally was dropped.
func (ts *tallies) count() (all int, denied []int) {
	if ts.lost < 0 {
		return len(ts.events), ts.countDenied()
	}
	for event, t := range ts.events {
		ts.estimate(event, t)
	}
	for _, sketch := range ts.denied {
		denied = append(denied, int(sketch.Estimate()))
	}
	return int(ts.all.Estimate()), denied
}

func (ts *tallies) countDenied() []int {
	denied := make([]int, len(ts.denied))
	for _, t := range ts.events {
		for i, d := range t.sets {
			if d.denied > 0 {
				denied[i]++
			}
		}
	}
	return denied
}

// deniedBy returns all events of which the given set denied an attempt.
func (ts *tallies) deniedBy(set int) (events []Event) {
	for event, t := range ts.events {
		if d := t.sets[set]; d.denied > 0 {
			events = append(events, Event{event, t.attempts, d.denied, d.succeeded, d.longest == 0, d.longest.Milliseconds()})
		}
	}
	return events
}
