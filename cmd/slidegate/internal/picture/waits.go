package picture

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

const (
	perOctave = 16               // bins from a wait to twice that wait
	shortest  = time.Millisecond // the longest wait in the first bin
	waitBins  = 691              // up to the longest time.Duration, which is 292 years
)

// edges are the longest waits of the bins, each 4.4 % above the one before.
var edges = func() (e [waitBins]time.Duration) {
	for i := range e[:waitBins-1] {
		e[i] = time.Duration(float64(shortest) * math.Exp2(float64(i)/perOctave))
	}
	e[waitBins-1] = math.MaxInt64
	return e
}()

// Waits counts how long denied attempts have to wait. Its bins are a sixteenth of an octave wide,
// from a millisecond up, so it needs the same memory for any number of waits. It keeps the longest
// wait exactly.
type Waits struct {
	bins    [waitBins]int
	count   int
	longest time.Duration
}

// Add counts a wait. One below a millisecond falls into the first bin.
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

// Longest returns the longest wait, or 0 without any.
func (w *Waits) Longest() time.Duration { return w.longest }

// Quantile returns a wait that the share q of all waits does not exceed. Quantile(0.5) is about the
// median.
//
// The exact quantile is the shortest such wait. Quantile is never below it, and at most 4.5 % above
// it. It returns the upper edge of the bin of the exact quantile, or the longest wait if that is
// less. For waits below a millisecond, it returns at most a millisecond. Without any waits, it
// returns 0.
func (w *Waits) Quantile(q float64) time.Duration {
	left := max(1, int(math.Ceil(q*float64(w.count))))
	for i, n := range w.bins {
		if left -= n; left <= 0 {
			return min(edges[i], w.longest)
		}
	}
	return w.longest
}

// waitBin returns the first bin whose edge is not below a wait. It computes the whole octaves above
// a millisecond by the length of a binary number, and searches the rest.
func waitBin(d time.Duration) int {
	if d <= shortest {
		return 0
	}
	octaves := bits.Len64(uint64((d-1)/shortest)) - 1
	from := 1 + octaves*perOctave
	i, _ := slices.BinarySearch(edges[from:min(from+perOctave, waitBins)], d)
	return from + i
}

// joined returns the counts of wider bins, from a first to a last one. Each joins several bins.
func (w *Waits) joined(join, first, last int) []int {
	counts := make([]int, last-first+1)
	for i, n := range w.bins {
		if n > 0 {
			counts[joinedBin(i, join)-first] += n
		}
	}
	return counts
}

// joinedBin returns the wider bin that bin i belongs to. The upper edge of the nth wider bin is
// that of bin n × join.
func joinedBin(i, join int) int { return (i + join - 1) / join }
