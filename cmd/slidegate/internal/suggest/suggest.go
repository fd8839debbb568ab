// Package suggest proposes limits for a log: the tightest that delay hardly any honest attempts.
package suggest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/window"
)

// History represents a log in memory, grouped by event. Read creates it.
type History struct {
	BySuccess bool // true: honest attempts are those that succeeded; false: the log does not say which, so they are those of events below the 99th percentile
	Attempts  int
	Honest    int // the number of honest attempts, which limits should not delay

	from, to   time.Time
	events     []event
	hasResults bool         // for some attempts, the log says whether they succeeded
	tried      atomic.Int64 // the number of sets of limits that Propose has tried
}

// event represents an address, an account or the like, with its attempts in the order of the log.
type event struct {
	name     string
	attempts []attempt
	total    int   // the number of attempts, including repetitions
	units    int64 // the number of units of all attempts, capped at maxUnits
	honest   bool
}

// maxUnits is larger than any limit that is tried.
const maxUnits = 1 << 40

type attempt struct {
	at        time.Time
	units     int64
	times     int
	succeeded bool
}

// Set represents a set of limits, and what it would have done to a log.
type Set struct {
	Limits  []window.Limit
	Stopped int // attempts that it denies
	Delayed int // honest attempts that it denies

	attackers int // events for which isAttack returns true
}

// Proposal holds the tightest sets of one, two and three limits. A larger set is omitted if it
// stops no more attempts than the smaller sets.
type Proposal struct {
	MayWait int  // how many honest attempts may be delayed
	Attack  bool // whether the log shows an attack; if not, the sets would mostly stop legitimate users
	Sets    []Set
	Tried   []Set // all sets that were tried
}

// Read reads all attempts of a log.
func Read(log *logs.Reader) (*History, error) {
	h, byName := &History{}, map[string]*event{}
	for {
		a, err := log.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		e := byName[a.Event]
		if e == nil {
			e = &event{name: a.Event}
			byName[a.Event] = e
		}
		e.attempts = append(e.attempts, attempt{a.At, a.Units, a.Times, a.Succeeded})
		e.total += a.Times
		e.units = min(maxUnits, e.units+min(maxUnits, a.Units)*int64(a.Times))
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		h.events = append(h.events, *byName[name])
	}
	h.Attempts, h.BySuccess, h.from, h.to = log.Attempts, log.Succeeded > 0, log.From, log.To
	h.hasResults = log.WithResult > 0
	h.findHonest()
	return h, nil
}

// findHonest marks the honest events of a log without results. These are all events except the 1 %
// with the most attempts, which is at least one event.
func (h *History) findHonest() {
	var totals []int
	for _, e := range h.events {
		totals = append(totals, e.total)
	}
	slices.SortFunc(totals, func(a, b int) int { return cmp.Compare(b, a) })
	most := totals[min(max(1, len(totals)/100), len(totals)-1)]
	for i := range h.events {
		e := &h.events[i]
		e.honest = e.total <= most
		for _, a := range e.attempts {
			if h.isHonest(*e, a) {
				h.Honest += a.times
			}
		}
	}
}

func (h *History) isHonest(e event, a attempt) bool {
	if h.BySuccess {
		return a.succeeded
	}
	return e.honest
}

// windows lists the windows to try. Those longer than the log are skipped.
var windows = []time.Duration{time.Second, 5 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour}

// steps lists the values of Max to try: round numbers, each about a quarter larger than the one
// before.
var steps = func() (all []int64) {
	for ten := int64(1); ten <= 1e9; ten *= 10 {
		for _, n := range []int64{10, 12, 15, 20, 25, 30, 40, 50, 60, 80} {
			if n*ten%10 == 0 {
				all = append(all, n*ten/10)
			}
		}
	}
	all = append(all, 4, 6, 8)
	slices.Sort(all)
	return slices.Compact(all)
}()

// Propose finds the tightest limits that delay at most the given share of the honest attempts. It
// tries every single window, all pairs of windows, and the best pair combined with each other
// window. It starts from the tightest single limits, and moves one limit by one step at a time for
// as long as that stops more attempts.
func (h *History) Propose(ctx context.Context, share float64) (*Proposal, error) {
	s := &search{h: h, ctx: ctx, known: map[string]Set{}}
	for _, more := range []float64{Reach, 10, 3, 0, 1} { // other shares for the chart, and finally the one requested
		s.mayWait = int(math.Floor(more*share*float64(h.Honest) + 1e-9))
		s.singles()
	}
	p := &Proposal{MayWait: s.mayWait}
	singles := s.singles()
	pair := s.best(s.pairs(singles))
	for _, c := range []choice{s.best(singles), pair, s.best(s.withEach(pair, singles))} {
		p.add(s, c)
	}
	p.Attack = h.isAttacked(p.Sets)
	for _, key := range slices.Sorted(maps.Keys(s.known)) {
		p.Tried = append(p.Tried, s.known[key])
	}
	return p, s.err
}

// Tried returns how many sets of limits Propose has tried so far. It may be called while Propose is
// running.
func (h *History) Tried() int { return int(h.tried.Load()) }

// Reach is the largest multiple of the requested share for which sets are tried, to show the
// trade-off.
const Reach = 30

// add adds a set to the proposal if it stops more attempts than the sets added before.
func (p *Proposal) add(s *search, c choice) {
	if c == nil {
		return
	}
	set, most := s.try(c), 0
	if n := len(p.Sets); n > 0 {
		most = p.Sets[n-1].Stopped
	}
	if set.Stopped > most {
		p.Sets = append(p.Sets, set)
	}
}
