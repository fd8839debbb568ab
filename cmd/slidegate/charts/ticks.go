package charts

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// tickStep is the distance between two ticks on a time axis, in seconds or in months.
type tickStep struct {
	seconds, months int64
	name, note      string // layouts; note is the part that neighbouring ticks share
}

// tickSteps lists the available steps, the shortest first.
var tickSteps = slices.Concat(
	every(tickStep{1, 0, "15:04:05", "Jan 2, 2006"}, 1, 2, 5, 10, 15, 30),
	every(tickStep{minute, 0, "15:04", "Jan 2, 2006"}, 1, 2, 5, 10, 15, 30, 60, 2*60, 3*60, 6*60, 12*60),
	every(tickStep{day, 0, "Jan 2", "2006"}, 1, 2, 7, 14),
	every(tickStep{0, 1, "Jan", "2006"}, 1, 3, 6),
	every(tickStep{0, 12, "2006", ""}, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
)

// every returns the given multiples of r.
func every(r tickStep, times ...int64) (all []tickStep) {
	for _, n := range times {
		all = append(all, tickStep{n * r.seconds, n * r.months, r.name, r.note})
	}
	return all
}

// length returns the approximate number of seconds between two ticks.
func (r tickStep) length() float64 { return float64(r.seconds + r.months*365*day/12) }

// floor returns the time of the last tick at or before the given time. Weeks begin on Mondays, and
// centuries in years such as 1900.
func (r tickStep) floor(at time.Time) time.Time {
	if r.months == 0 {
		return at.Truncate(time.Duration(r.seconds) * time.Second)
	}
	month := int64(at.Year())*12 + int64(at.Month()) - 1
	return time.Date(0, time.Month(1+floorDiv(month, r.months)*r.months), 1, 0, 0, 0, 0, time.UTC)
}

// newTickStep returns the shortest step that leaves 60 points for each tick on an axis of the given
// width. from and to, the ends of the axis, are in seconds since 1970.
func newTickStep(from, to float64, yearless bool, wide float64) tickStep {
	r := tickSteps[len(tickSteps)-1]
	most := math.Floor(wide/60) - 1
	if i := slices.IndexFunc(tickSteps, func(r tickStep) bool { return (to-from)/r.length() <= most }); i >= 0 {
		r = tickSteps[i]
	}
	if yearless {
		r.name, r.note = cmp.Or(withoutYear(r.name), "Jan"), withoutYear(r.note)
	}
	return r
}

func withoutYear(layout string) string {
	return strings.TrimSuffix(strings.TrimSuffix(layout, "2006"), ", ")
}

// Ticks returns the ticks of an axis in seconds since 1970.
func (r tickStep) Ticks(from, to float64) (ticks []Tick) {
	at := r.floor(instant(from))
	for ; float64(at.Unix()) <= to; at = at.AddDate(0, int(r.months), 0).Add(time.Duration(r.seconds) * time.Second) {
		if float64(at.Unix()) >= from {
			ticks = append(ticks, Tick{Value: float64(at.Unix()), Label: at.Format(r.name)})
		}
	}
	return ticks
}

// drawNotes writes the notes below the tick labels, on the page and apart from each other.
func (r tickStep) drawNotes(area plotted) {
	last, free := "", float64(margin)
	for _, tick := range area.x.Ticks {
		if note := instant(tick.Value).Format(r.note); note != last {
			half := Remark.width(note) / 2
			x := max(free+half, min(PageWidth-margin-half, area.at(Point{X: tick.Value}).X))
			area.Text(Remark.aligned(0.5), x, area.Bottom+26, note)
			last, free = note, x+half+4
		}
	}
}

func instant(second float64) time.Time { return time.Unix(int64(second), 0).UTC() }

// The waits that can label an axis. On a long axis, roundWaits are enough.
const (
	roundWaits = "1 ms, 10 ms, 100 ms, 1 s, 10 s, 1 min, 10 min, 1 h, 6 h, 1 d, 7 d, 30 d, 1 year, 10 years, 100 years"
	allWaits   = "1 ms, 2 ms, 5 ms, 10 ms, 20 ms, 50 ms, 100 ms, 200 ms, 500 ms, 1 s, 2 s, 5 s, 10 s, 30 s, " +
		"1 min, 2 min, 5 min, 10 min, 30 min, 1 h, 2 h, 6 h, 12 h, 1 d, 2 d, 7 d, 14 d, 30 d, 90 d, " +
		"1 year, 2 years, 5 years, 10 years, 20 years, 50 years, 100 years, 200 years"
)

var waitUnits = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour,
	"d": day * time.Second, "year": 365 * day * time.Second, "years": 365 * day * time.Second,
}

