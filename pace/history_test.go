package pace_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// setting configures the two limiters of a history, which have the same Name. In Redis, the second
// limiter has other limits, none of them looser. In memory, it has the same limits.
type setting struct {
	limits [2]string
	ahead  [2]time.Duration
	step   time.Duration // how far the clock moves at most for each request
}

var settings = []setting{
	{[2]string{"1/20ms", "1/20ms 4/1s"}, [2]time.Duration{time.Second, time.Minute}, 25 * time.Millisecond},
	{[2]string{"5/1s", "3/1s"}, [2]time.Duration{10 * time.Second, time.Second}, 400 * time.Millisecond},
	{[2]string{"1/5ms 8/100ms 30/1s", "8/100ms 20/400ms 30/1s"}, [2]time.Duration{2 * time.Second, time.Minute}, 50 * time.Millisecond},
	{[2]string{"256/10s", "100/10s"}, [2]time.Duration{time.Minute, 20 * time.Second}, 40 * time.Millisecond},
	{[2]string{"1000/1h", "1000/1h 50/1m"}, [2]time.Duration{2 * time.Hour, 30 * time.Minute}, 3 * time.Second},
	{[2]string{"3/1h 2/1m", "3/1h"}, [2]time.Duration{12 * time.Hour, time.Hour}, 20 * time.Minute},
}

// TestHistoriesUnderLoad plays random histories of bookings, cancellations and pauses, and compares
// each answer with an exact log: turns must come in order, within all limits, and as early as
// possible.
func TestHistoriesUnderLoad(t *testing.T) {
	t.Parallel()
	one, cluster := window.On(redistest.Client(t)), window.On(redistest.Cluster(t))
	for _, s := range settings {
		t.Run(s.limits[0], func(t *testing.T) {
			t.Parallel()
			for _, test := range []struct {
				store            string
				conn             *window.Connection
				callers, answers int
			}{
				{"memory", nil, 1, 3000},
				{"memory", nil, 200, 20_000},
				{"Redis", one, 1, 2000},
				{"Redis", one, 200, 20_000},
				{"cluster", cluster, 200, 20_000},
			} {
				t.Run(fmt.Sprintf("%s, %d callers", test.store, test.callers), func(t *testing.T) {
					h := newHistory(t, s, test.conn)
					h.play(test.callers, redistest.Share(test.answers))
				})
			}
		})
	}
}

// history is a history and its exact log. The clock stands still while callers ask.
type history struct {
	*testing.T
	*rand.Rand
	setting
	limiters [2]*pace.Limiter
	limits   [2][]window.Limit

	now   time.Time
	log   []*logged // in order of the turns
	floor time.Time // the newest turn ever booked
	pause time.Time // the end of the pause
	shift int64     // the ms by which all pauses have moved turns
	steps []string

	booked, refused, cancelled, pauses, forgotten int
}

// logged is a turn that was booked, at the time to which pauses have moved it.
type logged struct {
	pace.Reservation
	by        int
	at, late  time.Time // late: the latest time at which a bucket can count the turn, not including the bucket's width
	cancelled bool
}

// request is one of several simultaneous requests, and the answer to it.
type request struct {
	by   int
	n    int64         // units to book
	of   *logged       // the turn to ask Due about; otherwise nil
	stop time.Duration // the length of the pause; otherwise 0

	got pace.Reservation
	due due
}

// due is an answer from Due.
type due struct {
	after  time.Duration
	missed bool
}

func (r *request) String() string {
	return fmt.Sprintf("%d units by %d: %+v, until %v", r.n, r.by, r.got, r.got.At)
}

func newHistory(t *testing.T, s setting, conn *window.Connection) *history {
	h := &history{T: t, Rand: rand.New(rand.NewPCG(1, 2)), setting: s, now: time.UnixMilli(1_700_000_000_000).UTC()}
	cfg := pace.Config{Name: redistest.Key(t), Timeout: time.Minute, Now: func() time.Time { return h.now }}
	for i := range h.limiters {
		h.limits[i] = parsed(strings.Split(s.limits[i], " ")...)
		switch cfg.Limits, cfg.MaxAhead = h.limits[i], s.ahead[i]; {
		case conn != nil:
			h.limiters[i] = must(pace.New(conn, cfg))
		case i == 0:
			h.limiters[i] = must(pace.NewLocal(cfg))
		default:
			h.limits[i], h.limiters[i] = h.limits[0], pace.Sharing(h.limiters[0], s.ahead[i])
		}
	}
	return h
}

