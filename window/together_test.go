package window_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// A place is where limiters keep their counts: a Redis, or this process's memory.
type place struct {
	name   string
	events int // the maximum in a history
	open   func(t *testing.T, calls *redistest.Calls) (newLimiter func(window.Config) *window.Limiter)
}

var places = []place{
	{"redis", 12, onServer},
	{"redis, many events", 100, onServer}, // so that one script call decides several events
	{"memory", 12, func(*testing.T, *redistest.Calls) func(window.Config) *window.Limiter {
		return func(cfg window.Config) *window.Limiter { return must(window.NewLocal(cfg)) }
	}},
	{"cluster", 12, func(t *testing.T, _ *redistest.Calls) func(window.Config) *window.Limiter {
		return func(cfg window.Config) *window.Limiter { return must(window.New(window.On(redistest.Cluster(t)), cfg)) }
	}},
}

// onServer creates limiters whose script calls can decide several events.
func onServer(t *testing.T, calls *redistest.Calls) func(window.Config) *window.Limiter {
	client := redistest.NewClient(t, calls.Count)
	return func(cfg window.Config) *window.Limiter {
		l := must(window.New(window.On(client), cfg))
		faulttest.AwaitGroups(t, l, calls)
		return l
	}
}

// TestMerged plays random histories in rounds. In each round, up to 200 callers ask at once while
// the clock stands still. For each event, there must be an order of the questions in which the
// exact log gives the same answers, and in the end the state that Inspect returns.
func TestMerged(t *testing.T) {
	for _, p := range plans {
		for _, at := range redistest.UnlessShort(places, places[1:2]) {
			t.Run(p.name+", "+at.name, func(t *testing.T) {
				t.Parallel()
				calls := &redistest.Calls{}
				newLimiter := at.open(t, calls)
				asked, together, merged, enough := 0, int64(0), int64(0), redistest.UnlessShort(decisionsPerPlan/8, decisionsPerPlan/200)
				for seed := uint64(1); asked < enough; seed++ {
					r := newRounds(t, p, at, newLimiter, seed)
					before := calls.Several.Load()
					asked += r.play(t, calls)
					together += calls.Several.Load() - before
					merged += r.merged
				}
				if at.events > 12 && (together == 0 || merged == 0 && !p.denials) {
					t.Errorf("weak test: %d script calls for several events, %d of them with merged attempts", together, merged)
				}
				t.Logf("%d asked, %d script calls for %d events, %d of them for several, at least %d of these with merged attempts",
					asked, calls.Scripts.Load(), calls.Events.Load(), together, merged)
			})
		}
	}
}

// rounds is a history of several events that is played in rounds.
type rounds struct {
	*history
	events   []string
	limiters [][]*window.Limiter          // for each caller of the plan, two limiters that share counts
	logs     map[string][]*exactLog       // by event, the logs that explain all answers so far
	given    map[string][]window.Decision // decisions that counted something, by event
	merged   int64                        // script calls for several events with merged attempts, in rounds without upTo
}

func newRounds(t *testing.T, p plan, at place, newLimiter func(window.Config) *window.Limiter, seed uint64) *rounds {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, uint64(len(p.name+at.name))))
	r := &rounds{history: &history{plan: p, rng: rng}, logs: map[string][]*exactLog{}, given: map[string][]window.Decision{}}
	r.clock.ms.Store(1_700_000_000_000 + rng.Int64N(1<<40))
	for i := range numberOfEvents(rng, at.events) {
		event := fmt.Sprint("event ", i)
		r.events = append(r.events, event)
		r.logs[event] = []*exactLog{newExactLog()}
	}
	cfg := window.Config{Name: redistest.Key(t), Limits: p.callers[0], CountDenied: p.denials, Now: r.clock.now, Timeout: time.Minute}
	for _, l := range p.callersOf(newLimiter(cfg)) {
		r.limiters = append(r.limiters, []*window.Limiter{l, l})
	}
	for i := range p.callers {
		if cfg.Limits = p.callers[i]; at.name != "memory" {
			r.limiters[i][1] = newLimiter(cfg)
		}
	}
	return r
}

// numberOfEvents returns how many events a history has, up to most. Unless most is large, half of
// the histories have one event.
func numberOfEvents(rng *rand.Rand, most int) int {
	if most > 12 {
		return most/2 + rng.IntN(most/2)
	}
	return 1 + rng.IntN(2)*rng.IntN(most)
}

