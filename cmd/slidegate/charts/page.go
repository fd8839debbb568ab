// Package charts draws the charts of the slidegate command and the benchmarks as SVG or PNG, using
// gonum/plot. It provides what all charts share (page, legend, colours and axes), and the command's
// own charts. It is not part of Slidegate's API, and can change without notice.
package charts

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Page dimensions, in points.
const (
	pageWidth   = 750
	narrowWidth = 320
	margin      = 15
	width       = pageWidth - 2*margin
)

// Format is a file format for charts.
type Format string

// The formats. An SVG follows the reader's preference for light or dark mode. A PNG is always in
// light mode and 2000 pixels wide.
const (
	SVG Format = ".svg"
	PNG Format = ".png"
)

// formatOf returns the format for the extension of file, and reports whether there is one.
func formatOf(file string) (f Format, ok bool) {
	f = Format(strings.ToLower(filepath.Ext(file)))
	return f, f == SVG || f == PNG
}

// Page represents a chart. Its canvas is the space below the title and the legend.
type Page struct {
	draw.Canvas

	file vg.CanvasWriterTo
}

// NewPage returns a page with a title and a legend. Its canvas has the given height, and the width
// of the page without its margins.
func NewPage(f Format, name string, l Legend, height vg.Length) Page {
	return newPage(f, pageWidth, name, l, height)
}

// NewNarrowPage returns a page whose text is readable on a phone.
func NewNarrowPage(f Format, name string, l Legend, height vg.Length) Page {
	return newPage(f, narrowWidth, name, l, height)
}

// newPage returns a page. The given width includes the margins.
func newPage(f Format, wide vg.Length, name string, l Legend, height vg.Length) Page {
	const titleRoom = 24
	room := wide - 2*margin
	places, legendRoom := l.places(room)
	headRoom := titleRoom + legendRoom
	file := blank(f, wide, height+headRoom+2*margin)
	c := draw.New(file)
	c.SetColor(Paper)
	c.Fill(c.Path())
	c = draw.Crop(c, margin, -margin, margin, -margin)
	c.FillText(title, vg.Point{X: c.Min.X, Y: c.Max.Y - 12}, fit(title, name, room))
	for i, e := range l {
		e.draw(c, room, vg.Point{X: c.Min.X + places[i].X, Y: c.Max.Y - titleRoom - 10 - places[i].Y})
	}
	return Page{draw.Crop(c, 0, 0, 0, -headRoom), file}
}

func blank(f Format, wide, height vg.Length) vg.CanvasWriterTo {
	if f == PNG {
		return vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(wide, height), vgimg.UseDPI(192))}
	}
	return vgsvg.New(wide, height)
}

// Write writes the page.
func (p Page) Write(w io.Writer) error {
	var b bytes.Buffer
	if _, err := p.file.WriteTo(&b); err != nil {
		return fmt.Errorf("drawing: %w", err)
	}
	drawn := b.Bytes()
	if _, ok := p.file.(*vgsvg.Canvas); ok {
		drawn = finish(drawn)
	}
	_, err := w.Write(drawn)
	return err
}

// Legend explains what a chart shows. Its entries are placed side by side and wrap onto further
// lines as needed.
type Legend []Entry

// Entry represents a name, with a sample of its line or area.
type Entry struct {
	Name   string
	Sample plot.Thumbnailer
}

// nameAt is the horizontal position of an entry's name, after its sample.
const nameAt = 24

func (e Entry) name(room vg.Length) string { return fit(Label, e.Name, room-nameAt) }

// places returns the positions of the entries within the given width, measured from the top left
// corner, and their total height.
func (l Legend) places(room vg.Length) (places []vg.Point, height vg.Length) {
	const legendLine = 16
	at := vg.Point{}
	for _, e := range l {
		wide := nameAt + Label.Width(e.name(room))
		if at.X > 0 && at.X+wide > room {
			at = vg.Point{Y: at.Y + legendLine}
		}
		places = append(places, at)
		at.X += wide + 16
	}
	return places, at.Y + legendLine
}

func (e Entry) draw(c draw.Canvas, room vg.Length, at vg.Point) {
	c.FillText(Label, at.Add(vg.Point{X: nameAt}), e.name(room))
	c.Rectangle = vg.Rectangle{Min: at, Max: at.Add(vg.Point{X: nameAt - 6, Y: 9})}
	e.Sample.Thumbnail(&c)
}

// fit makes t printable, and shortens it to the given width.
func fit(s text.Style, t string, width vg.Length) string {
	if t = printable(t); s.Width(t) <= width {
		return t
	}
	runes := []rune(t)
	runes = runes[:min(len(runes), 1000)] // far more than can fit, because a name can be very long
	for len(runes) > 0 && s.Width(string(runes)+"…") > width {
		runes = runes[:len(runes)-1]
	}
	return string(runes) + "…"
}

// printable replaces invalid bytes and control characters, which are invisible or not allowed in an
// SVG.
func printable(t string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, t)
}
