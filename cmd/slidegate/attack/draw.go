package main

import (
	"fmt"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
)

var (
	blue      = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	vermilion = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
)

// The measures of the picture, in points.
const (
	pageWidth   = 750
	panelHeight = 190
	margin      = 15
	top         = 56 // for the title and the legend
	headingRoom = 35
	panels      = 3
)

// picture draws what the attackers of the first scenarios tried, each by itself.
func picture(w io.Writer, weeks []week) error {
	svg, page := sheet.New(pageWidth, top+headingRoom+panelHeight+2*margin, margin)
	page.FillText(sheet.Title, vg.Point{X: page.Min.X, Y: page.Max.Y - 12}, "Passwords tried in an hour, over a week")
	drawLegend(draw.Crop(page, 0, 0, 0, -22))
	tiles := draw.Tiles{Rows: 1, Cols: panels, PadX: 14}
	below := draw.Crop(page, 0, 0, 0, -top-headingRoom)
	for i, k := range weeks[1 : 1+panels] {
		k.draw(tiles.At(below, i, 0))
	}
	return sheet.Write(w, svg)
}

func drawLegend(c draw.Canvas) {
	l := plot.NewLegend()
	l.TextStyle, l.ThumbnailWidth, l.Padding, l.Top, l.Left = sheet.Label, 19, 7, true, true
	l.Add(" without the guard", curve(nil, vermilion))
	l.Add(" with the guard", curve(nil, blue))
	l.Draw(c)
}

// draw draws a panel below its headings.
func (k week) draw(c draw.Canvas) {
	mean := func(w *world) string { return number(float64(w.gains().total) / float64(hours)) }
	c.FillText(sheet.Heading, vg.Point{X: c.Min.X, Y: c.Max.Y + 22}, k.name)
	c.FillText(sheet.Remark, vg.Point{X: c.Min.X, Y: c.Max.Y + 8}, fmt.Sprintf("mean: %s without, %s with", mean(k.without), mean(k.with)))
	p := plot.New()
	axis, grid := draw.LineStyle{Color: sheet.Faint, Width: 0.8}, draw.LineStyle{Color: sheet.Rule, Width: 0.6}
	p.Add(&plotter.Grid{Vertical: grid, Horizontal: grid}, curve(k.without.steps(), vermilion), curve(k.with.steps(), blue))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max, p.Y.Scale = 0, float64(hours), none, 1e6, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = days(), powers()
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle, a.Tick.LineStyle, a.Tick.Length, a.Padding = axis, axis, 3, 0
		a.Tick.Label.Font, a.Tick.Label.Color = sheet.Label.Font, sheet.Ink
	}
	p.Draw(c)
}

// none is where no password at all is drawn.
const none = 0.3

// steps outline the passwords tried in each hour.
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

func curve(points plotter.XYs, c color.Color) *plotter.Line {
	return &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: c, Width: 1.2}}
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