// play plays the history, and returns how many attempts it made.
func (r *rounds) play(t *testing.T, calls *redistest.Calls) (asked int) {
	t.Helper()
	for range 20 {
		r.pass()
		callers, before := r.draw(), calls.Somes.Load()
		askAtOnce(t, callers)
		if !slices.ContainsFunc(callers, func(c caller) bool { return c.ask.verb == "upTo" }) {
			r.merged += calls.Somes.Load() - before
		}
		for event, asks := range byEvent(callers) {
			r.settle(t, event, asks)
			asked += len(asks)
		}
	}
	return asked
}

// A question is a call of a method for an event.
type question struct {
	verb   string // allow, peek, upTo, charge or refund
	caller int    // index in the plan, which determines the limits
	n      int64
	refund window.Decision
}

// An ask is a question and its answer.
type ask struct {
	question
	event string
	got   window.Decision
	found bool // whether it has a place in the order
}

// A caller asks one question.
type caller struct {
	limiter *window.Limiter
	ask     *ask
}

// draw returns up to 200 random callers, but in most rounds only a few. If there are many events, all
// callers in half of the rounds make attempts for one unit, so that script calls for several events
// have merged attempts.
func (r *rounds) draw() (callers []caller) {
	refunded, kinds := map[string]bool{}, 100
	if len(r.events) > 12 && r.rng.IntN(2) == 0 {
		kinds = 1
	}
	for range 1 + r.rng.IntN(200)>>r.rng.IntN(4) {
		who := r.rng.IntN(len(r.plan.callers))
		c := caller{limiter: r.limiters[who][r.rng.IntN(2)]}
		switch dice := 100 - r.rng.IntN(kinds); {
		case dice < 15:
			c.ask = r.drawOne(question{verb: "peek", caller: who, n: r.units(r.plan.callers[who])})
		case dice < 25:
			c.ask = r.drawOne(question{verb: "allow", caller: who, n: r.units(r.plan.callers[who])})
		case dice < 30:
			c.ask = r.drawOne(question{verb: "upTo", caller: who, n: r.units(r.plan.callers[who]) + r.rng.Int64N(5)})
		case dice < 33:
			c.ask = r.drawOne(question{verb: "charge", caller: who, n: 1 + r.rng.Int64N(3)})
		case dice < 38:
			c.ask = r.drawRefund(who, refunded)
		}
		if c.ask == nil {
			c.ask = r.drawOne(question{verb: "allow", caller: who, n: 1})
		}
		callers = append(callers, c)
	}
	return callers
}

func (r *rounds) drawOne(q question) *ask {
	return &ask{question: q, event: r.events[r.rng.IntN(len(r.events))]}
}

// drawRefund returns a refund of a random decision of an earlier round, or nothing. It returns at
// most one refund for each event, because with several refunds, many orders would explain the same
// answers.
func (r *rounds) drawRefund(who int, refunded map[string]bool) *ask {
	event := r.events[r.rng.IntN(len(r.events))]
	given := r.given[event]
	if len(given) == 0 || refunded[event] {
		return nil
	}
	refunded[event] = true
	i := len(given) - 1 - r.rng.IntN(min(8, len(given)))
	a := &ask{question: question{verb: "refund", caller: who, refund: given[i]}, event: event}
	r.given[event] = slices.Delete(given, i, i+1)
	return a
}

// askAtOnce lets all callers ask at the same time.
func askAtOnce(t *testing.T, callers []caller) {
	t.Helper()
	start := make(chan struct{})
	var group sync.WaitGroup
	for _, c := range callers {
		group.Go(func() {
			<-start
			c.decide(t)
		})
	}
	close(start)
	group.Wait()
}

func (c caller) decide(t *testing.T) {
	a := c.ask
	var err error
	if a.verb == "refund" {
		err = c.limiter.Refund(t.Context(), a.event, a.refund)
	} else {
		a.got, err = decide(t.Context(), c.limiter, a.verb, a.event, a.n)
	}
	if err != nil {
		t.Error(err)
	}
}

func byEvent(callers []caller) map[string][]*ask {
	of := map[string][]*ask{}
	for _, c := range callers {
		of[c.ask.event] = append(of[c.ask.event], c.ask)
	}
	return of
}

