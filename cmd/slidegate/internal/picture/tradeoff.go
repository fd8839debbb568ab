package picture

import (
	"cmp"
	"io"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidegate/slidegate/internal/look"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
)

// Tradeoff compares the attacks that sets of limits stop to the honest attempts that they delay.
type Tradeoff struct {
	Title    string
	Honest   string // the name of the honest attempts, for a heading
	MayDelay float64
	Reach    float64 // the end of the axis of delays
	Tried    []Tried
	Proposed []Tried
}

// Tried is one set of limits.
type Tried struct {
	Name    string // such as "1/5s, 5/1h"
	Limits  int    // the number of limits
	Stopped int    // attempts
	Delayed float64
}

// DrawTradeoff writes the picture. For up to one, two and three limits, it draws the most attempts
// that a set stops over the share of honest attempts that it delays.
func DrawTradeoff(w io.Writer, f sheet.Format, t Tradeoff) error {
	page, c := sheet.New(f, t.Title, t.legend(), headingRoom+1.5*panelRoom)
	panel := draw.Crop(c, 0, 0, 0, -headingRoom)
	t.panel().Draw(panel)
	heading{"Attempts stopped by one, two and three limits", "by the share of " + t.Honest + " that they delay"}.draw(panel, c.Min.X)
	return sheet.Write(w, page)
}

// These are the styles of sets of one, two and three limits, and of the share of delays that was
// asked for.
var (
	byLimits       = []plotter.Line{frontierIn(look.Vermilion), frontierIn(look.Green), frontierIn(look.Blue)}
	requestedShare = plotter.Line{LineStyle: draw.LineStyle{Color: look.Faint, Width: 1, Dashes: []vg.Length{3, 3}}}
)

func frontierIn(c look.Colour) plotter.Line {
	return plotter.Line{LineStyle: draw.LineStyle{Color: c, Width: 1.5}}
}

func (t Tradeoff) legend() (l sheet.Legend) {
	for i, name := range []string{"one limit", "up to two limits", "up to three limits"} {
		l = append(l, sheet.Entry{Name: name, Sample: &byLimits[i]})
	}
	l = append(l, sheet.Entry{Name: "the share of delays that was asked for", Sample: &requestedShare})
	for _, p := range t.Proposed {
		l = append(l, sheet.Entry{Name: p.Name + " (" + thousands(p.Stopped) + " stopped)", Sample: dot(p.Limits)})
	}
	return l
}

// dot returns the dots of proposals with a number of limits, in the colour of their curve.
func dot(limits int, at ...plotter.XY) *plotter.Scatter {
	style := draw.GlyphStyle{Color: byLimits[limits-1].Color, Radius: 4, Shape: draw.CircleGlyph{}}
	return &plotter.Scatter{XYs: at, GlyphStyle: style}
}

func (t Tradeoff) panel() *plot.Plot {
	counts := []int{1}
	for _, p := range t.Tried {
		counts = append(counts, p.Stopped)
	}
	top := countAxis{top: 1.05 * float64(slices.Max(counts))}
	var drawn []plot.Plotter
	for limits := 3; limits >= 1; limits-- {
		curve := byLimits[limits-1]
		curve.XYs = t.frontier(limits)
		drawn = append(drawn, &curve)
	}
	bound := requestedShare
	bound.XYs = plotter.XYs{{X: t.MayDelay}, {X: t.MayDelay, Y: top.top}}
	drawn = append(drawn, &bound)
	for _, p := range t.Proposed {
		drawn = append(drawn, dot(p.Limits, plotter.XY{X: p.Delayed, Y: float64(p.Stopped)}))
	}
	return newPanel(0, t.Reach, plot.TickerFunc(shareTicks), top, drawn...)
}

// frontier returns the outline of the most attempts that up to a number of limits stop, over the
// share that they delay.
func (t Tradeoff) frontier(limits int) (outline plotter.XYs) {
	sets := slices.DeleteFunc(slices.Clone(t.Tried), func(p Tried) bool { return p.Limits > limits || p.Delayed > t.Reach })
	slices.SortFunc(sets, func(a, b Tried) int { return cmp.Or(cmp.Compare(a.Delayed, b.Delayed), b.Stopped-a.Stopped) })
	most := 0.0
	for _, p := range sets {
		if stopped := float64(p.Stopped); stopped > most {
			outline = append(outline, plotter.XY{X: p.Delayed, Y: most}, plotter.XY{X: p.Delayed, Y: stopped})
			most = stopped
		}
	}
	return append(outline, plotter.XY{X: t.Reach, Y: most})
}

// shareTicks returns the ticks of an axis of shares.
func shareTicks(from, to float64) (ticks []plot.Tick) {
	const parts = 6
	for i := range parts + 1 {
		share := from + (to-from)*float64(i)/parts
		ticks = append(ticks, plot.Tick{Value: share, Label: strconv.FormatFloat(100*share, 'g', 3, 64) + " %"})
	}
	return ticks
}
