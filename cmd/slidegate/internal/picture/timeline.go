package picture

import (
	"slices"
	"time"
)

// maxBins is how many bins a Timeline has at most: a picture has no room for more.
const maxBins = 400

// widths are those that a bin may have, in seconds. Each is a multiple of the one before; beyond the last, they double.
var widths = []int64{1, 5, 15, minute, 5 * minute, 15 * minute, hour, 3 * hour, 6 * hour, 12 * hour, day, 7 * day}

const (
	minute = 60
	hour   = 60 * minute
	day    = 24 * hour
)

// A Timeline counts attempts, and those of them that each of several sets of limits admits, in equal bins of time.
//
// A bin is a second wide at first. When the attempts need more than 400 bins, these become wider, so the memory stays the
// same however many attempts there are, and whatever their order. The result does not depend on that order either.
//
// A bin of a width w begins at a multiple of w since 1970, in UTC.
type Timeline struct {
	width  int64 // of a bin, in seconds
	first  int64 // the number of the first bin: it begins at first*width
	row    int   // the length of one row of counts
	counts []int // a row for each bin: the attempts, and the admissions by each set
}

// NewTimeline returns an empty Timeline for so many sets of limits.
func NewTimeline(sets int) *Timeline {
	return &Timeline{width: widths[0], row: 1 + sets}
}

// Add counts an attempt. There is one element of admitted for each set of limits: whether that set admits the attempt.
func (t *Timeline) Add(at time.Time, admitted []bool) {
	row := t.at(at.Unix())
	row[0]++
	for i, ok := range admitted {
		if ok {
			row[1+i]++
		}
	}
}

// Merge adds the counts of another Timeline for as many sets. The bins become as wide as those of the other, at least.
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

// at returns the counts of the bin that a second is in.
func (t *Timeline) at(second int64) []int {
	i := floorDiv(second, t.width) - t.first
	if i < 0 || i >= int64(t.bins()) {
		i = t.reach(second)
	}
	return t.counts[int(i)*t.row:][:t.row]
}

// reach extends the bins to those of a second beyond them, and says which of them it is.
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

// extend adds empty bins before the first or after the last, up to a bin.
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

// edge returns the second at which a bin begins, counted from the first bin.
func (t *Timeline) edge(bin int) float64 { return float64((t.first + int64(bin)) * t.width) }

// attempts are the attempts in each bin.
func (t *Timeline) attempts() []int { return t.column(0) }

// admitted are the attempts in each bin that a set admits.
func (t *Timeline) admitted(set int) []int { return t.column(1 + set) }

// total is how many attempts there are, or by column 1 and on how many of them a set admits.
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

// floorDiv divides and rounds down, also before 1970.
func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -((b - 1 - a) / b)
	}
	return a / b
}
