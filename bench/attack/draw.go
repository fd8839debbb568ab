package main

import (
	"fmt"
	"math"

	"github.com/slidegate/slidegate/cmd/slidegate/charts"
)

// chart shows how many passwords the attackers of the first scenarios tried.
type chart []week

// draw returns the chart, with one panel per scenario.
func (weeks chart) draw() string {
	const panels, headingRoom, panelHeight = 3, 40, 190
	page := charts.NewPage(charts.PageWidth, "Passwords tried in an hour, over a week", charts.Legend{
		{Name: "without the guard", Sample: charts.Curve{Colour: charts.Vermilion}},
		{Name: "with the guard", Sample: charts.Curve{Colour: charts.Blue}},
	}, headingRoom+panelHeight)
	for i, k := range weeks[1 : 1+panels] {
		k.draw(page.Inset(0, headingRoom, 0, 0).Column(i, panels, 14))
	}
	return page.SVG()
}

// draw draws a panel and its headings.
func (k week) draw(c charts.Canvas) {
	mean := func(w *world) string { return number(float64(w.gains().total) / float64(hours)) }
	c.Text(charts.Heading, c.Left, c.Top-24, k.name)
	c.Text(charts.Remark, c.Left, c.Top-10, fmt.Sprintf("mean: %s without, %s with", mean(k.without), mean(k.with)))
	charts.Plot{
		X:      charts.Axis{Max: float64(hours), Ticks: days()},
		Y:      charts.Axis{Min: none, Max: 1e6, Ticks: powers(), Scale: math.Log},
		Curves: []charts.Curve{k.without.curve(charts.Vermilion), k.with.curve(charts.Blue)},
	}.Draw(c)
}

// none is the height at which zero passwords are drawn.
const none = 0.3

// curve returns the number of passwords tried in each hour.
func (w *world) curve(c charts.Colour) charts.Curve {
	var points []charts.Point
	for hour := range hours {
		n := max(none, float64(w.triedIn(hour)))
		points = append(points, charts.Point{X: float64(hour), Y: n}, charts.Point{X: float64(hour + 1), Y: n})
	}
	return charts.Curve{Colour: c, Points: points}
}

func days() (ticks []charts.Tick) {
	for day := range 8 {
		ticks = append(ticks, charts.Tick{Value: float64(24 * day), Label: fmt.Sprint(day)})
	}
	ticks[7].Label = "7 d"
	return ticks
}

func powers() []charts.Tick {
	ticks := []charts.Tick{{Value: none, Label: "0"}}
	for n := 1.0; n <= 1e6; n *= 10 {
		ticks = append(ticks, charts.Tick{Value: n, Label: number(n)})
	}
	return ticks
}