// settle finds an order of the questions about an event, and continues the log in that order.
// Several logs can remain: if a refund empties a bucket, the earlier questions determine whether
// later attempts join that bucket, and no answer shows this immediately.
func (r *rounds) settle(t *testing.T, event string, asks []*ask) {
	t.Helper()
	s := search{plan: r.plan, now: r.clock.ms.Load(), asks: asks, fewest: len(asks) + 1}
	for _, same := range r.limiters {
		s.end = append(s.end, must(same[0].Inspect(t.Context(), event)).Limits)
	}
	var after []*exactLog
	for _, log := range r.logs[event] {
		after = s.explain(after, log)
	}
	if len(after) == 0 {
		for _, a := range asks {
			t.Logf("%s of %d by caller %d, refunds %d of %d: %+v", a.verb, a.n, a.caller, a.refund.Counted, a.refund.At.UnixMilli(), a.got)
		}
		for _, log := range r.logs[event] {
			t.Logf("from %s", log)
		}
		t.Fatalf("%s: no order of %d attempts explains the answers; the best leaves %s", event, len(asks), s.report)
	}
	r.logs[event] = after
	for _, a := range asks {
		if a.got.Counted > 0 {
			r.given[event] = append(r.given[event], a.got)
		}
	}
}

// A search looks for an order of simultaneous questions about one event in which the log gives the
// same answers.
type search struct {
	plan   plan
	now    int64
	asks   []*ask
	end    [][]window.LimitState // what Inspect returns afterwards, by caller of the plan
	steps  int
	place  int    // the refund's place: how many attempts that count something come before it
	fewest int    // the fewest attempts that any try left
	report string // of the best try
}

// tooLong is the maximum number of steps of a search. A search without a detour takes one step for
// each attempt.
const tooLong = 10_000

// explain appends to remain the possible logs after all attempts, starting from log. It puts a refund
// in each place: even if the last or the first one explains the answers, the refund may have come
// between other attempts, which later answers show.
func (s *search) explain(remain []*exactLog, log *exactLog) []*exactLog {
	counting, refunds := s.counting()
	remain = s.try(remain, log, counting)
	for place := 0; refunds && place < counting; place++ {
		remain = s.try(remain, log, place)
	}
	return remain
}

// counting returns how many attempts count something, and whether there is a refund.
func (s *search) counting() (counting int, refunds bool) {
	for _, a := range s.asks {
		refunds = refunds || a.verb == "refund"
		if a.got.Counted > 0 {
			counting++
		}
	}
	return counting, refunds
}

// try puts the refund at the given place. If this leads to a log that is not in remain, try appends
// the log.
func (s *search) try(remain []*exactLog, log *exactLog, place int) (after []*exactLog) {
	for _, a := range s.asks {
		a.found = false
	}
	s.steps, s.place = 0, place
	end := s.find(log, len(s.asks))
	same := func(other *exactLog) bool { return reflect.DeepEqual(other.windows, end.windows) }
	if end != nil && !slices.ContainsFunc(remain, same) {
		remain = append(remain, end)
	}
	return remain
}

// find finds an order for all attempts that have no place yet, and returns the log after them, or
// nil if there is no such order.
func (s *search) find(log *exactLog, left int) *exactLog {
	if left == 0 {
		return s.atEnd(log)
	}
	if s.steps++; s.steps > tooLong {
		s.report = "it undecided, because the search takes too long"
		return nil
	}
	fit := s.next(log)
	if len(fit) == 0 && left < s.fewest {
		s.fewest, s.report = left, s.describe(log)
	}
	for _, c := range fit {
		c.found = true
		end := s.find(c.log, left-1)
		if c.found = end != nil; c.found || reflect.DeepEqual(log.clone().windows, c.log.windows) { // an attempt that changes nothing can come immediately
			return end
		}
	}
	return nil
}

// atEnd returns the log if it equals what Inspect returned, and otherwise nil. Another order may
// explain the answers as well but lead to another log, because earlier questions can determine from
// which bucket a refund takes its units.
func (s *search) atEnd(log *exactLog) *exactLog {
	for i, limits := range s.plan.callers {
		if diff := gocmp.Diff(s.end[i], log.inspect(limits, s.now, s.plan.denials)); diff != "" {
			s.report = "a log that differs from what Inspect shows (-Inspect +log)\n" + diff
			return nil
		}
	}
	return log
}

