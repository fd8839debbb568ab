package pace_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// TestStepHistories plays random histories of bookings, cancellations, pauses and steps of the
// clock, in memory and on Redis. A log that does not depend on the clock judges them: turns that
// nobody cancelled must keep their order and the limits, even after the clock has stepped back.
func TestStepHistories(t *testing.T) { // not in parallel with tests that depend on a Timeout
	for name, conn := range map[string]*window.Connection{"memory": nil, "Redis": window.On(redistest.Client(t))} {
		t.Run(name, func(t *testing.T) {
			all := int64(redistest.UnlessShort(redistest.Share(100_000), 3_000))
			if conn != nil {
				all = int64(redistest.UnlessShort(redistest.Share(30_000), 1_000))
			}
			var next, back, cancelled atomic.Int64
			redistest.AtOnce(64, func(i int) {
				h := &stepHistory{T: t, setting: i % len(stepLimits)}
				h.limiter = h.newLimiter(conn, i)
				for seed := next.Add(1); seed <= all && !t.Failed(); seed = next.Add(1) {
					if broken := h.play(uint64(seed)); broken != "" {
						t.Errorf("history %d under %v: %s, after:\n%s", seed, h.limits, broken, strings.Join(h.steps, "\n"))
					}
				}
				back.Add(h.back)
				cancelled.Add(h.cancelled)
			})
			t.Logf("%d histories, in which the clock stepped back %d times and %d turns were cancelled", all, back.Load(), cancelled.Load())
			if back.Load() < all || cancelled.Load() < all {
				t.Error("weak test")
			}
		})
	}
}

// stepLimits are the limits of the histories: exact ones, and one that counts in buckets of 5 ms.
var stepLimits = [][]string{{"1/20ms"}, {"2/10ms", "3/50ms"}, {"1/3ms"}, {"300/1s"}}

// stepHistory is a history of one event, and a log of its turns. In the log, time passes while the
// clock moves forward, and stands still when the clock steps back.
type stepHistory struct {
	*testing.T
	*rand.Rand
	setting int
	limiter *pace.Limiter
	limits  []window.Limit
	clock   time.Time
	steps   []string // what happened

	back, cancelled int64 // in all histories

	event  string
	time   time.Duration // the time in the log
	turns  []*stepTurn   // in the order in which they were booked
	newest time.Duration // the newest turn
	paused time.Duration // the end of the last pause
}

// stepTurn is a turn that was booked, at its time in the log.
type stepTurn struct {
	pace.Reservation
	at        time.Duration
	cancelled bool
}

func (h *stepHistory) newLimiter(conn *window.Connection, i int) *pace.Limiter {
	h.limits = parsed(stepLimits[h.setting]...)
	cfg := pace.Config{
		Name: fmt.Sprint(redistest.Key(h), i), Limits: h.limits, MaxAhead: time.Hour, Timeout: time.Minute,
		Now: func() time.Time { return h.clock },
	}
	if conn == nil {
		return must(pace.NewLocal(cfg))
	}
	return must(pace.New(conn, cfg))
}

// play plays a history, and returns the promise that it breaks, or "".
func (h *stepHistory) play(seed uint64) (broken string) {
	h.Rand, h.event, h.clock = rand.New(rand.NewPCG(5, seed)), fmt.Sprint("e", seed), time.UnixMilli(1_700_000_000_000)
	h.time, h.turns, h.newest, h.paused, h.steps = 0, nil, 0, 0, nil
	for range 30 {
		switch r := h.IntN(100); {
		case r < 45:
			if broken = h.book(); broken != "" {
				return broken
			}
		case r < 65:
			h.cancel()
		case r < 83:
			h.move(h.span())
		case r < 95:
			h.move(-h.span())
		default:
			h.pause(h.span())
		}
	}
	if err := h.limiter.Reset(h.Context(), h.event); err != nil {
		h.Error(err)
	}
	return ""
}

func (h *stepHistory) note(format string, args ...any) {
	h.steps = append(h.steps, fmt.Sprint(h.clock.Format("05.000 "), fmt.Sprintf(format, args...)))
}

