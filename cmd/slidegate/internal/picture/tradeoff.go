package picture

import (
	"cmp"
	"image/color"
	"io"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
)

// A Tradeoff is what sets of limits stop, and whom they delay.
type Tradeoff struct {
	Title    string
	Honest   string // what the honest attempts are, for a heading
	MayDelay float64
	Reach    float64 // how far the axis of delays goes
	Tried    []Tried
	Proposed []Tried
}

// Tried is one set of limits.
type Tried struct {
	Name    string // such as "1/5s, 5/1h"
	Limits  int    // how many
	Stopped int    // attempts
	Delayed float64
}

// DrawTradeoff writes the picture as an SVG: for up to one, two and three limits, the most attempts that a set stops, by the share of honest
// attempts that it delays.
func DrawTradeoff(w io.Writer, t Tradeoff) error {
	top := vg.Length(titleRoom + legendLine*(1+len(t.Proposed)))
	svg, page := sheet.New(pageWidth, top+headingRoom+1.5*panelRoom+2*margin, margin)
	page.FillText(sheet.Title, vg.Point{X: page.Min.X, Y: page.Max.Y - 12}, sheet.Fit(sheet.Title, t.Title, pageWidth-2*margin))
	t.drawLegend(draw.Crop(page, 0, 0, 0, -titleRoom))
	t.panel().draw(draw.Crop(page, 0, 0, 0, -top-headingRoom))
	return sheet.Write(w, svg)
}

func (t Tradeoff) drawLegend(c draw.Canvas) {
	l := plot.NewLegend()
	l.TextStyle, l.ThumbnailWidth, l.Padding, l.Top, l.Left = sheet.Label, 19, 7, true, true
	for _, p := range t.Proposed {
		l.Add(sheet.Fit(sheet.Label, p.Name, 500)+" ("+thousands(p.Stopped)+" stopped)", &plotter.Scatter{GlyphStyle: glyph(p.Limits)})
	}
	l.Add("the share of delays that was asked for", &plotter.Line{LineStyle: asked})
	l.Draw(c)
}

var asked = draw.LineStyle{Color: color.Gray{0x66}, Width: 1, Dashes: []vg.Length{3, 3}}

// glyph is the dot of a proposal with so many limits, in the colour of its curve.
func glyph(limits int) draw.GlyphStyle {
	return draw.GlyphStyle{Color: colours[limits-1], Radius: 4, Shape: draw.CircleGlyph{}}
}

func (t Tradeoff) panel() panel {
	counts := []int{1}
	for _, p := range t.Tried {
		counts = append(counts, p.Stopped)
	}
	var drawn []plot.Plotter
	for limits := 3; limits >= 1; limits-- {
		drawn = append(drawn, &plotter.Line{XYs: t.frontier(limits), LineStyle: draw.LineStyle{Color: colours[limits-1], Width: 1.2}})
	}
	most := float64(slices.Max(counts))
	drawn = append(drawn, &plotter.Line{XYs: plotter.XYs{{X: t.MayDelay}, {X: t.MayDelay, Y: most}}, LineStyle: asked})
	for _, p := range t.Proposed {
		drawn = append(drawn, &plotter.Scatter{XYs: plotter.XYs{{X: p.Delayed, Y: float64(p.Stopped)}}, GlyphStyle: glyph(p.Limits)})
	}
	diagram := newPanel(0, t.Reach, plot.TickerFunc(shareTicks), countScale{}, drawn...)
	diagram.Y.Max = 1.05 * most
	return panel{diagram, "Attempts stopped by one, two and three limits", "by the share of " + t.Honest + " that they delay"}
}

// frontier outlines the most that up to so many limits stop, by how much they delay.
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

// shareTicks are for an axis of shares.
func shareTicks(from, to float64) (ticks []plot.Tick) {
	const parts = 6
	for i := range parts + 1 {
		share := from + (to-from)*float64(i)/parts
		ticks = append(ticks, plot.Tick{Value: share, Label: strconv.FormatFloat(100*share, 'g', 3, 64) + " %"})
	}
	return ticks
}
