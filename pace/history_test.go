package pace_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// histories are the limits of histories, and how far ahead two limiters of one Name book.
var histories = []struct {
	limits string
	ahead  [2]time.Duration
	step   int // the most ms between two steps
}{
	{"1/20ms", [2]time.Duration{time.Second, time.Second}, 40},
	{"5/1s", [2]time.Duration{10 * time.Second, time.Second}, 400},
	{"1/5ms 8/100ms 30/1s", [2]time.Duration{2 * time.Second, 60 * time.Second}, 60},
	{"256/10s", [2]time.Duration{time.Minute, 20 * time.Second}, 80},
	{"1000/1h", [2]time.Duration{24 * time.Hour, time.Hour}, 8000},
	{"3/1h 2/1m", [2]time.Duration{3 * time.Hour, time.Minute}, 60_000},
}

// TestHistories plays random histories of bookings, cancellations and pauses by two limiters of one
// Name, and compares each turn with an exact log: in order, within all limits, and the earliest.
func TestHistories(t *testing.T) {
	for _, test := range histories {
		t.Run(test.limits, func(t *testing.T) {
			t.Run("memory", func(t *testing.T) { playHistory(t, test.limits, test.ahead, test.step, 3000, pace.NewLocal) })
			t.Run("redis", func(t *testing.T) {
				t.Parallel()
				conn := window.On(redistest.Client(t))
				playHistory(t, test.limits, test.ahead, test.step, redistest.UnlessShort(3000, 500), func(cfg pace.Config) (*pace.Limiter, error) { return pace.New(conn, cfg) })
			})
		})
	}
}

// playHistory plays a history of so many steps, each at most some ms after the one before.
func playHistory(t *testing.T, limits string, ahead [2]time.Duration, step, steps int, limiter func(pace.Config) (*pace.Limiter, error)) {
	now := time.UnixMilli(1_700_000_000_000).UTC()
	cfg := pace.Config{Name: redistest.Key(t), Limits: parsed(strings.Split(limits, " ")...), MaxAhead: ahead[0], Timeout: time.Minute, Now: func() time.Time { return now }}
	l := must(limiter(cfg))
	h := &history{T: t, Rand: rand.New(rand.NewPCG(1, 2)), limits: cfg.Limits, limiters: []*pace.Limiter{l, pace.Sharing(l, ahead[1])}, ahead: ahead}
	for range steps {
		now = now.Add(time.Duration(h.IntN(step)) * time.Millisecond)
		if h.step(now); t.Failed() {
			t.Fatalf("after:\n%s", strings.Join(h.steps[max(0, len(h.steps)-20):], "\n"))
		}
	}
	if h.booked < steps/50 {
		t.Errorf("a poor test: %d booked, %d refused", h.booked, h.refused)
	}
}

// history is a history and its exact log.
type history struct {
	*testing.T
	*rand.Rand
	limits   []window.Limit
	limiters []*pace.Limiter
	ahead    [2]time.Duration

	log     []*logged
	floor   time.Time // the newest turn that was ever booked
	pause   time.Time // until when
	shift   int64     // ms by which all pauses have moved turns
	steps   []string
	booked  int
	refused int
}

// logged is a turn that was booked, where pauses have moved it.
type logged struct {
	pace.Reservation
	at        time.Time
	cancelled bool
}

func (h *history) step(now time.Time) {
	h.Helper()
	switch dice := h.IntN(100); {
	case dice < 70:
		h.book(now, h.IntN(2))
	case dice < 85:
		h.due(now)
	case dice < 95:
		h.cancel(now)
	default:
		h.stop(now)
	}
}

func (h *history) record(format string, args ...any) {
	h.steps = append(h.steps, fmt.Sprintf(format, args...))
}

