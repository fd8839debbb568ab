package audit

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/window"
)

// simulation simulates a correct limiter and latency. The limiter's clock runs too fast or too
// slow, and counts in milliseconds.
type simulation struct {
	random  *rand.Rand
	limit   window.Limit
	rate    float64 // speed of the limiter's clock
	latency time.Duration
	late    bool // whether the limiter forgets units as late as it may
}

func newSimulation(random *rand.Rand) *simulation {
	s := &simulation{random: random, rate: 1 + (2*random.Float64()-1)*0.99e-3, late: random.IntN(2) == 0}
	s.limit = window.Limit{Max: 1 + random.Int64N(20), Per: time.Duration(1+random.IntN(2000)) * time.Millisecond}
	s.latency = s.limit.Per / time.Duration(1+random.IntN(100))
	return s
}

// log returns the attempts of the given number of clients. Attempts of the same client do not
// overlap.
func (s *simulation) log(clients, attempts int) (log []Attempt) {
	decided := map[int]time.Duration{}
	for range clients {
		at := time.Duration(0)
		for range attempts / clients {
			at += s.pause()
			took := time.Duration(1 + s.random.Int64N(int64(s.latency)))
			decided[len(log)] = at + time.Duration(s.random.Int64N(int64(took)))
			log = append(log, Attempt{Sent: at, Came: at + took})
			at += took
		}
	}
	s.decide(log, decided)
	number(log)
	return log
}

// pause returns a random pause between attempts: often 0, sometimes a window.
func (s *simulation) pause() time.Duration {
	l := s.limit
	switch s.random.IntN(12) {
	case 0:
		return l.Per + time.Duration(s.random.Int64N(int64(l.Per)))
	case 1, 2, 3:
		return time.Duration(s.random.Int64N(int64(l.Per) / l.Max))
	}
	return time.Duration(s.random.Int64N(int64(l.Per)/l.Max/8 + 1))
}

// decide decides the attempts in the order of the limiter's clock.
func (s *simulation) decide(log []Attempt, decided map[int]time.Duration) {
	order := make([]int, len(log))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(decided[a], decided[b]) })
	var counted []time.Duration
	for _, i := range order {
		now := time.Duration(float64(decided[i]) * s.rate).Truncate(time.Millisecond)
		wait := s.wait(counted, now)
		if log[i].Answer = AnswerDenied; wait == 0 {
			log[i].Answer, counted = AnswerAllowed, append(counted, now)
		}
		log[i].RetryAfter = wait
	}
}

// wait returns how long the limit denies further attempts.
func (s *simulation) wait(counted []time.Duration, now time.Duration) time.Duration {
	n, per := int64(len(counted))-s.limit.Max, s.limit.Per
	if n < 0 {
		return 0
	}
	if s.late {
		per += late(s.limit)
	}
	return max(0, counted[n]+per-now)
}

// number numbers the starts and ends of attempts in chronological order.
func number(log []Attempt) {
	var events []*int64
	at := map[*int64]time.Duration{}
	for i := range log {
		a := &log[i]
		events = append(events, &a.begun, &a.ended)
		at[&a.begun], at[&a.ended] = a.Sent, a.Came
	}
	slices.SortStableFunc(events, func(a, b *int64) int { return cmp.Compare(at[a], at[b]) })
	for i, event := range events {
		*event = int64(i + 1)
	}
}

// TestNoFalseFinding checks that a correct limiter causes no finding, whatever the latency, the
// clock and the overlap.
func TestNoFalseFinding(t *testing.T) {
	histories := 3000
	if testing.Short() {
		histories = 300
	}
	judged := 0
	for seed := range uint64(histories) {
		s := newSimulation(rand.New(rand.NewPCG(seed, 0)))
		clients := 1 + s.random.IntN(4)*s.random.IntN(3)
		e := newEvidence(s.limit, s.log(clients, 150))
		if e.exceeds() || int64(e.most()) > s.limit.Max {
			t.Errorf("seed %d: more than %v, %d in a window", seed, s.limit, e.most())
		}
		if needless, _ := e.needless(); len(needless) > 0 {
			t.Errorf("seed %d: denied without need under %v: %v", seed, s.limit, e.log[needless[0]])
		}
		w := e.waits()
		if len(w.short)+len(w.long)+len(w.endless) > 0 {
			t.Errorf("seed %d: waits %+v under %v", seed, w, s.limit)
		}
		judged += w.reported
		if t.Failed() {
			return
		}
	}
	if judged < 10*histories {
		t.Errorf("%d denials in %d histories", judged, histories)
	}
}

// TestLosesNothing checks that the log proves that a limiter forgets units 1% too early, even if
// each answer takes longer than that.
func TestLosesNothing(t *testing.T) {
	s := &simulation{limit: window.Limit{Max: 5, Per: 990 * time.Millisecond}, rate: 1}
	var log []Attempt
	decided := map[int]time.Duration{}
	for at := time.Duration(0); at < 10*time.Second; at += 33 * time.Millisecond {
		decided[len(log)] = at + 15*time.Millisecond
		log = append(log, Attempt{Sent: at, Came: at + 30*time.Millisecond})
	}
	s.decide(log, decided)
	number(log)
	if e := newEvidence(window.Limit{Max: 5, Per: time.Second}, log); !e.exceeds() {
		t.Error("not found")
	}
}
