package picture

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidegate/slidegate/internal/look"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
)

// A rhythm is a choice of round instants: every so many seconds, or every so many months.
type rhythm struct {
	seconds, months int64
	name, note      string // layouts; a note is what the instants after it have in common
}

// rhythms are those to choose from, the fastest first.
var rhythms = slices.Concat(
	every(rhythm{1, 0, "15:04:05", "Jan 2, 2006"}, 1, 2, 5, 10, 15, 30),
	every(rhythm{minute, 0, "15:04", "Jan 2, 2006"}, 1, 2, 5, 10, 15, 30, 60, 2*60, 3*60, 6*60, 12*60),
	every(rhythm{day, 0, "Jan 2", "2006"}, 1, 2, 7, 14),
	every(rhythm{0, 1, "Jan", "2006"}, 1, 3, 6),
	every(rhythm{0, 12, "2006", ""}, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
)

// every returns the multiples of a rhythm.
func every(r rhythm, times ...int64) (all []rhythm) {
	for _, n := range times {
		all = append(all, rhythm{n * r.seconds, n * r.months, r.name, r.note})
	}
	return all
}

// length is about how many seconds lie between two instants.
func (r rhythm) length() float64 { return float64(r.seconds + r.months*365*day/12) }

// before is the last instant that is not after another. Weeks begin on a Monday, and centuries in a year like 1900.
func (r rhythm) before(at time.Time) time.Time {
	if r.months == 0 {
		return at.Truncate(time.Duration(r.seconds) * time.Second)
	}
	month := int64(at.Year())*12 + int64(at.Month()) - 1
	return time.Date(0, time.Month(1+floorDiv(month, r.months)*r.months), 1, 0, 0, 0, 0, time.UTC)
}

// newRhythm is the fastest whose instants between two seconds since 1970 have 60 points each on an axis of this width.
func newRhythm(from, to float64, yearless bool, wide vg.Length) rhythm {
	r := rhythms[len(rhythms)-1]
	most := math.Floor(wide.Points()/60) - 1
	if i := slices.IndexFunc(rhythms, func(r rhythm) bool { return (to-from)/r.length() <= most }); i >= 0 {
		r = rhythms[i]
	}
	if yearless {
		r.name, r.note = cmp.Or(withoutYear(r.name), "Jan"), withoutYear(r.note)
	}
	return r
}

func withoutYear(layout string) string {
	return strings.TrimSuffix(strings.TrimSuffix(layout, "2006"), ", ")
}

// Ticks implements plot.Ticker, for an axis of seconds since 1970.
func (r rhythm) Ticks(from, to float64) (ticks []plot.Tick) {
	at := r.before(instant(from))
	for ; float64(at.Unix()) <= to; at = at.AddDate(0, int(r.months), 0).Add(time.Duration(r.seconds) * time.Second) {
		if float64(at.Unix()) >= from {
			ticks = append(ticks, plot.Tick{Value: float64(at.Unix()), Label: at.Format(r.name)})
		}
	}
	return ticks
}

// Plot implements plot.Plotter: it draws the notes below the names.
func (r rhythm) Plot(c draw.Canvas, p *plot.Plot) {
	s, said := sheet.Remark, ""
	s.XAlign = draw.XCenter
	for _, tick := range r.Ticks(p.X.Min, p.X.Max) {
		if note := instant(tick.Value).Format(r.note); note != said {
			x := max(look.Margin+s.Width(note)/2, c.X(p.X.Norm(tick.Value)))
			c.FillText(s, vg.Point{X: x, Y: c.Min.Y - 26}, note)
			said = note
		}
	}
}

func instant(second float64) time.Time { return time.Unix(int64(second), 0).UTC() }

// The waits that an axis can name, and those that are enough on a long one.
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

// waitAxis is an axis of nanoseconds, by its length.
type waitAxis vg.Length

// Ticks implements plot.Ticker: the round waits if there are enough, and of these as many as can be read.
func (a waitAxis) Ticks(from, to float64) (apart []plot.Tick) {
	ticks := named(roundWaits, from, to)
	if len(ticks) < 5 {
		ticks = named(allWaits, from, to)
	}
	free := math.Inf(-1)
	for _, tick := range ticks {
		at := float64(a) * math.Log(tick.Value/from) / math.Log(to/from)
		if half := sheet.Label.Width(tick.Label).Points() / 2; at-half >= free {
			apart, free = append(apart, tick), at+half+6
		}
	}
	return apart
}

// named are those of some waits that are between two.
func named(waits string, from, to float64) (ticks []plot.Tick) {
	for _, name := range strings.Split(waits, ", ") {
		var n float64
		var unit string
		_, _ = fmt.Sscan(name, &n, &unit)
		if at := n * float64(waitUnits[unit]); at >= from && at <= to {
			ticks = append(ticks, plot.Tick{Value: at, Label: name})
		}
	}
	return ticks
}

// A countScale is an axis of numbers from 0. One of roots shows low numbers too where a few are very high.
type countScale struct{ roots bool }

// scaleOf takes the roots if the highest of some counts would leave half of those that are not 0 no more than a twentieth of
// the height.
func scaleOf(counts []int) countScale {
	counts = slices.DeleteFunc(slices.Clone(counts), func(n int) bool { return n == 0 })
	slices.Sort(counts)
	return countScale{counts[len(counts)-1] > 20*counts[len(counts)/2]}
}

// A countAxis has a scale, and the number at its upper end.
type countAxis struct {
	scale countScale
	top   float64
}

// newCountAxis leaves room for the name of the highest of some counts, in a panel as high as this.
func newCountAxis(counts []int, high vg.Length) countAxis {
	const name = 14
	a := countAxis{scale: scaleOf(counts), top: float64(slices.Max(counts))}
	part := 1 - name/(high.Points()-20) // without the lower axis
	if a.top /= part; a.scale.roots {
		a.top /= part
	}
	return a
}

// String says what is not usual about the scale.
func (s countScale) String() string {
	if s.roots {
		return "square-root scale"
	}
	return ""
}

// Normalize implements plot.Normalizer.
func (s countScale) Normalize(_, top, n float64) float64 {
	if s.roots {
		return math.Copysign(math.Sqrt(math.Abs(n)/top), n)
	}
	return n / top
}

// Ticks implements plot.Ticker: 0, and the multiples of a round number, or on a scale of roots some round numbers.
func (s countScale) Ticks(_, top float64) (ticks []plot.Tick) {
	numbers := roundNumbers(top)
	if !s.roots {
		step := numbers[slices.IndexFunc(numbers, func(n float64) bool { return n >= top/5 })]
		numbers = []float64{step, 2 * step, 3 * step, 4 * step, 5 * step}
	}
	last := math.Inf(-1)
	for _, n := range append([]float64{0}, numbers...) {
		if height := s.Normalize(0, top, n); n <= top && height-last > 0.15 {
			ticks, last = append(ticks, plot.Tick{Value: n, Label: thousands(int(n))}), height
		}
	}
	return ticks
}

// roundNumbers are 1, 2, 5, 10, 20, 50 and so on, and at least one of them is not below a fifth of the highest.
func roundNumbers(highest float64) (all []float64) {
	for ten := 1.0; ten <= highest; ten *= 10 {
		all = append(all, ten, 2*ten, 5*ten)
	}
	return all
}

// thousands writes a number with commas.
func thousands(n int) string { return message.NewPrinter(language.English).Sprint(n) }
