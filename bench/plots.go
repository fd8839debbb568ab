package main

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Colours from Okabe and Ito, which people with any sight can distinguish.
var colours = []color.Color{
	color.RGBA{R: 0, G: 114, B: 178, A: 255},
	color.RGBA{R: 213, G: 94, B: 0, A: 255},
	color.RGBA{R: 0, G: 158, B: 115, A: 255},
	color.RGBA{R: 204, G: 121, B: 167, A: 255},
	color.RGBA{R: 86, G: 180, B: 233, A: 255},
	color.RGBA{R: 100, G: 100, B: 100, A: 255},
}

// draw saves the pictures.
func (r result) draw(dir string) error {
	plot.DefaultFont.Variant = "Sans"
	servers, err := r.drawServer()
	if err != nil {
		return err
	}
	pictures := map[string]struct {
		plot   *plot.Plot
		height vg.Length
	}{
		"bench-server.svg":  {servers, vg.Length(len(servers.Y.Tick.Marker.Ticks(0, 0)))*5*vg.Millimeter + 2*vg.Centimeter},
		"bench-callers.svg": {r.drawCallers(), 9 * vg.Centimeter},
		"bench-limits.svg":  {r.drawGrowth("limits of 4 buckets each", "limits"), 7 * vg.Centimeter},
		"bench-buckets.svg": {r.drawGrowth("buckets of one limit", "buckets, allowed", "buckets, denied"), 7 * vg.Centimeter},
	}
	for name, picture := range pictures {
		if err := picture.plot.Save(18*vg.Centimeter, picture.height, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// plain reports whether a row is neither of growth nor a special case of another.
func (r row) plain() bool {
	special := func(end string) bool { return strings.HasSuffix(r.Name, end) }
	return r.Grows == "" && !slices.ContainsFunc([]string{", new", ", wide", "denied"}, special)
}

// drawServer draws a bar for each way to allow an event.
func (r result) drawServer() (*plot.Plot, error) {
	rows := slices.DeleteFunc(slices.Clone(r.Rows), func(r row) bool { return !r.plain() })
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(b.Ratio, a.Ratio) })
	p := newPlot("An allowed event: time in the server, over that of redis_rate", "")
	names := make([]string, len(rows))
	for i, row := range rows {
		bar, err := plotter.NewBarChart(plotter.Values{row.Ratio}, 3*vg.Millimeter)
		if err != nil {
			return nil, err
		}
		bar.Horizontal, bar.XMin, bar.Color, bar.LineStyle.Width = true, float64(i), row.color(), 0
		names[i] = fmt.Sprintf("%s: %.2f", row.Name, row.Ratio)
		p.Add(bar)
	}
	p.NominalY(names...)
	p.X.Max *= 1.05
	return p, nil
}

// color distinguishes this library, others and floors.
func (r row) color() color.Color {
	switch {
	case strings.HasPrefix(r.Name, "window"), strings.HasPrefix(r.Name, "ar1"):
		return colours[0]
	case strings.HasPrefix(r.Name, "floor"), r.Name == constant:
		return colours[5]
	default:
		return colours[1]
	}
}

// drawCallers draws a line for some contenders: decisions a second, by callers.
func (r result) drawCallers() *plot.Plot {
	p := newPlot("Decisions a second, by callers at a time", "callers")
	p.X.Tick.Marker = powers(r.Throughput.Callers...)
	for i, name := range []string{constant, "window", rate, "window, 3 limits", "window.lua", "redis_rate, 3 limits"} {
		var points plotter.XYs
		for _, row := range r.Throughput.Rows {
			if row.Name == name {
				points = append(points, plotter.XY{X: math.Log2(float64(row.Callers)), Y: row.Medians[decisions]})
			}
		}
		if len(points) > 0 {
			addLine(p, name, points, colours[i])
		}
	}
	return p
}

// drawGrowth draws a line for each series of rows.
func (r result) drawGrowth(what string, names ...string) *plot.Plot {
	p := newPlot("Time in the server, over that of redis_rate", what)
	for i, name := range names {
		var points plotter.XYs
		for _, row := range r.Rows {
			if row.Grows == name {
				points = append(points, plotter.XY{X: float64(row.Size), Y: row.Ratio})
			}
		}
		if len(points) > 0 {
			addLine(p, name, points, colours[i])
		}
	}
	return p
}

// powers returns marks for numbers on an axis of their logarithms.
func powers(numbers ...int) (ticks plot.ConstantTicks) {
	for _, n := range numbers {
		ticks = append(ticks, plot.Tick{Value: math.Log2(float64(n)), Label: fmt.Sprint(n)})
	}
	return ticks
}

// newPlot returns an empty plot with a grid, from 0 on.
func newPlot(title, x string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = title, x
	p.X.Min, p.Y.Min = 0, 0
	p.Title.Padding, p.Legend.Padding, p.Legend.Top, p.Legend.Left = 3*vg.Millimeter, vg.Millimeter, true, true
	p.Add(plotter.NewGrid())
	return p
}

// addLine adds a line with a dot at each value, and its name.
func addLine(p *plot.Plot, name string, points plotter.XYs, c color.Color) {
	line := &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: c, Width: 1.5}}
	dots := &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: c, Radius: 2.5, Shape: draw.CircleGlyph{}}}
	p.Add(line, dots)
	p.Legend.Add(name, line, dots)
}
