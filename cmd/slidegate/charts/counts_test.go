package charts

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// attempt represents an attempt, in seconds since 1970, with the decisions of two sets.
type attempt struct {
	second  int64
	allowed []bool
}

func timelineOf(history []attempt) *Timeline {
	t := NewTimeline(2)
	for _, a := range history {
		t.Add(time.Unix(a.second, 999_999_999), a.allowed)
	}
	return t
}

// randomHistory returns attempts that mostly move forward or back by steps of a fixed size. Some
// leap to any time between the years 1970 and 6000.
func randomHistory(r *rand.Rand) []attempt {
	const end = 127_174_492_800 // 6000-01-01
	history := make([]attempt, 1+r.IntN(300))
	second, step, leaps := r.Int64N(end), int64(1)<<r.IntN(24), r.IntN(2) == 0
	for i := range history {
		if second += r.Int64N(3*step) - step; leaps && r.IntN(100) == 0 {
			second = r.Int64N(end)
		}
		second = max(0, min(second, end))
		history[i] = attempt{second, []bool{r.IntN(2) == 0, r.IntN(9) == 0}}
	}
	return history
}

// counted represents the contents of a Timeline.
type counted struct {
	Width, First              int64
	Attempts, Allowed, Second []int
}

func (t *Timeline) counted() counted {
	return counted{t.width, t.first, t.attempts(), t.allowed(0), t.allowed(1)}
}

// countedExactly returns the counts that a Timeline must have for the given attempts. Its bin width
// is the smallest that needs no more than 400 bins.
func countedExactly(history []attempt) counted {
	least, most := history[0].second, history[0].second
	for _, a := range history {
		least, most = min(least, a.second), max(most, a.second)
	}
	c := counted{Width: 1}
	for most/c.Width-least/c.Width+1 > 400 {
		i := slices.Index(widths, c.Width)
		if c.Width *= 2; i >= 0 && i < len(widths)-1 {
			c.Width = widths[i+1]
		}
	}
	c.First = least / c.Width
	n := most/c.Width - c.First + 1
	c.Attempts, c.Allowed, c.Second = make([]int, n), make([]int, n), make([]int, n)
	for _, a := range history {
		bin := a.second/c.Width - c.First
		c.Attempts[bin]++
		for i, column := range [][]int{c.Allowed, c.Second} {
			if a.allowed[i] {
				column[bin]++
			}
		}
	}
	return c
}

// TestTimelineCountsExactly compares timelines with a list of all attempts: one timeline that got
// all attempts, and several that are merged in random order. At least one of the latter is empty.
func TestTimelineCountsExactly(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		history := randomHistory(r)
		shares := make([][]attempt, 5)
		for _, a := range history {
			i := r.IntN(4)
			shares[i] = append(shares[i], a)
		}
		merged := NewTimeline(2)
		for _, i := range r.Perm(len(shares)) {
			merged.Merge(timelineOf(shares[i]))
		}
		for name, got := range map[string]*Timeline{"whole": timelineOf(history), "merged": merged} {
			if diff := cmp.Diff(countedExactly(history), got.counted()); diff != "" {
				t.Fatalf("seed %d, %s (-exact +timeline):\n%s", seed, name, diff)
			}
		}
	}
}

// TestBefore1970 checks the bins for attempts before 1970.
func TestBefore1970(t *testing.T) {
	l := timelineOf([]attempt{{-1, []bool{true, true}}, {-400, []bool{true, false}}, {0, []bool{false, false}}})
	if l.width != 5 || l.first != -80 || l.bins() != 81 {
		t.Errorf("%+v", l)
	}
}

// randomWaits returns waits of all lengths up to the longest time.Duration, or of similar lengths.
func randomWaits(r *rand.Rand) []time.Duration {
	waits := make([]time.Duration, 1+r.IntN(200))
	size := r.IntN(64)
	for i := range waits {
		waits[i] = time.Duration(r.Int64() >> size)
		if size%2 == 0 {
			waits[i] = time.Duration(r.Int64() >> r.IntN(64))
		}
	}
	return waits
}

func waitsOf(waits []time.Duration) *Waits {
	w := &Waits{}
	for _, d := range waits {
		w.Add(d)
	}
	return w
}

// TestQuantile compares quantiles with those of the sorted waits. Half of the waits are merged from
// another Waits.
func TestQuantile(t *testing.T) {
	for seed := range uint64(1000) {
		waits := randomWaits(rand.New(rand.NewPCG(seed, 0)))
		w := waitsOf(waits[len(waits)/2:])
		w.Merge(waitsOf(waits[:len(waits)/2]))
		slices.Sort(waits)
		if longest := waits[len(waits)-1]; w.Count() != len(waits) || w.Longest() != longest {
			t.Fatalf("seed %d: %d waits up to %v, not %d up to %v", seed, w.Count(), w.Longest(), len(waits), longest)
		}
		for _, q := range []float64{0, 0.01, 0.25, 0.5, 0.9, 0.99, 1} {
			exact, got := waits[max(1, int(math.Ceil(q*float64(len(waits)))))-1], w.Quantile(q)
			if got < exact || float64(got) > max(1.045*float64(exact), float64(shortest)) {
				t.Fatalf("seed %d: the quantile %v is %v, not %v", seed, q, exact, got)
			}
		}
	}
	if w := (&Waits{}); w.Longest() != 0 || w.Quantile(0.5) != 0 {
		t.Errorf("without waits: %v, %v", w.Longest(), w.Quantile(0.5))
	}
}

// TestHistogram checks that each bin of a histogram covers the waits that it counts, and lies on
// the axis.
func TestHistogram(t *testing.T) {
	for seed := range uint64(100) {
		waits := randomWaits(rand.New(rand.NewPCG(seed, 1)))
		h := newHistogram(waitsOf(waits))
		for _, d := range waits {
			bin := slices.IndexFunc(h.counts(waitsOf([]time.Duration{d})), func(n int) bool { return n > 0 })
			at := max(float64(d), float64(shortest)) * (1 - 1e-9) // the edges are rounded
			if h.edge(bin) > at || h.edge(bin+1) < at || h.from > h.edge(bin) || h.to < h.edge(bin+1) {
				t.Fatalf("seed %d: %v is in a bin from %v to %v", seed, d, time.Duration(h.edge(bin)), time.Duration(h.edge(bin+1)))
			}
		}
	}
}
