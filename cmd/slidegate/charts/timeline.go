package charts

import (
	"slices"
	"time"
)

// maxBins is the maximum number of bins of a Timeline. A chart cannot show more.
const maxBins = 400

// widths lists the possible bin widths in seconds. Each is a multiple of the one before. Beyond the
// last, widths double.
var widths = []int64{1, 5, 15, minute, 5 * minute, 15 * minute, hour, 3 * hour, 6 * hour, 12 * hour, day, 7 * day}

const (
	minute = 60
	hour   = 60 * minute
	day    = 24 * hour
)

// Timeline counts attempts in time bins of equal width. For each of several sets of limits, it also
// counts the attempts that the set allows.
//
// Bins are one second wide at first. If the attempts need more than 400 bins, the bins become
// wider, so a Timeline's memory does not grow with the number of attempts. The order in which
// attempts are added does not affect the result.
//
// Bins of width w begin at multiples of w since 1970, in UTC.
type Timeline struct {
	sets        int
	width       int64           // of a bin, in seconds
	first, last int64           // bins; bin n begins at n*width
	counts      map[int64][]int // the attempts in each non-empty bin, and those that each set allows
}

// NewTimeline returns an empty Timeline for the given number of sets of limits.
func NewTimeline(sets int) *Timeline {
	return &Timeline{sets: sets, width: widths[0], counts: map[int64][]int{}}
}

// Add counts an attempt. For each set of limits, allowed says whether that set allows the attempt.
func (t *Timeline) Add(at time.Time, allowed []bool) {
	counts := t.at(at.Unix())
	counts[0]++
	for i, ok := range allowed {
		if ok {
			counts[1+i]++
		}
	}
}

// Merge adds the counts of other, which must have the same number of sets. The bins become at least
// as wide as those of other.
func (t *Timeline) Merge(other *Timeline) {
	for t.width < other.width {
		t.widen()
	}
	for bin, counts := range other.counts {
		add(t.at(bin*other.width), counts)
	}
}

// at returns the counts of the bin that contains the given second. It widens the bins until there
// is room for that bin.
func (t *Timeline) at(second int64) []int {
	bin := floorDiv(second, t.width)
	if len(t.counts) == 0 {
		t.first, t.last = bin, bin
	}
	for max(bin, t.last)-min(bin, t.first) >= maxBins {
		t.widen()
		bin = floorDiv(second, t.width)
	}
	t.first, t.last = min(bin, t.first), max(bin, t.last)
	return t.bin(bin)
}

// bin returns the counts of the given bin.
func (t *Timeline) bin(bin int64) []int {
	if t.counts[bin] == nil {
		t.counts[bin] = make([]int, 1+t.sets)
	}
	return t.counts[bin]
}

// widen merges the bins into bins of the next larger width.
func (t *Timeline) widen() {
	old := *t
	t.width, t.counts = wider(t.width), map[int64][]int{}
	wide := func(bin int64) int64 { return floorDiv(bin*old.width, t.width) }
	t.first, t.last = wide(t.first), wide(t.last)
	for bin, counts := range old.counts {
		add(t.bin(wide(bin)), counts)
	}
}

func add(counts, more []int) {
	for i, n := range more {
		counts[i] += n
	}
}

func wider(width int64) int64 {
	if i := slices.Index(widths, width); i >= 0 && i < len(widths)-1 {
		return widths[i+1]
	}
	return 2 * width
}

// bins returns the number of bins from the first to the last, including empty ones.
func (t *Timeline) bins() int {
	if len(t.counts) == 0 {
		return 0
	}
	return int(t.last - t.first + 1)
}

// edge returns the second at which the given bin begins. Bins are counted from the first.
func (t *Timeline) edge(bin int) float64 { return float64((t.first + int64(bin)) * t.width) }

// attempts returns the number of attempts in each bin.
func (t *Timeline) attempts() []int { return t.column(0) }

// allowed returns the number of attempts in each bin that the given set allowed.
func (t *Timeline) allowed(set int) []int { return t.column(1 + set) }

// total returns the sum of a column. Column 0 counts all attempts, and each later column the
// attempts that one set allows.
func (t *Timeline) total(column int) (n int) {
	for _, counts := range t.counts {
		n += counts[column]
	}
	return n
}

func (t *Timeline) column(n int) []int {
	column := make([]int, t.bins())
	for bin, counts := range t.counts {
		column[bin-t.first] = counts[n]
	}
	return column
}

// floorDiv returns a/b rounded down, even for negative a.
func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -((b - 1 - a) / b)
	}
	return a / b
}
