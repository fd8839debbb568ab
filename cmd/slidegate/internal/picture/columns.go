package picture

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
)

// column is a panel for each set, with a common heading and common scales.
type column struct {
	heading heading
	panels  []*plot.Plot
}

// times returns the panels of attempts over time, each of this size.
func (p Picture) times(wide, high vg.Length) (c column) {
	t := p.Timeline
	c.heading.name = "Attempts per " + binName(t.width)
	if t.bins() == 0 {
		return c.empty(p.Sets, func(Set) string { return "There are no attempts." })
	}
	f := p.timeFrame(wide, high)
	for i := range p.Sets {
		c.panels = append(c.panels, f.panel(area(attempted, t.attempts(), t.edge), area(admitted, t.admitted(i), t.edge), peakOf(t.attempts(), t.edge)))
	}
	c.panels[len(c.panels)-1].Add(f.ticks) // the dates
	c.heading.remark = remarks(sheet.Fit(sheet.Remark, p.Zone, 200), f.counts.scale)
	return c
}

// timeFrame holds the scales of all panels of attempts in a picture.
type timeFrame struct {
	from, to float64
	ticks    tickStep
	counts   countAxis
}

// timeFrame returns the scales of panels of this size. The timeline must have attempts.
func (p Picture) timeFrame(wide, high vg.Length) timeFrame {
	t := p.Timeline
	from, to := atLeast(20*float64(t.width), t.edge(0), t.edge(t.bins()))
	return timeFrame{from, to, newTickStep(from, to, p.Yearless, wide), newCountAxis(t.attempts(), high)}
}

func (f timeFrame) panel(drawn ...plot.Plotter) *plot.Plot {
	return newPanel(f.from, f.to, f.ticks, f.counts, drawn...)
}

// waits returns the panels of waits, each of this size.
func (p Picture) waits(wide, high vg.Length) (c column) {
	c.heading.name = "Waits of the denied"
	var together Waits
	for _, s := range p.Sets {
		together.Merge(s.Waits)
	}
	if together.Count() == 0 {
		return c.empty(p.Sets, Set.noWaits)
	}
	h := newHistogram(&together)
	var all []int
	for _, s := range p.Sets {
		all = append(all, h.counts(s.Waits)...)
	}
	counts := newCountAxis(all, high)
	for _, s := range p.Sets {
		n := h.counts(s.Waits)
		panel := newPanel(h.from, h.to, waitAxis(wide), counts, area(denied, n, h.edge), peakOf(n, h.edge))
		panel.X.Scale = plot.LogScale{}
		c.panels = append(c.panels, panel)
	}
	c.heading.remark = remarks(fmt.Sprintf("in steps of %.0f %%", 100*math.Exp2(h.octaves())-100), counts.scale)
	return c
}

// empty returns a column whose panels say why there is nothing to draw.
func (c column) empty(sets []Set, why func(Set) string) column {
	for _, s := range sets {
		c.panels = append(c.panels, emptyPanel(why(s)))
	}
	return c
}

// noWaits returns the reason why there are no waits.
func (s Set) noWaits() string {
	if s.Denied > 0 {
		return "No wait helps: they ask for more than a limit holds."
	}
	return "No attempt is denied."
}

// histogram draws waits. Each of its bins joins 2 or 4 bins of Waits.
type histogram struct {
	join, first, last int
	from, to          float64 // the ends of its axis
}

// newHistogram returns a histogram whose axis covers these waits.
func newHistogram(w *Waits) histogram {
	least := slices.IndexFunc(w.bins[:], func(n int) bool { return n > 0 })
	most := waitBin(w.Longest())
	h := histogram{join: 4}
	if most-least < 6*perOctave {
		h.join = 2
	}
	h.first, h.last = joinedBin(least, h.join), joinedBin(most, h.join)
	from, to := atLeast(4/h.octaves(), float64(h.first-2), float64(h.last+1))
	h.from, h.to = h.at(from), h.at(to)
	return h
}

// octaves returns the width of a bin in octaves.
func (h histogram) octaves() float64 { return float64(h.join) / perOctave }

// at returns the wait at the edge of a bin, in nanoseconds.
func (h histogram) at(bin float64) float64 { return float64(shortest) * math.Exp2(bin*h.octaves()) }

// edge returns the start of a bin, in nanoseconds. Bins are numbered from the first.
func (h histogram) edge(bin int) float64 { return h.at(float64(h.first + bin - 1)) }

func (h histogram) counts(w *Waits) []int { return w.joined(h.join, h.first, h.last) }

// area returns the area of the counts of bins.
func area(look plotter.Line, counts []int, edge func(bin int) float64) plot.Plotter {
	look.XYs = steps(counts, edge)
	return &look
}

// atLeast returns a range widened on both sides to at least a length.
func atLeast(length, from, to float64) (wideFrom, wideTo float64) {
	more := max(0, length-(to-from)) / 2
	return from - more, to + more
}

// remarks joins a remark and the remark on a scale.
func remarks(first string, scale countScale) string {
	return strings.Trim(first+", "+scale.String(), ", ")
}

// binName returns the width of a bin, in the largest unit that divides it.
func binName(width int64) string {
	type unit struct {
		seconds   int64
		one, many string
	}
	units := []unit{{7 * day, "week", "weeks"}, {day, "day", "days"}, {hour, "hour", "h"}, {minute, "minute", "min"}, {1, "second", "s"}}
	u := units[slices.IndexFunc(units, func(u unit) bool { return width%u.seconds == 0 })]
	if width == u.seconds {
		return u.one
	}
	return fmt.Sprintf("%d %s", width/u.seconds, u.many)
}
