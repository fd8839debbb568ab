package picture

import (
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
)

// heading is the text above a panel.
type heading struct {
	name   string
	remark string // after the name
}

func (h heading) draw(panel draw.Canvas, left vg.Length) {
	at := vg.Point{X: left, Y: panel.Max.Y + 8}
	panel.FillText(sheet.Heading, at, h.name)
	at.X += sheet.Heading.Width(h.name) + 8
	panel.FillText(sheet.Remark, at, h.remark)
}

// newPanel returns a panel from the left to the right end of its lower axis, with counts on the
// other axis.
func newPanel(left, right float64, ticks plot.Ticker, counts countAxis, drawn ...plot.Plotter) *plot.Plot {
	p := plot.New()
	p.X.Width, p.X.Padding = 0, -sheet.Axis.Width/2
	p.X.Tick.LineStyle, p.X.Tick.Length, p.X.Tick.Marker = sheet.Axis, 3, ticks
	p.X.Tick.Label.Font, p.X.Tick.Label.Color, p.X.Tick.Label.YAlign = sheet.Label.Font, sheet.Label.Color, -1.2
	p.Y.Width, p.Y.Padding = 0, 2
	p.Y.Tick.Length, p.Y.Tick.Marker, p.Y.Scale = 0, counts.scale, counts.scale
	p.Y.Tick.Label.Font, p.Y.Tick.Label.Color = sheet.Label.Font, sheet.Label.Color
	p.Add(&plotter.Grid{Vertical: sheet.Grid, Horizontal: sheet.Grid})
	p.Add(drawn...)
	p.Add(&plotter.Line{XYs: plotter.XYs{{X: left}, {X: right}}, LineStyle: sheet.Axis}) // over the areas, unlike that of p.X
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = left, right, 0, counts.top
	return p
}

// emptyPanel returns a panel that says why there is nothing to draw.
func emptyPanel(why string) *plot.Plot {
	s := sheet.Remark
	s.XAlign, s.YAlign = draw.XCenter, draw.YCenter
	p := plot.New()
	p.HideAxes()
	p.Add(&plotter.Labels{XYs: plotter.XYs{{}}, Labels: []string{why}, TextStyle: []text.Style{s}})
	return p
}

// peak is the count of the highest bin, written above it.
type peak struct {
	count int
	at    float64 // the middle of the bin
}

// peakOf returns the peak at the first of the highest bins. All bins may be empty.
func peakOf(counts []int, edge func(bin int) float64) plot.Plotter {
	highest := slices.Max(counts)
	bin := slices.Index(counts, highest)
	return peak{highest, (edge(bin) + edge(bin+1)) / 2}
}

// Plot draws the count. It implements plot.Plotter.
func (k peak) Plot(c draw.Canvas, p *plot.Plot) {
	if k.count == 0 {
		return
	}
	s, label := sheet.Label, thousands(k.count)
	s.XAlign = draw.XCenter
	room := s.Width(label) / 2
	x := max(c.Min.X+room, min(c.Max.X-room, c.X(p.X.Norm(k.at))))
	c.FillText(s, vg.Point{X: x, Y: c.Y(p.Y.Norm(float64(k.count))) + 2.5}, label)
}

// steps returns the outline of the counts of bins. At empty bins it goes below the axis, which cuts
// it off.
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