// waitTicks returns the ticks of an axis of the given length that shows waits, in nanoseconds: the
// round waits, or all waits if fewer than five are round. It omits labels that would overlap.
func waitTicks(from, to, wide float64) (visible []Tick) {
	ticks := namedWaits(roundWaits, from, to)
	if len(ticks) < 5 {
		ticks = namedWaits(allWaits, from, to)
	}
	free := math.Inf(-1)
	for _, tick := range ticks {
		at := wide * math.Log(tick.Value/from) / math.Log(to/from)
		if half := Label.width(tick.Label) / 2; at-half >= free {
			visible, free = append(visible, tick), at+half+6
		}
	}
	return visible
}

// namedWaits parses a list of waits, and returns ticks for those between from and to.
func namedWaits(waits string, from, to float64) (ticks []Tick) {
	for _, name := range strings.Split(waits, ", ") {
		var n float64
		var unit string
		_, _ = fmt.Sscan(name, &n, &unit)
		if at := n * float64(waitUnits[unit]); at >= from && at <= to {
			ticks = append(ticks, Tick{Value: at, Label: name})
		}
	}
	return ticks
}

// countAxis is an axis of counts, starting at 0. With sqrt, it has a square-root scale, which keeps
// low counts visible next to a few high ones.
type countAxis struct {
	sqrt bool
	top  float64 // the number at the upper end
}

// newCountAxis returns the axis for the given counts in a panel of the given height. It uses a
// square-root scale if the highest count is more than 20 times the median of the non-zero counts.
// It leaves room above the highest count to write its number.
func newCountAxis(counts []int, high float64) countAxis {
	const name = 14
	counts = slices.DeleteFunc(slices.Clone(counts), func(n int) bool { return n == 0 })
	slices.Sort(counts)
	highest := counts[len(counts)-1]
	a := countAxis{highest > 20*counts[len(counts)/2], float64(highest)}
	part := 1 - name/(high-axisRoom) // without the lower axis
	if a.top /= part; a.sqrt {
		a.top /= part
	}
	return a
}

// String returns the name of a square-root scale, or "" for a linear scale.
func (a countAxis) String() string {
	if a.sqrt {
		return "square-root scale"
	}
	return ""
}

// axis returns the axis with its ticks.
func (a countAxis) axis() Axis { return Axis{Max: a.top, Scale: a.scale, Ticks: a.ticks()} }

// scale returns n, or its square root.
func (a countAxis) scale(n float64) float64 {
	if a.sqrt {
		return math.Sqrt(n)
	}
	return n
}

// ticks returns 0 and the multiples of a round number. On a square-root scale it returns 0 and some
// round numbers.
func (a countAxis) ticks() (ticks []Tick) {
	if !a.sqrt {
		return multiples(max(1, roundStep(a.top, 5)), a.top, func(n float64) string { return Thousands(int(n)) })
	}
	last := math.Inf(-1)
	for _, n := range append([]float64{0}, roundNumbers(a.top)...) {
		if height := a.scale(n) / a.scale(a.top); n <= a.top && height-last > 0.15 {
			ticks, last = append(ticks, Tick{Value: n, Label: Thousands(int(n))}), height
		}
	}
	return ticks
}

// roundNumbers returns 1, 2, 5, 10, 20, 50 and so on, up to at least the given number.
func roundNumbers(highest float64) (all []float64) {
	for ten := 1.0; ten <= highest; ten *= 10 {
		all = append(all, ten, 2*ten, 5*ten)
	}
	return all
}

// roundStep returns the smallest step that fits into length no more than most times. It is 1, 2 or
// 5 times a power of ten.
func roundStep(length, most float64) float64 {
	ten := math.Pow(10, math.Floor(math.Log10(length/most)))
	for _, times := range []float64{1, 2, 5} {
		if length/(times*ten) <= most {
			return times * ten
		}
	}
	return 10 * ten
}

// multiples returns ticks at 0 and at the multiples of step, up to end.
func multiples(step, end float64, label func(float64) string) (ticks []Tick) {
	for n := 0.0; n*step <= end; n++ {
		ticks = append(ticks, Tick{Value: n * step, Label: label(n * step)})
	}
	return ticks
}

// Thousands formats n, which must not be negative, with a comma between thousands.
func Thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", Thousands(n/1000), n%1000)
}