// play repeatedly lets the given number of callers ask at the same time.
func (h *history) play(callers, answers int) {
	h.Helper()
	for h.booked+h.refused < answers {
		h.now = h.now.Add(h.span(callers))
		h.checkForgotten()
		requests := h.requests(callers)
		together(requests, func(r *request) { h.ask(r) })
		if h.replay(requests); h.IntN(5) == 0 {
			h.cancel(1 + h.IntN(callers))
		}
		if h.checkRecord(); h.Failed() {
			h.Fatalf("after:\n%s", strings.Join(h.steps[max(0, len(h.steps)-40):], "\n"))
		}
	}
	h.Logf("%d booked, %d refused, %d cancelled, %d pauses, %d times forgotten", h.booked, h.refused, h.cancelled, h.pauses, h.forgotten)
	if !testing.Short() && (min(h.booked, 10*h.cancelled, 20*h.pauses) < answers/50 || callers > 1 && h.refused < answers/50) {
		h.Error("weak test")
	}
}

// span returns a random duration in which the given number of callers can get turns.
func (h *history) span(callers int) time.Duration {
	return time.Duration(1+h.IntN(callers*int(h.step.Milliseconds()))) * time.Millisecond
}

func together[T any](all []T, do func(T)) {
	var group sync.WaitGroup
	for _, one := range all {
		group.Go(func() { do(one) })
	}
	group.Wait()
}

// requests returns what callers ask at the same time. At most one of them pauses.
func (h *history) requests(callers int) (all []*request) {
	for i := range callers {
		r := &request{by: h.IntN(2), n: 1 + h.Int64N(2)}
		for _, l := range h.limits[r.by] {
			r.n = min(r.n, l.Max)
		}
		switch {
		case i == 0 && h.IntN(max(2, 12/callers)) == 0:
			r.stop = min(h.span(callers), 24*time.Hour)
		case len(h.log) > 0 && h.IntN(7) == 0:
			r.of = h.some()
		}
		all = append(all, r)
	}
	return all
}

func (h *history) some() *logged { return h.log[len(h.log)-1-h.IntN(min(len(h.log), 300))] }

func (h *history) ask(r *request) {
	var err error
	switch l := h.limiters[r.by]; {
	case r.of != nil:
		r.due.after, err = l.Due(h.Context(), r.of.Reservation)
		if r.due.missed = errors.Is(err, pace.ErrMissed); r.due.missed {
			err = nil
		}
	case r.stop > 0:
		err = l.Pause(h.Context(), "e", r.stop)
	default:
		r.got, err = l.ReserveN(h.Context(), "e", r.n)
	}
	if err != nil {
		h.Error(err)
	}
}

