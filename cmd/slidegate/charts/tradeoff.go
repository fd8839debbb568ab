package charts

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"
)

// Tradeoff compares how many attack attempts sets of limits stop with how many honest attempts they
// delay.
type Tradeoff struct {
	Title    string
	MayDelay float64
	Reach    float64 // the end of the axis of delays
	Tried    []Tried
	Proposed []Tried
}

// Tried represents one set of limits that was tried.
type Tried struct {
	Name    string // such as "1/5s, 5/1h"
	Limits  int    // the number of limits
	Stopped int    // attempts
	Delayed float64
}

// byLimits lists the colours for sets of one, two and three limits.
var byLimits = []Colour{Vermilion, Green, Blue}

// Draw writes the chart. For sets of up to one, two and three limits, it plots the maximum number
// of attack attempts stopped against the share of honest attempts delayed.
func (t Tradeoff) Draw(w io.Writer, f Format) error {
	var legend Legend
	for i, name := range []string{"one limit", "up to two limits", "up to three limits"} {
		legend = append(legend, Entry{name, Line(byLimits[i], nil)})
	}
	legend = append(legend, Entry{"the share of delays that was asked for", Line(Faint, nil, 3, 3)})
	for _, p := range t.Proposed {
		legend = append(legend, Entry{p.Name + " (" + Thousands(p.Stopped) + " stopped)", p.dot()})
	}
	panel := only("Attempts stopped by one, two and three limits", "by the share of honest attempts that they delay", t.panel())
	return drawStack(w, f, t.Title, legend, 1.5*panelRoom, panel)
}

// dot returns the dot for a proposed set, in the colour of its curve.
func (t Tried) dot() *plotter.Scatter {
	style := draw.GlyphStyle{Color: byLimits[t.Limits-1], Radius: 4, Shape: draw.CircleGlyph{}}
	return &plotter.Scatter{XYs: plotter.XYs{{X: t.Delayed, Y: float64(t.Stopped)}}, GlyphStyle: style}
}

func (t Tradeoff) panel() *plot.Plot {
	most := 1
	for _, p := range t.Tried {
		most = max(most, p.Stopped)
	}
	top := 1.05 * float64(most)
	var drawn []plot.Plotter
	for limits := 3; limits >= 1; limits-- {
		drawn = append(drawn, t.frontier(limits))
	}
	drawn = append(drawn, Line(Faint, plotter.XYs{{X: t.MayDelay}, {X: t.MayDelay, Y: top}}, 3, 3))
	for _, p := range t.Proposed {
		drawn = append(drawn, p.dot())
	}
	shares := multiples(roundStep(t.Reach, 8), t.Reach, func(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) })
	return newPanel(0, t.Reach, shares, countAxis{top: top}, drawn...)
}

// frontier returns the curve for sets of at most the given number of limits: the maximum number of
// attempts that such a set stops, against the share that it delays.
func (t Tradeoff) frontier(limits int) *plotter.Line {
	sets := slices.DeleteFunc(slices.Clone(t.Tried), func(p Tried) bool { return p.Limits > limits || p.Delayed > t.Reach })
	slices.SortFunc(sets, func(a, b Tried) int { return cmp.Or(cmp.Compare(a.Delayed, b.Delayed), b.Stopped-a.Stopped) })
	curve, most := Line(byLimits[limits-1], plotter.XYs{{}}), 0
	curve.StepStyle = plotter.PostStep
	for _, p := range sets {
		if p.Stopped > most {
			most = p.Stopped
			curve.XYs = append(curve.XYs, plotter.XY{X: p.Delayed, Y: float64(most)})
		}
	}
	curve.XYs = append(curve.XYs, plotter.XY{X: t.Reach, Y: float64(most)})
	return curve
}
