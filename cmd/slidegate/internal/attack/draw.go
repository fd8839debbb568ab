package attack

import (
	"fmt"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidegate/slidegate/internal/look"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
)

// The lines of a form without the guard, and of one with it.
var (
	without = plotter.Line{LineStyle: draw.LineStyle{Color: look.Vermilion, Width: 1.5}}
	with    = plotter.Line{LineStyle: draw.LineStyle{Color: look.Blue, Width: 1.5}}
)

// picture draws the passwords that the attackers of the first scenarios tried, one panel per
// scenario.
func picture(w io.Writer, weeks []week) error {
	const panels, headingRoom, panelHeight = 3, 40, 190
	legend := sheet.Legend{{Name: "without the guard", Sample: &without}, {Name: "with the guard", Sample: &with}}
	page, c := sheet.New(sheet.SVG, "Passwords tried in an hour, over a week", legend, headingRoom+panelHeight)
	tiles := draw.Tiles{Rows: 1, Cols: panels, PadX: 14, PadTop: headingRoom}
	for i, k := range weeks[1 : 1+panels] {
		k.draw(tiles.At(c, i, 0))
	}
	return sheet.Write(w, page)
}

// draw draws a panel below its headings.
func (k week) draw(c draw.Canvas) {
	mean := func(w *world) string { return number(float64(w.gains().total) / float64(hours)) }
	c.FillText(sheet.Heading, vg.Point{X: c.Min.X, Y: c.Max.Y + 24}, k.name)
	c.FillText(sheet.Remark, vg.Point{X: c.Min.X, Y: c.Max.Y + 10}, fmt.Sprintf("mean: %s without, %s with", mean(k.without), mean(k.with)))
	p := plot.New()
	p.Add(&plotter.Grid{Vertical: sheet.Grid, Horizontal: sheet.Grid}, curve(without, k.without), curve(with, k.with))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max, p.Y.Scale = 0, float64(hours), none, 1e6, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = days(), powers()
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle, a.Tick.LineStyle, a.Tick.Length, a.Padding = sheet.Axis, sheet.Axis, 3, 0
		a.Tick.Label.Font, a.Tick.Label.Color = sheet.Label.Font, sheet.Label.Color
	}
	p.Draw(c)
}

// none is the height at which no password at all is drawn.
const none = 0.3

// steps returns the outline of the passwords tried in each hour.
func (w *world) steps() (outline plotter.XYs) {
	for hour := range hours {
		n := 0
		for _, a := range w.attackers {
			n += a.tried[hour]
		}
		y := max(none, float64(n))
		outline = append(outline, plotter.XY{X: float64(hour), Y: y}, plotter.XY{X: float64(hour + 1), Y: y})
	}
	return outline
}

func curve(look plotter.Line, w *world) *plotter.Line {
	look.XYs = w.steps()
	return &look
}

func days() (ticks plot.ConstantTicks) {
	for day := range 8 {
		ticks = append(ticks, plot.Tick{Value: float64(24 * day), Label: fmt.Sprint(day)})
	}
	ticks[7].Label = "7 d"
	return ticks
}

func powers() plot.ConstantTicks {
	ticks := plot.ConstantTicks{{Value: none, Label: "0"}}
	for n := 1.0; n <= 1e6; n *= 10 {
		ticks = append(ticks, plot.Tick{Value: n, Label: number(n)})
	}
	return ticks
}
