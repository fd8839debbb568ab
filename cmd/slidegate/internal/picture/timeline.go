package picture

import (
	"slices"
	"time"
)

// maxBins is the most bins of a Timeline. A picture has no room for more.
const maxBins = 400

// widths are the possible widths of a bin, in seconds. Each is a multiple of the one before. After
// the last one, they double.
var widths = []int64{1, 5, 15, minute, 5 * minute, 15 * minute, hour, 3 * hour, 6 * hour, 12 * hour, day, 7 * day}

const (
	minute = 60
	hour   = 60 * minute
	day    = 24 * hour
)

// Timeline counts attempts in equal bins of time. For each of several sets of limits, it also
// counts the attempts that the set allows.
//
// A bin is a second wide at first. If the attempts need more than 400 bins, the bins become wider,
// so a Timeline needs the same memory for any number of attempts in any order. The result does not
// depend on their order.
//
// A bin of a width w begins at a multiple of w since 1970, in UTC.
type Timeline struct {
	width  int64 // of a bin, in seconds
	first  int64 // the number of the first bin: it begins at first*width
	row    int   // the length of one row of counts
	counts []int // a row for each bin: the attempts, and the allowed ones of each set
}

// NewTimeline returns an empty Timeline for a number of sets of limits.
func NewTimeline(sets int) *Timeline {
	return &Timeline{width: widths[0], row: 1 + sets}
}

// Add counts an attempt. admitted has one element for each set of limits: whether that set allows
// the attempt.
func (t *Timeline) Add(at time.Time, admitted []bool) {
	row := t.at(at.Unix())
	row[0]++
	for i, ok := range admitted {
		if ok {
			row[1+i]++
		}
	}
}

// Merge adds the counts of another Timeline with the same number of sets. The bins become at least
// as wide as those of the other.
func (t *Timeline) Merge(other *Timeline) {
	for t.width < other.width {
		t.widen()
	}
	for i := range other.bins() {
		row := t.at((other.first + int64(i)) * other.width)
		for j, n := range other.counts[i*other.row:][:other.row] {
			row[j] += n
		}
	}
}

// at returns the counts of the bin of a second.
func (t *Timeline) at(second int64) []int {
	i := floorDiv(second, t.width) - t.first
	if i < 0 || i >= int64(t.bins()) {
		i = t.reach(second)
	}
	return t.counts[int(i)*t.row:][:t.row]
}

// reach extends the bins to a second beyond them, and returns the bin of that second.
func (t *Timeline) reach(second int64) int64 {
	if len(t.counts) == 0 {
		t.first = floorDiv(second, t.width)
	}
	for {
		bin, last := floorDiv(second, t.width), t.first+int64(t.bins())-1
		if max(bin, last)-min(bin, t.first) < maxBins {
			t.extend(bin, last)
			return bin - t.first
		}
		t.widen()
	}
}

// extend adds empty bins before the first or after the last, up to bin.
func (t *Timeline) extend(bin, last int64) {
	if before := t.first - bin; before > 0 {
		t.counts = slices.Insert(t.counts, 0, make([]int, int(before)*t.row)...)
		t.first = bin
	}
	if after := bin - last; after > 0 {
		t.counts = append(t.counts, make([]int, int(after)*t.row)...)
	}
}

// widen joins the bins to those of the next width.
func (t *Timeline) widen() {
	old := *t
	t.width = wider(t.width)
	times := t.width / old.width
	t.first = floorDiv(old.first, times)
	last := floorDiv(old.first+int64(old.bins())-1, times)
	t.counts = make([]int, int(last-t.first+1)*t.row)
	for i, n := range old.counts {
		bin := floorDiv(old.first+int64(i/t.row), times) - t.first
		t.counts[int(bin)*t.row+i%t.row] += n
	}
}

func wider(width int64) int64 {
	if i := slices.Index(widths, width); i >= 0 && i < len(widths)-1 {
		return widths[i+1]
	}
	return 2 * width
}

func (t *Timeline) bins() int { return len(t.counts) / t.row }

// edge returns the second at which a bin begins. Bins are numbered from the first.
func (t *Timeline) edge(bin int) float64 { return float64((t.first + int64(bin)) * t.width) }

// attempts returns the attempts in each bin.
func (t *Timeline) attempts() []int { return t.column(0) }

// admitted returns the attempts in each bin that a set allows.
func (t *Timeline) admitted(set int) []int { return t.column(1 + set) }

// total returns the sum of a column. Column 0 counts all attempts. Each later column counts the
// attempts that a set allows.
func (t *Timeline) total(column int) (n int) {
	for _, count := range t.column(column) {
		n += count
	}
	return n
}

func (t *Timeline) column(n int) []int {
	var column []int
	for i := n; i < len(t.counts); i += t.row {
		column = append(column, t.counts[i])
	}
	return column
}

// floorDiv returns a/b rounded down, also for negative a.
func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -((b - 1 - a) / b)
	}
	return a / b
}
