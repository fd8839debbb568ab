// Package suggest proposes limits from a log: the tightest ones that hardly delay anybody honest.
package suggest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/window"
)

// A History is a log that is held in memory, by event. Read makes one.
type History struct {
	BySuccess bool // the log says which attempts succeeded, and these are honest; else the events below the 99th percentile are
	Attempts  int
	Honest    int // attempts that should not have to wait

	from, to time.Time
	events   []event
}

// An event is what one address, account or the like attempted, in the order of the log.
type event struct {
	name     string
	attempts []attempt
	total    int   // with repetitions
	units    int64 // that all of them ask for, or maxUnits if that is more
	honest   bool
}

// maxUnits is beyond every limit that is tried.
const maxUnits = 1 << 40

type attempt struct {
	at        time.Time
	units     int64
	times     int
	succeeded bool
}

// A Set is what some limits would have done to a log.
type Set struct {
	Limits  []window.Limit
	Stopped int // attempts denied
	Delayed int // honest attempts among them
}

// A Proposal is the tightest set of one limit, of two, and of three, and what else was tried. A larger set is left out unless it stops
// more attempts than the smaller ones.
type Proposal struct {
	MayWait int // honest attempts that may be delayed
	Sets    []Set
	Tried   []Set
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
	h.findHonest()
	return h, nil
}

// findHonest marks the events below the 99th percentile where the log does not say what succeeded: all but the hundredth part of them,
// and at least one, that attempted most.
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

// The windows that are tried, if the log is longer.
var windows = []time.Duration{time.Second, 5 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour}

// steps are the numbers of units that are tried: round ones, each about a quarter more than the one before.
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

// Propose finds the tightest limits under which at most a share of the honest attempts is delayed. It tries every window alone, all pairs
// of windows, and the best pair with each other window. From the limits that are tightest alone, it moves one limit at a time by one step,
// as long as that stops more.
func (h *History) Propose(ctx context.Context, share float64) (*Proposal, error) {
	s := &search{h: h, ctx: ctx, known: map[string]Set{}}
	for _, more := range []float64{Reach, 10, 3, 0, 1} { // what other shares would bring, for the picture; last the one asked for
		s.mayWait = int(math.Floor(more*share*float64(h.Honest) + 1e-9))
		s.singles()
	}
	p := &Proposal{MayWait: s.mayWait}
	singles := s.singles()
	pair := s.best(s.pairs(singles))
	for _, c := range []choice{s.best(singles), pair, s.best(s.withEach(pair, singles))} {
		p.add(s, c)
	}
	for _, key := range slices.Sorted(maps.Keys(s.known)) {
		p.Tried = append(p.Tried, s.known[key])
	}
	return p, s.err
}

// Reach is up to how many times the share of delays other sets are tried, to show the trade-off.
const Reach = 30

// add adds a set if it stops more than those before it.
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