// A candidate is a question that can come next in the order.
type candidate struct {
	*ask
	answer
}

// next returns the candidates, or none if an answer has become impossible. Of several equal
// questions that have equal answers, it returns only one.
func (s *search) next(log *exactLog) (fit []candidate) {
	answers, tried, back := map[identity]answer{}, map[identity]bool{}, s.refundable()
	counted := s.counted()
	for _, a := range s.asks {
		if a.found || a.verb == "refund" && counted < s.place {
			continue
		}
		id := a.id()
		say, known := answers[id]
		if !known {
			say = s.answer(log, a.question)
			answers[id] = say
		}
		switch {
		case a.isOver(say.want, back):
			return nil
		case a.got.Counted > 0 && back > 0 && counted == s.place: // the refund comes first
		case !tried[id] && say.want.Remaining == a.got.Remaining && reflect.DeepEqual(say.want, a.got): //nolint:govet // neither has a Cause
			tried[id] = true
			fit = append(fit, candidate{a, say})
		}
	}
	slices.SortStableFunc(fit, func(a, b candidate) int { return cmp.Compare(a.rank(), b.rank()) })
	return fit
}

// counted returns how many of the attempts that have a place count something.
func (s *search) counted() (n int) {
	for _, a := range s.asks {
		if a.found && a.got.Counted > 0 {
			n++
		}
	}
	return n
}

// refundable returns how many units can still be refunded.
func (s *search) refundable() (units int64) {
	for _, a := range s.asks {
		if !a.found {
			units += a.refund.Counted
		}
	}
	return units
}

// isOver reports whether the answer has become impossible: it says that a limit had fewer units in
// use than the limit can have from now on, even if back units are refunded.
func (a *ask) isOver(now window.Decision, back int64) bool {
	for i := range a.got.Usage {
		if a.usedBefore(a.got, i) < a.usedBefore(now, i)-back {
			return true
		}
	}
	return false
}

// usedBefore returns how many units of the i-th limit were in use before the decision d.
func (q question) usedBefore(d window.Decision, i int) int64 {
	if q.verb == "peek" && d.Allowed {
		return d.Usage[i].Used - q.n
	}
	return d.Usage[i].Used - d.Counted
}

// An identity is equal for questions that must get the same answer.
type identity struct {
	verb           string
	caller         int
	n, at, counted int64
}

func (q question) id() identity {
	return identity{q.verb, q.caller, q.n, q.refund.At.UnixMilli(), q.refund.Counted}
}

// rank returns the rank in which to try the question: first questions that count nothing, and last
// the refund.
func (a *ask) rank() int {
	switch {
	case a.verb == "refund":
		return 2
	case a.got.Counted == 0:
		return 0
	}
	return 1
}

// An answer is the log's answer to a question, and the log after the question.
type answer struct {
	want window.Decision
	log  *exactLog
}

func (s *search) answer(log *exactLog, q question) (a answer) {
	a.log = log.clone()
	limits := s.plan.callers[q.caller]
	if q.verb == "refund" {
		a.log.refund(limits, q.refund, s.now)
	} else {
		a.want = a.log.decide(limits, q.verb, q.n, s.now, s.plan.denials)
	}
	compact(a.log)
	return a
}

// compact keeps the log short: it joins entries that have the same bucket and time, which the log
// does not distinguish anyway.
func compact(x *exactLog) {
	for per, log := range x.windows {
		var joined []*entry
		for _, e := range log {
			if n := len(joined); n > 0 && joined[n-1].bucket == e.bucket && joined[n-1].at == e.at {
				e.units += joined[n-1].units
				joined = joined[:n-1]
			}
			joined = append(joined, e)
		}
		x.windows[per] = joined
	}
}

// describe returns how the remaining answers differ from those of the log.
func (s *search) describe(log *exactLog) string {
	var text strings.Builder
	shown := map[identity]bool{}
	for _, a := range s.asks {
		if a.found || shown[a.id()] {
			continue
		}
		shown[a.id()] = true
		fmt.Fprintf(&text, "\n%s of %d by caller %d at %d (-want +got):\n%s", a.verb, a.n, a.caller, s.now, gocmp.Diff(s.answer(log, a.question).want, a.got))
	}
	return text.String()
}