func (h *history) record(format string, args ...any) {
	h.steps = append(h.steps, h.now.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// replay finds an order of the requests in which all answers are correct. A reply says by how much
// pauses have shifted turns, and thereby whether it came before the pause.
func (h *history) replay(requests []*request) {
	h.Helper()
	var before, after, dues []*request
	shift, stop := h.shift, time.Duration(0)
	for _, r := range requests {
		switch {
		case r.stop > 0:
			stop = r.stop
		case r.of != nil:
			dues = append(dues, r)
		case r.got.Shift == shift:
			before = append(before, r)
		default:
			after = append(after, r)
		}
	}
	were := map[*request]due{}
	for _, r := range dues {
		were[r] = h.due(r.of)
	}
	h.replayBookings(before)
	if stop > 0 {
		h.stop(stop)
	}
	h.replayBookings(after)
	for _, r := range dues {
		if is := h.due(r.of); r.due != were[r] && r.due != is {
			h.Errorf("%v: %+v is due %v, want %v or %v", h.now, r.of, r.due, were[r], is)
		}
	}
}

// due returns the expected answer from Due: a turn is missed if it came before a pause, or too long
// ago.
func (h *history) due(e *logged) due {
	late := h.now.Sub(e.at)
	if late > time.Second || e.Shift != h.shift && e.at.Before(h.pause) {
		return due{missed: true}
	}
	return due{after: max(0, -late)}
}

// stop records a pause.
func (h *history) stop(d time.Duration) {
	h.record("pause for %v", d)
	more := h.now.Add(d).Sub(latest(h.now, h.pause))
	if more <= 0 {
		return
	}
	for _, e := range h.log {
		if !e.at.Before(h.now) {
			e.at = e.at.Add(more)
		}
		if e.late.After(h.now.Add(-h.width(e.by))) {
			e.late = e.late.Add(more)
		}
	}
	if !h.floor.Before(h.now) {
		h.floor = h.floor.Add(more)
	}
	h.pauses++
	h.pause, h.shift = h.now.Add(d), h.shift+more.Milliseconds()
}

// replayBookings replays bookings with nothing else in between.
func (h *history) replayBookings(all []*request) {
	h.Helper()
	least := h.waits(all, h.earliest)
	slices.SortFunc(all, func(a, b *request) int { return a.got.At.Compare(b.got.At) })
	for rest := all; len(rest) > 0 && !h.Failed(); {
		same := 1
		for same < len(rest) && rest[same].got.At.Equal(rest[0].got.At) {
			same++
		}
		if rest[0].got.OK {
			h.replayTied(rest[:same])
		}
		rest = rest[same:]
	}
	most := h.waits(all, h.latest)
	for _, r := range all {
		of := choice{r.by, r.n}
		if r.got.OK {
			continue
		}
		h.record("%v", r)
		if h.refused++; r.got.Shift != h.shift || r.got.Delay <= 0 || r.got.Delay < least[of] || r.got.Delay > most[of] {
			h.Errorf("%v: %v can be booked after %v to %v", h.now, r, least[of], most[of])
		}
	}
}

// choice holds the ways in which booking requests of a history differ.
type choice struct {
	by int
	n  int64
}

// waits returns how long until a turn can be booked, for each choice among the requests.
func (h *history) waits(all []*request, turn func(choice) time.Time) map[choice]time.Duration {
	waits := map[choice]time.Duration{}
	for _, r := range all {
		of := choice{r.by, r.n}
		if _, is := waits[of]; !is {
			waits[of] = turn(of).Sub(h.now) - h.ahead[r.by]
		}
	}
	return waits
}

// replayTied replays bookings of turns that have the same time. The first of them must be a turn
// that could not come earlier. The others then fit if turns under tighter limits come first.
func (h *history) replayTied(tied []*request) {
	h.Helper()
	slices.SortStableFunc(tied, func(a, b *request) int { return cmp.Compare(b.by, a.by) })
	if first := slices.IndexFunc(tied, h.fits); first > 0 {
		r := tied[first]
		copy(tied[1:], tied[:first])
		tied[0] = r
	}
	for _, r := range tied {
		h.record("%v", r)
		if !h.fits(r) {
			of := choice{r.by, r.n}
			h.Errorf("%v: %v, want %v to %v", h.now, r, h.earliest(of), h.latest(of))
		}
		h.book(r)
	}
}

// fits reports whether a turn that is booked now is where it should be.
func (h *history) fits(r *request) bool {
	of := choice{r.by, r.n}
	earliest := h.earliest(of)
	return !r.got.At.Before(earliest) && (r.got.At.Equal(earliest) || !r.got.At.After(h.latest(of))) && r.got.N == r.n &&
		r.got.At.Equal(h.now.Add(r.got.Delay)) && r.got.Delay <= h.ahead[r.by] && r.got.Shift == h.shift
}

func (h *history) book(r *request) {
	h.booked++
	h.log, h.floor = append(h.log, &logged{Reservation: r.got, by: r.by, at: r.got.At, late: r.got.At}), r.got.At
	for _, l := range h.limits[r.by] {
		if n := h.units(r.got.At, l.Per); n > l.Max {
			h.Errorf("%d units under %v", n, l)
		}
	}
}

// earliest returns the earliest time at which all limits allow the units.
func (h *history) earliest(of choice) (at time.Time) {
	at = latest(h.now, h.floor, h.pause)
	for _, l := range h.limits[of.by] {
		for i := h.after(at.Add(-l.Per)); h.units(at, l.Per)+of.n > l.Max; i++ {
			at = h.log[i].at.Add(l.Per)
		}
	}
	return at
}

// latest returns the latest time at which a turn may come. It is later than earliest only because
// of buckets.
func (h *history) latest(of choice) (at time.Time) {
	width := h.width(of.by)
	if width == 0 {
		return h.earliest(of)
	}
	late := *h
	late.log = nil
	for _, e := range h.log[max(0, len(h.log)-3000):] {
		moved := *e
		moved.at = e.late
		late.log = append(late.log, &moved)
	}
	return late.earliest(of).Add(width)
}

// width returns the width of a limiter's widest bucket, or 0 if all its limits are exact.
func (h *history) width(by int) (width time.Duration) {
	for _, l := range h.limits[by] {
		if l.Max > 256 {
			width = max(width, (l.Per+239)/240)
		}
	}
	return width
}

// after returns the index of the first turn in the log that is after t.
func (h *history) after(t time.Time) int {
	return sort.Search(len(h.log), func(i int) bool { return h.log[i].at.After(t) })
}

// units returns how many units count under limits with the given Per in the interval of length Per
// that ends at end. end must not be before the newest turn.
func (h *history) units(end time.Time, per time.Duration) (n int64) {
	for i := len(h.log) - 1; i >= 0 && h.log[i].at.After(end.Add(-per)); i-- {
		if h.counts(h.log[i], per) {
			n += h.log[i].N
		}
	}
	return n
}

// counts reports whether a turn counts under limits with the given Per.
func (h *history) counts(e *logged, per time.Duration) bool {
	return !e.cancelled && slices.ContainsFunc(h.limits[e.by], func(l window.Limit) bool { return l.Per == per })
}

// cancel lets callers give back up to the given number of turns at the same time, except turns that
// may or may not come before the last pause.
func (h *history) cancel(most int) {
	var all []*logged
	for range min(most, len(h.log)) {
		e := h.some()
		if !e.cancelled && (e.Shift == h.shift || !e.at.Before(h.pause)) {
			h.record("cancel %+v at %v", e.Reservation, e.at)
			e.cancelled = true
			all = append(all, e)
		}
	}
	h.cancelled += len(all)
	together(all, func(e *logged) {
		if err := h.limiters[e.by].Cancel(h.Context(), e.Reservation); err != nil {
			h.Error(err)
		}
	})
}

// checkForgotten checks whether the event was forgotten, along with its pauses. That may happen
// once nothing counts.
func (h *history) checkForgotten() {
	shift := pace.Shift(h.limiters[0], "e")
	if shift == h.shift {
		return
	}
	h.forgotten++
	for i := range h.limits {
		for _, l := range h.limits[i] {
			if n := h.units(latest(h.now, h.floor), l.Per); n > 0 {
				h.Errorf("%d units under %v were forgotten", n, l)
			}
		}
	}
	if shift != 0 || h.floor.After(h.now) || h.pause.After(h.now) {
		h.Errorf("%v: the shift is %d and not %d; floor %v, pause until %v", h.now, shift, h.shift, h.floor, h.pause)
	}
	h.log, h.floor, h.pause, h.shift = nil, time.Time{}, time.Time{}, 0
}

// checkRecord compares what counts with the log.
func (h *history) checkRecord() {
	by := h.IntN(2)
	s := must(h.limiters[by].Inspect(h.Context(), "e"))
	if known := !s.Newest.IsZero(); known && (!s.Newest.Equal(h.floor) || !h.pause.IsZero() && !s.PausedUntil.Equal(h.pause)) {
		h.Errorf("%v: newest turn %v, want %v; a pause until %v, want %v", h.now, s.Newest, h.floor, s.PausedUntil, h.pause)
	}
	if of := (choice{by, 1}); s.Next.Before(h.earliest(of)) || s.Next.After(h.latest(of)) {
		h.Errorf("%v: the next turn is %v, want %v to %v", h.now, s.Next, h.earliest(of), h.latest(of))
	}
	for _, of := range s.Limits {
		want, units := h.buckets(of.Limit.Per)
		if of.Limit.Max <= 256 {
			equal(h, fmt.Sprintf("%v: turns under %v", h.now, of.Limit), of.Buckets, want)
		}
		if of.Used != sum(of.Buckets) || of.Used < units || of.Remaining != of.Limit.Max-of.Used && of.Remaining != 0 || h.now.Add(of.RetryAfter).After(s.Next) {
			h.Errorf("%v: %+v, want %d units", h.now, of, units)
		}
	}
}

// buckets returns the turns that count under limits with the given Per.
func (h *history) buckets(per time.Duration) (all []window.Bucket, units int64) {
	for _, e := range h.log[h.after(latest(h.now, h.floor).Add(-per)):] {
		last := len(all) - 1
		switch {
		case !h.counts(e, per):
		case last >= 0 && all[last].Last.Equal(e.at):
			all[last].Units += e.N
		default:
			all = append(all, window.Bucket{Last: e.at, Units: e.N})
		}
	}
	return all, sum(all)
}

func sum(all []window.Bucket) (units int64) {
	for _, b := range all {
		units += b.Units
	}
	return units
}

func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
