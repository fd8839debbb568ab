package picture

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
)

// A panel is one of the two diagrams.
type panel struct {
	*plot.Plot
	heading string
	remark  string // after the heading
}

// newPanel has room from the left to the right end of its lower axis, and for the counts on the other.
func newPanel(left, right float64, ticks plot.Ticker, scale countScale, drawn ...plot.Plotter) *plot.Plot {
	p := plot.New()
	axis, grid := draw.LineStyle{Color: sheet.Faint, Width: 0.8}, draw.LineStyle{Color: sheet.Rule, Width: 0.6}
	p.X.Width, p.X.Padding = 0, -axis.Width/2
	p.X.Tick.LineStyle, p.X.Tick.Length, p.X.Tick.Marker = axis, 3, ticks
	p.X.Tick.Label.Font, p.X.Tick.Label.Color, p.X.Tick.Label.YAlign = sheet.Label.Font, sheet.Ink, -1.2
	p.Y.Width, p.Y.Padding = 0, 2
	p.Y.Tick.Length, p.Y.Tick.Marker, p.Y.Scale = 0, scale, scale
	p.Y.Tick.Label.Font, p.Y.Tick.Label.Color = sheet.Label.Font, sheet.Ink
	p.Add(&plotter.Grid{Vertical: grid, Horizontal: grid})
	p.Add(drawn...)
	p.Add(&plotter.Line{XYs: plotter.XYs{{X: left}, {X: right}}, LineStyle: axis}) // over the curves, unlike that of p.X
	p.X.Min, p.X.Max, p.Y.Min = left, right, 0
	return p
}

// emptyPanel says why there is nothing to draw.
func emptyPanel(why string) *plot.Plot {
	s := sheet.Remark
	s.XAlign, s.YAlign = draw.XCenter, draw.YCenter
	p := plot.New()
	p.HideAxes()
	p.Add(&plotter.Labels{XYs: plotter.XYs{{}}, Labels: []string{why}, TextStyle: []text.Style{s}})
	return p
}

func (p panel) draw(c draw.Canvas) {
	p.Draw(c)
	at := vg.Point{X: margin, Y: c.Max.Y + 14}
	c.FillText(sheet.Heading, at, p.heading)
	at.X += sheet.Heading.Width(p.heading) + 8
	c.FillText(sheet.Remark, at, p.remark)
}

// steps outline a count for each bin, which begins at its edge. Where there is nothing to count they go below the axis,
// which cuts them off.
func steps(counts []int, edge func(bin int) float64) (outline plotter.XYs) {
	last := 0
	for i, n := range append(counts, 0) {
		if n != last {
			outline = append(outline, plotter.XY{X: edge(i), Y: height(last)}, plotter.XY{X: edge(i), Y: height(n)})
		}
		last = n
	}
	return outline
}

func height(n int) float64 {
	if n == 0 {
		return -1
	}
	return float64(n)
}
