package main

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"slices"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/slidegate/slidegate/internal/look"
)

// The size, margins and fonts of pictures, like those of the command.

var (
	grid = draw.LineStyle{Color: look.Rule, Width: 0.6}
	axis = draw.LineStyle{Color: look.Faint, Width: 0.8}
	ink  = letters(look.LabelSize, false, look.Ink)
)

func letters(size float64, bold bool, c color.Color) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Length(size)}
	if bold {
		f.Weight = xfont.WeightBold
	}
	return text.Style{Color: c, Font: f, Handler: plot.DefaultTextHandler}
}

// entry is a name in a legend, and a sample of its line or bar.
type entry struct {
	name   string
	sample plot.Thumbnailer
}

// picture draws a diagram of this height, below its title and its legend. The whole legend is on
// one line.
func picture(title string, legend []entry, height vg.Length, p *plot.Plot) []byte {
	const head, sample = 44, 28
	svg := vgsvg.New(look.PageWidth, height+head+2*look.Margin)
	c := draw.New(svg)
	c.SetColor(look.Paper)
	c.Fill(c.Path())
	c = draw.Crop(c, look.Margin, -look.Margin, look.Margin, -look.Margin)
	c.FillText(letters(look.TitleSize, true, look.Ink), vg.Point{X: c.Min.X, Y: c.Max.Y - 12}, title)
	at := vg.Length(0)
	for _, e := range legend {
		l := plot.NewLegend()
		l.TextStyle, l.ThumbnailWidth, l.Top, l.Left = ink, sample, true, true
		l.Add(e.name, shortened{e.sample})
		l.Draw(draw.Crop(c, at, 0, 0, -24))
		at += sample + ink.Width(" "+e.name) + 16
	}
	p.Draw(draw.Crop(c, 0, 0, 0, -head))
	var b bytes.Buffer
	_, _ = svg.WriteTo(&b) // to memory
	return look.Finish(b.Bytes(), func(t string, size float64, bold bool) float64 {
		return letters(size, bold, look.Ink).Width(t).Points()
	})
}

// newPlot returns an empty diagram with a grid, from 0 on. The vertical lines of the grid may be of
// another kind.
func newPlot(across draw.LineStyle) *plot.Plot {
	p := plot.New()
	p.X.Min, p.Y.Min = 0, 0
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle, a.Tick.LineStyle, a.Tick.Length, a.Padding = axis, axis, 3, 0
		a.Tick.Label.Font, a.Tick.Label.Color = ink.Font, ink.Color
		a.Label.TextStyle.Font, a.Label.TextStyle.Color = ink.Font, look.Faint
	}
	p.X.Tick.Label.YAlign, p.X.Label.Padding = -1.2, 4
	p.Add(&plotter.Grid{Vertical: grid, Horizontal: across})
	return p
}

// curveSample is a line with a dot.
type curveSample struct {
	*plotter.Line
	dots *plotter.Scatter
}

// Thumbnail implements plot.Thumbnailer.
func (s curveSample) Thumbnail(c *draw.Canvas) {
	s.Line.Thumbnail(c)
	s.dots.Thumbnail(c)
}

// addCurve adds a line with a dot at each value. It returns a sample for the legend.
func addCurve(p *plot.Plot, points plotter.XYs, style draw.LineStyle) plot.Thumbnailer {
	s := curveSample{&plotter.Line{XYs: points, LineStyle: style}, &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: style.Color, Radius: 2.5, Shape: draw.CircleGlyph{}}}}
	p.Add(s.Line, s.dots)
	return s
}

// numbers are labels to the right of points. They stand above each other if the points are close
// together.
type numbers struct {
	format string
	values plotter.XYs // a number is the value of Y
}

// end returns the last value of some points.
func end(points plotter.XYs) plotter.XY { return points[len(points)-1] }

// Plot implements plot.Plotter.
func (n numbers) Plot(c draw.Canvas, p *plot.Plot) {
	s, free := ink, c.Min.Y-look.LabelSize
	s.YAlign = draw.YCenter
	slices.SortFunc(n.values, func(a, b plotter.XY) int { return cmp.Compare(a.Y, b.Y) })
	for _, v := range n.values {
		y := max(free, c.Y(p.Y.Norm(v.Y))+1)
		c.FillText(s, vg.Point{X: c.X(p.X.Norm(v.X)) + besidePoint, Y: y}, fmt.Sprintf(n.format, v.Y))
		free = y + look.LabelSize
	}
}

const besidePoint = 5

// GlyphBoxes implements plot.GlyphBoxer, for room at the right edge.
func (n numbers) GlyphBoxes(p *plot.Plot) (boxes []plot.GlyphBox) {
	for _, v := range n.values {
		right := vg.Point{X: besidePoint + ink.Width(fmt.Sprintf(n.format, v.Y))}
		boxes = append(boxes, plot.GlyphBox{X: p.X.Norm(v.X), Y: p.Y.Norm(v.Y), Rectangle: vg.Rectangle{Max: right}})
	}
	return boxes
}

// shortened leaves some room between a sample and its name.
type shortened struct{ plot.Thumbnailer }

// Thumbnail implements plot.Thumbnailer.
func (s shortened) Thumbnail(c *draw.Canvas) {
	narrow := draw.Crop(*c, 0, -3, 0, 0)
	s.Thumbnailer.Thumbnail(&narrow)
}
