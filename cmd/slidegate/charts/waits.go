package charts

import (
	"math"
	"slices"
	"time"
)

const (
	perOctave = 16               // bins per doubling of the wait
	shortest  = time.Millisecond // the longest wait in the first bin
	waitBins  = 691              // up to the longest time.Duration, which is 292 years
)

// edges lists the longest wait of each bin. Each is 4.4 % above the one before.
var edges = func() (e [waitBins]time.Duration) {
	for i := range e[:waitBins-1] {
		e[i] = time.Duration(float64(shortest) * math.Exp2(float64(i)/perOctave))
	}
	e[waitBins-1] = math.MaxInt64
	return e
}()

// Waits is a histogram of how long denied attempts have to wait. Its bins are a sixteenth of an
// octave wide and start at one millisecond, so its memory does not grow with the number of waits.
// The longest wait is recorded exactly.
type Waits struct {
	bins    [waitBins]int
	count   int
	longest time.Duration
}

// Add adds d to the histogram. A wait below a millisecond falls into the first bin.
func (w *Waits) Add(d time.Duration) {
	w.bins[waitBin(d)]++
	w.count++
	w.longest = max(w.longest, d)
}

// Merge adds the counts of other.
func (w *Waits) Merge(other *Waits) {
	for i, n := range other.bins {
		w.bins[i] += n
	}
	w.count += other.count
	w.longest = max(w.longest, other.longest)
}

// Count returns the number of waits.
func (w *Waits) Count() int { return w.count }

// Longest returns the longest wait, or 0 if there is none.
func (w *Waits) Longest() time.Duration { return w.longest }

// Quantile returns a wait that a share q of all waits does not exceed. Quantile(0.5) is roughly the
// median.
//
// The exact quantile is the shortest such wait. Quantile never returns less than that, and at most
// 4.5 % more: it returns the upper edge of the exact quantile's bin, or the longest wait if that is
// shorter. For an exact quantile below a millisecond, it returns at most a millisecond. If there
// are no waits, it returns 0.
func (w *Waits) Quantile(q float64) time.Duration {
	left := max(1, int(math.Ceil(q*float64(w.count))))
	for i, n := range w.bins {
		if left -= n; left <= 0 {
			return min(edges[i], w.longest)
		}
	}
	return w.longest
}

// waitBin returns the first bin whose upper edge is at least d.
func waitBin(d time.Duration) int {
	i, _ := slices.BinarySearch(edges[:], d)
	return i
}

// histogram draws waits. Each of its bins combines 2 or 4 bins of a Waits.
type histogram struct {
	join, first, last int
	ratio             float64 // between the edges of a bin
	from, to          float64 // the ends of its axis
}

// newHistogram returns a histogram whose axis covers the waits in w.
func newHistogram(w *Waits) histogram {
	least := slices.IndexFunc(w.bins[:], func(n int) bool { return n > 0 })
	most := waitBin(w.Longest())
	h := histogram{join: 4}
	if most-least < 6*perOctave {
		h.join = 2
	}
	octaves := float64(h.join) / perOctave
	h.first, h.last, h.ratio = h.bin(least), h.bin(most), math.Exp2(octaves)
	from, to := atLeast(4/octaves, float64(h.first-2), float64(h.last+1))
	h.from, h.to = h.at(from), h.at(to)
	return h
}

// bin returns the bin that contains bin i of Waits. Bin n has the same upper edge as bin n × join
// of Waits.
func (h histogram) bin(i int) int { return (i + h.join - 1) / h.join }

// at returns the upper edge of the given bin, in nanoseconds.
func (h histogram) at(bin float64) float64 { return float64(shortest) * math.Pow(h.ratio, bin) }

// edge returns the lower edge of the given bin, in nanoseconds. Bins are counted from the first.
func (h histogram) edge(bin int) float64 { return h.at(float64(h.first + bin - 1)) }

// counts returns the number of waits in each bin.
func (h histogram) counts(w *Waits) []int {
	counts := make([]int, h.last-h.first+1)
	for i, n := range w.bins {
		if n > 0 {
			counts[h.bin(i)-h.first] += n
		}
	}
	return counts
}
