package main

import (
	"fmt"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidegate/slidegate/cmd/slidegate/charts"
)

// chart shows how many passwords the attackers of the first scenarios tried.
type chart []week

// draw writes the chart, with one panel per scenario.
func (weeks chart) draw(w io.Writer, f charts.Format) error {
	const panels, headingRoom, panelHeight = 3, 40, 190
	legend := charts.Legend{
		{Name: "without the guard", Sample: charts.Line(charts.Vermilion, nil)},
		{Name: "with the guard", Sample: charts.Line(charts.Blue, nil)},
	}
	page := charts.NewPage(f, "Passwords tried in an hour, over a week", legend, headingRoom+panelHeight)
	tiles := draw.Tiles{Rows: 1, Cols: panels, PadX: 14, PadTop: headingRoom}
	for i, k := range weeks[1 : 1+panels] {
		k.draw(tiles.At(page.Canvas, i, 0))
	}
	return page.Write(w)
}

// draw draws a panel and its headings.
func (k week) draw(c draw.Canvas) {
	mean := func(w *world) string { return number(float64(w.gains().total) / float64(hours)) }
	c.FillText(charts.Heading, vg.Point{X: c.Min.X, Y: c.Max.Y + 24}, k.name)
	c.FillText(charts.Remark, vg.Point{X: c.Min.X, Y: c.Max.Y + 10}, fmt.Sprintf("mean: %s without, %s with", mean(k.without), mean(k.with)))
	p := charts.NewPlot()
	p.Add(charts.Grid, k.without.curve(charts.Vermilion), k.with.curve(charts.Blue))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max, p.Y.Scale = 0, float64(hours), none, 1e6, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = days(), powers()
	p.Draw(c)
}

// none is the height at which zero passwords are drawn.
const none = 0.3

// curve returns the number of passwords tried in each hour.
func (w *world) curve(c charts.Colour) *plotter.Line {
	line := charts.Line(c, nil)
	line.StepStyle = plotter.PostStep
	for hour := range hours + 1 {
		line.XYs = append(line.XYs, plotter.XY{X: float64(hour), Y: max(none, float64(w.triedIn(min(hour, hours-1))))})
	}
	return line
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