// book books a turn by a limiter.
func (h *history) book(now time.Time, by int) {
	h.Helper()
	n := 1 + h.Int64N(2)
	for _, l := range h.limits {
		n = min(n, l.Max)
	}
	earliest, late := h.earliest(now, n)
	r := must(h.limiters[by].ReserveN(h.Context(), "e", n))
	h.record("%v: %d units by %d: %+v; the earliest is %v", now, n, by, r, earliest)
	want := earliest.Sub(now)
	if !r.OK {
		if h.refused++; r.Delay < want-h.ahead[by] || r.Delay > want-h.ahead[by]+late {
			h.Errorf("can be booked after %v, want %v", r.Delay, want-h.ahead[by])
		}
		return
	}
	if h.booked++; r.Delay < want || r.Delay > want+late || !r.At.Equal(now.Add(r.Delay)) || r.Delay > h.ahead[by] || r.N != n {
		h.Errorf("%+v, want a delay of %v", r, want)
	}
	h.log, h.floor = append(h.log, &logged{Reservation: r, at: r.At}), r.At
	h.checkBound(r.At)
}

// earliest returns the earliest time at which all limits admit n units, and how much later a turn may come
// because of the width of buckets.
func (h *history) earliest(now time.Time, n int64) (at time.Time, late time.Duration) {
	at = latest(now, h.floor, h.pause)
	for _, l := range h.limits {
		candidates := []time.Time{at}
		for _, e := range h.log {
			candidates = append(candidates, e.at.Add(l.Per))
		}
		slices.SortFunc(candidates, time.Time.Compare)
		for _, c := range candidates {
			if !c.Before(at) && h.units(c, l.Per)+n <= l.Max {
				at = c
				break
			}
		}
		if l.Max > 256 {
			late = max(late, (l.Per+239)/240)
		}
	}
	return at, late
}

// units returns how many units lie in the span of Per that ends at a time.
func (h *history) units(end time.Time, per time.Duration) (n int64) {
	for _, e := range h.log {
		if !e.cancelled && e.at.After(end.Add(-per)) && !e.at.After(end) {
			n += e.N
		}
	}
	return n
}

func (h *history) checkBound(at time.Time) {
	h.Helper()
	for _, l := range h.limits {
		if n := h.units(at, l.Per); n > l.Max {
			h.Errorf("%d units under %v", n, l)
		}
	}
}

// some returns a turn of the log.
func (h *history) some() *logged {
	if len(h.log) == 0 {
		return nil
	}
	return h.log[len(h.log)-1-h.IntN(min(len(h.log), 30))]
}

func (h *history) due(now time.Time) {
	h.Helper()
	if e := h.some(); e != nil && !e.at.Before(h.pause) {
		due := must(h.limiters[0].Due(h.Context(), "e", e.Reservation))
		if want := max(0, e.at.Sub(now)); due != want {
			h.Errorf("%v: %+v is due after %v, want %v", now, e, due, want)
		}
	}
}

// cancel gives a turn back that is still to come, under exact limits.
func (h *history) cancel(now time.Time) {
	h.Helper()
	e := h.some()
	coarse := slices.ContainsFunc(h.limits, func(l window.Limit) bool { return l.Max > 256 })
	if e == nil || e.cancelled || coarse || !e.at.After(now) || e.Shift != h.shift && e.at.Before(h.pause) {
		return
	}
	h.record("%v: cancel %+v", now, e)
	e.cancelled = true
	if err := h.limiters[0].Cancel(h.Context(), "e", e.Reservation); err != nil {
		h.Error(err)
	}
}

func (h *history) stop(now time.Time) {
	h.Helper()
	d := time.Duration(1+h.IntN(500)) * time.Millisecond
	h.record("%v: pause for %v", now, d)
	if err := h.limiters[h.IntN(2)].Pause(h.Context(), "e", d); err != nil {
		h.Error(err)
	}
	more := now.Add(d).Sub(latest(now, h.pause))
	if more <= 0 {
		return
	}
	for _, e := range h.log {
		if !e.at.Before(now) {
			e.at = e.at.Add(more)
		}
	}
	if !h.floor.Before(now) {
		h.floor = h.floor.Add(more)
	}
	h.pause, h.shift = now.Add(d), h.shift+more.Milliseconds()
}

func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
