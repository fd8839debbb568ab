package inflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/health"
)

// zero is the time 0s in the histories.
var zero = time.Now()

// newState returns the state of a lease that a call at 0s has granted.
func newState(by string, safe bool) *state {
	s := &state{ref: ref{id: "12345678", n: 1, max: 1, token: 1}, ttl: 10 * time.Second, last: zero.Add(30 * time.Second), safe: safe}
	if s.extend(zero); by == "fallback" {
		s.token, s.degraded = 0, true
	}
	return s
}

func (a action) String() string {
	return []string{"wait", "renew", "carry", "land", "giveUp", "lose", "overdue"}[a]
}

func (p phase) String() string { return []string{"idle", "asking", "over"}[p] }

// String returns the state as in testdata/states.txt.
func (s *state) String() string {
	text := s.phase.String()
	if s.degraded {
		text += ", degraded"
	}
	if s.token == 0 {
		text += ", unknown"
	}
	if s.failure != nil {
		text += ", failed"
	}
	return fmt.Sprintf("%s, end %v", text, s.end.Sub(zero).Truncate(time.Millisecond))
}

var replies = map[string]struct {
	token int64
	err   error
}{
	"held": {token: 1}, "gone": {}, "outage": {err: &health.Failure{Counted: health.ErrOutage}}, "refusal": {err: errors.New("WRONGTYPE")},
}

// play lets the event happen at the given time. It returns what then is to be done and known.
func (s *state) play(at time.Duration, event string, began time.Duration) string {
	switch event {
	case "step":
		do, next := s.step(zero.Add(at))
		if s.phase == over {
			return fmt.Sprintf("%v, %v", do, s)
		}
		return fmt.Sprintf("%v, %v, next %v", do, s, next.Sub(zero).Truncate(time.Millisecond))
	case "release":
		return fmt.Sprintf("%v, %v", s.finish(), s)
	}
	r := replies[event]
	return fmt.Sprintf("%v, %v", s.heard(zero.Add(began), r.token, r.err), s)
}

// TestStates compares what the state of a lease decides with the histories in testdata/states.txt.
func TestStates(t *testing.T) {
	text, err := os.ReadFile("testdata/states.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, histories, _ := strings.Cut(string(text), "\n\n") // the first paragraph is a comment
	for history := range strings.SplitSeq(strings.TrimSpace(histories), "\n\n") {
		lines := strings.Split(history, "\n")
		kind, name, _ := strings.Cut(lines[0], ": ")
		t.Run(name, func(t *testing.T) {
			by, fallback, _ := strings.Cut(kind, ", ")
			s := newState(by, fallback != "")
			for _, line := range lines[1:] {
				given, want, _ := strings.Cut(line, " = ")
				words := append(strings.Fields(given), "0s")
				at, err := time.ParseDuration(words[0])
				began, err2 := time.ParseDuration(words[2])
				if err := cmp.Or(err, err2); err != nil {
					t.Fatal(err)
				}
				if got := s.play(at, words[1], began); got != want {
					t.Errorf("%s\ngot  %s", line, got)
				}
			}
		})
	}
}

// TestRandomStates lets random things happen to leases, of which some have a Fallback: late steps,
// suspensions, replies and releases. While a lease is not over, it must end for its holder a tenth
// of TTL before Redis or the Fallback can give its units to others, and have at most one call in
// flight. It must be lost only once, and only for a reason. When it is over, units that a call in
// flight has acquired must be given up.
func TestRandomStates(t *testing.T) {
	h := randomHistory{T: t, seen: map[action]int{}}
	for seed := range uint64(20_000) {
		h.Rand = rand.New(rand.NewPCG(5, seed))
		h.state = newState([]string{"redis", "redis", "fallback"}[seed%3], seed%3 > 0)
		h.now, h.held, h.calls = zero, zero, nil
		for range 60 {
			h.event()
		}
		if t.Failed() {
			t.Fatalf("history %d", seed)
		}
	}
	t.Log(h.seen)
	for a := wait; a <= overdue; a++ {
		if h.seen[a] < 100 {
			t.Errorf("weak test: %d times %v", h.seen[a], a)
		}
	}
}

type randomHistory struct {
	*testing.T
	*rand.Rand
	*state
	now   time.Time
	held  time.Time   // when the last call began that made Redis or the Fallback hold the units
	calls []time.Time // when the calls in flight began
	seen  map[action]int
}

// event lets something happen after up to a second.
func (h *randomHistory) event() {
	h.now = h.now.Add(time.Duration(h.Int64N(int64(time.Second))))
	before := *h.state
	switch n := h.IntN(60); {
	case n == 0:
		if h.finish() != (before.phase != over) {
			h.Errorf("finished from %v", &before)
		}
	case n == 1:
		h.now = h.now.Add(h.ttl * 6 / 5) // the process is suspended
	case len(h.calls) > 0 && (n < 20 || h.now.Sub(h.calls[0]) > h.ttl/3):
		h.reply(before)
	case h.phase != over:
		h.tick(before)
	}
	if h.phase != over && (h.end.After(h.held.Add(h.ttl*9/10)) || h.end.After(h.last) || len(h.calls) > 1 || len(h.calls) == 1 != (h.phase == asking)) {
		h.Errorf("held since %v, %d calls: %v", h.held.Sub(zero), len(h.calls), h.state)
	}
}

func (h *randomHistory) tick(before state) {
	do, _ := h.step(h.now)
	switch h.seen[do]++; do {
	case renew:
		h.calls = append(h.calls, h.now)
	case carry:
		h.held = h.now
	}
	lost := map[action]bool{lose: !before.end.After(h.now) && before.last.After(h.now), overdue: !before.last.After(h.now)}
	if h.phase == over != (lost[lose] || lost[overdue]) || h.phase == over && !lost[do] || do == carry && !before.safe {
		h.Errorf("%v at %v: %v", do, h.now.Sub(zero), &before)
	}
}

func (h *randomHistory) reply(before state) {
	began, kind := h.calls[0], []string{"held", "held", "gone", "outage", "refusal"}[h.IntN(5)]
	r := replies[kind]
	do := h.heard(began, r.token, r.err)
	h.calls = h.calls[1:]
	if h.seen[do]++; do == carry || before.phase != over && kind == "held" {
		h.held = began
	}
	var ok bool
	switch {
	case before.phase == over: // if Redis does not know the lease, the call may have acquired it
		ok = (do == giveUp) == (kind == "held" || before.token == 0 && kind != "gone")
	case kind == "held":
		ok = (do == land) == before.degraded && !h.degraded
	case before.degraded:
		ok = h.degraded && h.phase == idle
	case kind == "outage" && before.safe:
		ok = do == carry && h.degraded
	default:
		ok = (do == lose) == (kind == "gone") && (h.phase == over) == (kind == "gone") && !h.degraded
	}
	if !ok {
		h.Errorf("%v, after %q and %v: %v", do, kind, &before, h.state)
	}
}

// TestReleaseWhileLost checks that Release returns only once the contexts of the lease are canceled,
// even if the lease has just been lost.
func TestReleaseWhileLost(t *testing.T) {
	l, err := NewLocal(Config{Name: "jobs", Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		lease, err := l.Acquire(t.Context(), "e")
		if err != nil {
			t.Fatal(err)
		}
		work := lease.Context(t.Context())
		l.mu.Lock()
		lease.state.finish()
		l.lost(lease, KindLost, ErrLost)
		l.mu.Unlock()
		if err := lease.Release(t.Context()); err != nil || !errors.Is(context.Cause(work), ErrLost) {
			t.Fatal(err, context.Cause(work))
		}
	}
}