// span returns a random duration. Often it is a multiple of a Per, so that turns get times that
// were given to others before.
func (h *stepHistory) span() time.Duration {
	per := h.limits[h.IntN(len(h.limits))].Per
	if h.IntN(2) == 0 {
		return time.Duration(1+h.IntN(5)) * per
	}
	return time.Duration(1+h.Int64N(2*per.Milliseconds())) * time.Millisecond
}

// book books a turn, and checks it.
func (h *stepHistory) book() string {
	n := 1 + h.Int64N((h.limits[0].Max+1)/2)
	r := must(h.limiter.ReserveN(h.Context(), h.event, n))
	at := h.time + r.Delay
	h.note("book %d units for %s, in %v", n, r.At.Format("05.000"), r.Delay)
	if at < max(h.newest, h.paused) {
		return fmt.Sprintf("a turn comes %v before an earlier one, or before the end of a pause", max(h.newest, h.paused)-at)
	}
	h.newest = at
	h.turns = append(h.turns, &stepTurn{Reservation: r, at: at})
	for _, l := range h.limits {
		units := int64(0)
		for _, t := range h.turns {
			if !t.cancelled && t.at > at-l.Per {
				units += t.N
			}
		}
		if units > l.Max {
			return fmt.Sprintf("%d units within %v", units, l.Per)
		}
	}
	return ""
}

// cancel cancels one of the turns, each at most once.
func (h *stepHistory) cancel() {
	if len(h.turns) == 0 {
		return
	}
	t := h.turns[h.IntN(len(h.turns))]
	if t.cancelled {
		return
	}
	h.note("cancel %s", t.At.Format("05.000"))
	h.cancelled++
	t.cancelled = true
	if err := h.limiter.Cancel(h.Context(), t.Reservation); err != nil {
		h.Error(err)
	}
}

// move moves the clock.
func (h *stepHistory) move(d time.Duration) {
	h.note("clock %v", d)
	h.clock, h.time = h.clock.Add(d), h.time+max(0, d)
	if d < 0 {
		h.back++
	}
}

// pause pauses the turns. The shift says by how much they move, which after a step of the clock can
// be less than the log expects.
func (h *stepHistory) pause(d time.Duration) {
	h.note("pause for %v", d)
	before := pace.Shift(h.limiter, h.event)
	if err := h.limiter.Pause(h.Context(), h.event, d); err != nil {
		h.Error(err)
	}
	added := time.Duration(pace.Shift(h.limiter, h.event)-before) * time.Millisecond
	for _, t := range h.turns {
		if t.at >= h.time {
			t.at += added
		}
	}
	if h.newest >= h.time {
		h.newest += added
	}
	h.paused = max(h.paused, h.time+d)
}

// TestCancelAfterStep checks that the cancellation of a turn that was booked before the clock
// stepped back frees no turn of another caller, and that later turns can be cancelled again.
func TestCancelAfterStep(t *testing.T) {
	t.Parallel()
	for name, conn := range map[string]*window.Connection{"memory": nil, "Redis": window.On(redistest.Client(t))} {
		t.Run(name, func(t *testing.T) {
			h := &stepHistory{T: t, clock: time.UnixMilli(1_700_000_000_000)}
			l := h.newLimiter(conn, 0)
			book := func() pace.Reservation { return must(l.Reserve(t.Context(), "e")) }
			cancel := func(r pace.Reservation) {
				if err := l.Cancel(t.Context(), r); err != nil {
					t.Error(err)
				}
			}
			first, second := book(), book()
			h.clock = h.clock.Add(-turn)
			other := book()
			if !other.At.Equal(second.At) {
				t.Fatalf("the turns are at %v and %v", second.At, other.At)
			}
			cancel(first)
			cancel(second)
			next := book()
			equal(t, "the distance from another caller's turn", next.At.Sub(other.At), turn)
			cancel(next)
			equal(t, "the turn after a cancellation", book().At, next.At)
		})
	}
}
