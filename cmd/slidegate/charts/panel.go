package charts

import (
	"io"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Panel dimensions, in points.
const (
	headingRoom = 32  // above each panel
	notesRoom   = 12  // below the time axis
	panelRoom   = 165 // including its lower axis
)

// NewPlot returns an empty plot with the axis style of all charts.
func NewPlot() *plot.Plot {
	p := plot.New()
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle, a.Tick.LineStyle, a.Tick.Length, a.Padding = axis, axis, 3, 0
		a.Tick.Label.Font, a.Tick.Label.Color = Label.Font, Label.Color
		a.Label.TextStyle.Font, a.Label.TextStyle.Color = Label.Font, Faint
	}
	p.X.Tick.Label.YAlign, p.X.Label.Padding = -1.2, 4
	return p
}

// newPanel returns a plot whose horizontal axis runs from left to right, and whose vertical axis
// shows counts.
func newPanel(left, right float64, ticks plot.Ticker, counts countAxis, drawn ...plot.Plotter) *plot.Plot {
	p := NewPlot()
	p.X.Width, p.X.Padding, p.X.Tick.Marker = 0, -axis.Width/2, ticks
	p.Y.Width, p.Y.Padding, p.Y.Tick.Length, p.Y.Tick.Marker, p.Y.Scale = 0, 2, 0, counts, counts
	p.Add(Grid)
	p.Add(drawn...)
	p.Add(&plotter.Line{XYs: plotter.XYs{{X: left}, {X: right}}, LineStyle: axis}) // on top of the areas, unlike the line of p.X
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = left, right, 0, counts.top
	return p
}

// emptyPanel returns a plot that says why there is nothing to draw.
func emptyPanel(why string) *plot.Plot {
	s := Remark
	s.XAlign, s.YAlign = draw.XCenter, draw.YCenter
	p := plot.New()
	p.HideAxes()
	p.Add(&plotter.Labels{XYs: plotter.XYs{{}}, Labels: []string{why}, TextStyle: []text.Style{s}})
	return p
}

// column is a heading with a remark, above plots that share their scales.
type column struct {
	name, remark string
	panels       []*plot.Plot
}

// only returns a column with a single plot. It shortens the remark to fit the page.
func only(name, remark string, p *plot.Plot) column {
	return column{name, fit(Remark, remark, width-Heading.Width(name)-8), []*plot.Plot{p}}
}

// drawHeading draws a name and a remark above a panel.
func drawHeading(c draw.Canvas, left vg.Length, name, remark string) {
	at := vg.Point{X: left, Y: c.Max.Y + 8}
	c.FillText(Heading, at, name)
	at.X += Heading.Width(name) + 8
	c.FillText(Remark, at, remark)
}

// drawStack writes a chart that stacks columns of one panel each. Each panel has the given height
// and its own heading above it.
func drawStack(w io.Writer, f Format, title string, l Legend, room vg.Length, stack ...column) error {
	page := NewPage(f, title, l, vg.Length(len(stack))*(headingRoom+room+notesRoom)-notesRoom)
	var panels []*plot.Plot
	for _, s := range stack {
		panels = append(panels, s.panels...)
	}
	for i, place := range drawAligned(panels, draw.Crop(page.Canvas, 0, 0, 0, -headingRoom), headingRoom+notesRoom) {
		drawHeading(place, page.Min.X, stack[i].name, stack[i].remark)
	}
	return page.Write(w)
}

// drawAligned stacks panels with the given gap between them and aligns their sides. It returns
// their canvases.
func drawAligned(panels []*plot.Plot, c draw.Canvas, gap vg.Length) (places []draw.Canvas) {
	var rows [][]*plot.Plot
	for _, panel := range panels {
		rows = append(rows, []*plot.Plot{panel})
	}
	for i, row := range plot.Align(rows, draw.Tiles{Rows: len(rows), Cols: 1, PadY: gap}, c) {
		panels[i].Draw(row[0])
		places = append(places, row[0])
	}
	return places
}

// peak is the count of the highest bin. It is written above that bin.
type peak struct {
	count int
	at    float64 // the middle of the bin
}

// peakOf returns the peak of counts. If several bins are equally high, the first is used. All bins
// may be empty.
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
	s, label := Label, Thousands(k.count)
	s.XAlign = draw.XCenter
	room := s.Width(label) / 2
	x := max(c.Min.X+room, min(c.Max.X-room, c.X(p.X.Norm(k.at))))
	c.FillText(s, vg.Point{X: x, Y: c.Y(p.Y.Norm(float64(k.count))) + 2.5}, label)
}

// area returns the given counts as an area.
func area(c Colour, counts []int, edge func(bin int) float64) *plotter.Line {
	a, last := filled(c), 0
	for i, n := range append(counts, 0) {
		if n != last {
			a.XYs = append(a.XYs, plotter.XY{X: edge(i), Y: float64(n)})
		}
		last = n
	}
	return a
}

// filled returns an empty area for a step plot.
func filled(c Colour) *plotter.Line {
	return &plotter.Line{FillColor: c, StepStyle: plotter.PostStep}
}
