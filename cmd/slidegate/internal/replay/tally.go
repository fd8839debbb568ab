package replay

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/axiomhq/hyperloglog"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/estimator"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/picture"
	"github.com/slidegate/slidegate/window"
)

// An outcome is what became of the attempts under one set of limits.
type outcome struct {
	limits           flags.Limits
	admitted, denied int
	hopeless         int   // of the denied: they ask for more units than a limit holds
	succeeded        int   // of the denied: the log says that they gave the right password or key
	by               []int // denied by each limit, whatever the others say
	waits            *picture.Waits
}

func newOutcome(limits flags.Limits) *outcome {
	return &outcome{limits: limits, by: make([]int, len(limits)), waits: &picture.Waits{}}
}

// count counts one decision. A limit denies if it alone would ask for a wait, or could never hold the units.
func (o *outcome) count(a logs.Attempt, d window.Decision, f *fate) {
	if d.Allowed {
		o.admitted++
		return
	}
	o.denied++
	if f.deny(d.RetryAfter, a.Succeeded); a.Succeeded {
		o.succeeded++
	}
	if d.Usage == nil {
		o.hopeless++
	} else {
		o.waits.Add(d.RetryAfter)
	}
	for i, l := range o.limits {
		if d.Usage == nil && a.Units > l.Max || d.Usage != nil && d.Usage[i].RetryAfter > 0 {
			o.by[i]++
		}
	}
}

// add adds what another worker counted.
func (o *outcome) add(other *outcome) {
	o.admitted += other.admitted
	o.denied += other.denied
	o.hopeless += other.hopeless
	o.succeeded += other.succeeded
	o.waits.Merge(other.waits)
	for i := range o.by {
		o.by[i] += other.by[i]
	}
}

// A tally is what one event asked for, and got.
type tally struct {
	attempts int
	last     time.Time // the latest attempt
	sets     []fate
}

// fate is what became of one event under one set of limits.
type fate struct {
	denied, succeeded int
	longest           time.Duration
}

// deny counts a denial.
func (f *fate) deny(wait time.Duration, succeeded bool) {
	f.denied++
	f.longest = max(f.longest, wait)
	if succeeded {
		f.succeeded++
	}
}

func (t *tally) denied() (n int) {
	for _, f := range t.sets {
		n += f.denied
	}
	return n
}

// tallies hold what one worker counts for each event. Memory has a bound: of the events that asked for nothing for longer
// than the longest window and for as long as they are remembered, only so many are kept, those denied most. From then on, the number of events is an estimate. How late
// it is, the earliest of the last attempts tells: those few that are dated far ahead make no event quiet.
type tallies struct {
	events  map[string]*tally
	all     *hyperloglog.Sketch   // of all events ever
	denied  []*hyperloglog.Sketch // of those denied, for each set
	recent  [2]time.Time          // the earliest of the last 100 attempts or fewer, and of the 100 before
	seen    int                   // attempts in all
	quiet   time.Duration         // how long after its last attempt an event is quiet
	keep    int                   // quiet events to keep
	sweepAt int                   // events at which to look for quiet ones
	lost    int                   // the most denials that a tally had when it was dropped, or -1 if none was
}

func newTallies(sets flags.Sets, how estimator.Estimator, keep int) tallies {
	t := tallies{events: map[string]*tally{}, all: hyperloglog.New14(), keep: keep, sweepAt: 2 * keep, lost: -1}
	for _, set := range sets {
		t.denied = append(t.denied, hyperloglog.New14())
		for _, l := range set {
			t.quiet = max(t.quiet, l.Per+how.Memory(l))
		}
	}
	return t
}

// of is the tally of an event that attempts something at that time.
func (ts *tallies) of(event string, at time.Time) *tally {
	t := ts.events[event]
	if t == nil {
		t = &tally{sets: make([]fate, len(ts.denied))}
		ts.events[event] = t
	}
	t.last = later(t.last, at)
	ts.pass(at)
	return t
}

// pass is told the time of each attempt.
func (ts *tallies) pass(at time.Time) {
	if ts.seen%100 == 0 {
		ts.recent = [2]time.Time{at, ts.recent[0]}
	}
	ts.seen++
	if at.Before(ts.recent[0]) {
		ts.recent[0] = at
	}
}

// now is how late it certainly is.
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

// sweep drops quiet events once there are many. The function is told of each.
func (ts *tallies) sweep(ctx context.Context, drop func(context.Context, string) error) error {
	if len(ts.events) < ts.sweepAt {
		return nil
	}
	now, quiet := ts.now(), []string(nil)
	for event, t := range ts.events {
		if now.Sub(t.last) > ts.quiet {
			quiet = append(quiet, event)
		}
	}
	slices.SortFunc(quiet, func(a, b string) int { return cmp.Compare(ts.events[b].denied(), ts.events[a].denied()) })
	for _, event := range quiet[min(ts.keep, len(quiet)):] {
		if err := drop(ctx, event); err != nil {
			return err
		}
		ts.forgotten(event)
	}
	ts.sweepAt = 2 * max(ts.keep, len(ts.events))
	return nil
}

// forgotten drops a tally. Only the estimates know of it from now on.
func (ts *tallies) forgotten(event string) {
	t := ts.events[event]
	ts.lost = max(ts.lost, t.denied())
	ts.remember(event, t)
	delete(ts.events, event)
}

func (ts *tallies) remember(event string, t *tally) {
	ts.all.Insert([]byte(event))
	for i, f := range t.sets {
		if f.denied > 0 {
			ts.denied[i].Insert([]byte(event))
		}
	}
}

// count is how many events there were, and how many of them each set denied, exactly if no tally was dropped.
func (ts *tallies) count() (all int, denied []int) {
	if ts.lost < 0 {
		return len(ts.events), ts.countDenied()
	}
	for event, t := range ts.events {
		ts.remember(event, t)
	}
	for _, sketch := range ts.denied {
		denied = append(denied, int(sketch.Estimate()))
	}
	return int(ts.all.Estimate()), denied
}

func (ts *tallies) countDenied() []int {
	denied := make([]int, len(ts.denied))
	for _, t := range ts.events {
		for i, f := range t.sets {
			if f.denied > 0 {
				denied[i]++
			}
		}
	}
	return denied
}

// deniedBy are all events that a set denied something.
func (ts *tallies) deniedBy(set int) (events []Event) {
	for event, t := range ts.events {
		if f := t.sets[set]; f.denied > 0 {
			events = append(events, Event{event, t.attempts, f.denied, f.succeeded, f.longest == 0, f.longest.Milliseconds()})
		}
	}
	return events
}
