// Package suggest proposes limits for a log: the tightest ones that delay hardly any honest
// attempt.
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

// History represents a log in memory, by event. Read creates one.
type History struct {
	BySuccess bool // true: the attempts that succeeded are honest; false: the log does not say, and those of events below the 99th percentile are
	Attempts  int
	Honest    int // the number of honest attempts, which should not have to wait

	from, to   time.Time
	events     []event
	hasResults bool         // the log says for some attempts whether they succeeded
	tried      atomic.Int64 // sets of limits tried by Propose
}

// event is an address, an account or the like with its attempts, in the order of the log.
type event struct {
	name     string
	attempts []attempt
	total    int   // attempts, including repetitions
	units    int64 // units that all attempts request, at most maxUnits
	honest   bool
}

// maxUnits is larger than every limit that is tried.
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
	Stopped int // attempts denied
	Delayed int // honest attempts denied

	attackers int // events for which isAttack is true
}

// Proposal holds the tightest sets of one limit, of two, and of three. A larger set is omitted
// unless it stops more attempts than the smaller ones.
type Proposal struct {
	MayWait int  // the most honest attempts that may be delayed
	Attack  bool // whether the log shows an attack; otherwise the sets mostly stop legitimate users
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

// findHonest marks the honest events, for a log without results. These are all events except one in
// a hundred, and at least one, with the most attempts.
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

// windows holds the windows that are tried if they are shorter than the log.
var windows = []time.Duration{time.Second, 5 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour}

// steps holds the values of Max that are tried: round numbers, each about a quarter larger than the
// previous one.
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

// Propose finds the tightest limits that delay at most a share of the honest attempts. It tries
// every single window, all pairs of windows, and the best pair with each other window. Starting
// from the tightest single limits, it moves one limit at a time by one step, as long as that stops
// more.
func (h *History) Propose(ctx context.Context, share float64) (*Proposal, error) {
	s := &search{h: h, ctx: ctx, known: map[string]Set{}}
	for _, more := range []float64{Reach, 10, 3, 0, 1} { // other shares for the chart, and finally the requested one
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

// Tried returns how many sets of limits Propose has tried so far. It may be called while Propose
// runs.
func (h *History) Tried() int { return int(h.tried.Load()) }

// Reach is the largest multiple of the share for which sets are tried, to show the trade-off.
const Reach = 30

// add adds a set if it stops more than the previous ones.
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
