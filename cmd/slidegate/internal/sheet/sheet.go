// Package sheet draws the page, the title and the legend of the charts of this command, as SVG or
// PNG.
package sheet

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"path/filepath"
	"strings"
	"unicode"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/slidegate/slidegate/internal/look"
)

// The styles of texts, and of the lines of axes and grids.
var (
	Title   = style(look.TitleSize, true, look.Ink)
	Heading = style(look.HeadingSize, true, look.Ink)
	Remark  = style(look.LabelSize, false, look.Faint)
	Label   = style(look.LabelSize, false, look.Ink)

	Axis = draw.LineStyle{Color: look.Faint, Width: 0.8}
	Grid = draw.LineStyle{Color: look.Rule, Width: 0.6}
)

func style(size float64, bold bool, c color.Color) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Length(size)}
	if bold {
		f.Weight = xfont.WeightBold
	}
	return text.Style{Color: c, Font: f, Handler: plot.DefaultTextHandler}
}

// Fit makes a text printable, and shortens it to a width.
func Fit(s text.Style, t string, width vg.Length) string {
	if t = printable(t); s.Width(t) <= width {
		return t
	}
	runes := []rune(t)
	runes = runes[:min(len(runes), 1000)] // far more than fit; a name may have many more
	for len(runes) > 0 && s.Width(string(runes)+"…") > width {
		runes = runes[:len(runes)-1]
	}
	return string(runes) + "…"
}

// printable replaces what a text in an SVG cannot hold or nobody can see: invalid bytes, and
// control characters.
func printable(t string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, t)
}

// A Format is a file format for charts.
type Format string

// The formats. An SVG is light or dark, as the reader prefers. A PNG is light, and 2000 pixels
// wide.
const (
	SVG Format = ".svg"
	PNG Format = ".png"
)

// FormatOf returns the format for the extension of a file name, and reports whether there is one.
func FormatOf(file string) (f Format, ok bool) {
	f = Format(strings.ToLower(filepath.Ext(file)))
	return f, f == SVG || f == PNG
}

// New returns a page with a title and a legend, and the canvas below them. The canvas is as wide as
// the page without its margins, and has this height.
func New(f Format, title string, l Legend, height vg.Length) (vg.CanvasWriterTo, draw.Canvas) {
	const titleRoom = 24
	places, legendRoom := l.places()
	page := blank(f, height+titleRoom+legendRoom+2*look.Margin)
	c := draw.New(page)
	c.SetColor(look.Paper)
	c.Fill(c.Path())
	c = draw.Crop(c, look.Margin, -look.Margin, look.Margin, -look.Margin)
	c.FillText(Title, vg.Point{X: c.Min.X, Y: c.Max.Y - 12}, Fit(Title, title, width))
	for i, e := range l {
		e.draw(draw.Crop(c, places[i].X, 0, 0, -titleRoom-places[i].Y))
	}
	return page, draw.Crop(c, 0, 0, 0, -titleRoom-legendRoom)
}

func blank(f Format, height vg.Length) vg.CanvasWriterTo {
	if f == PNG {
		return vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(look.PageWidth, height), vgimg.UseDPI(192))}
	}
	return vgsvg.New(look.PageWidth, height)
}

// Write writes a page.
func Write(w io.Writer, page vg.CanvasWriterTo) error {
	var b bytes.Buffer
	if _, err := page.WriteTo(&b); err != nil {
		return fmt.Errorf("drawing: %w", err)
	}
	picture := b.Bytes()
	if _, ok := page.(*vgsvg.Canvas); ok {
		picture = look.Finish(picture, widthOf)
	}
	_, err := w.Write(picture)
	return err
}

func widthOf(t string, size float64, bold bool) float64 {
	return style(size, bold, look.Ink).Width(t).Points()
}

// A Legend explains what a chart shows. Its entries are placed side by side, in as many lines as
// they need.
type Legend []Entry

// An Entry is a name, and a sample of its line or area.
type Entry struct {
	Name   string
	Sample plot.Thumbnailer
}

const (
	width       = look.PageWidth - 2*look.Margin
	legendLine  = 16
	sampleWidth = 19
)

// name returns the name, shortened to the width of the legend.
func (e Entry) name() string { return Fit(Label, e.Name, width-sampleWidth-5) }

// places returns the positions of the entries, from the left and from the top, and their total
// height.
func (l Legend) places() (places []vg.Point, height vg.Length) {
	const gap = 16
	at := vg.Point{}
	for _, e := range l {
		wide := sampleWidth + Label.Width(" "+e.name())
		if at.X > 0 && at.X+wide > width {
			at = vg.Point{Y: at.Y + legendLine}
		}
		places = append(places, at)
		at.X += wide + gap
	}
	return places, at.Y + legendLine
}

func (e Entry) draw(c draw.Canvas) {
	l := plot.NewLegend()
	l.TextStyle, l.ThumbnailWidth, l.Top, l.Left = Label, sampleWidth, true, true
	l.Add(e.name(), sample{e.Sample})
	l.Draw(c)
}

// A sample is drawn with some space between it and the name.
type sample struct{ plot.Thumbnailer }

// Thumbnail implements plot.Thumbnailer.
func (s sample) Thumbnail(c *draw.Canvas) {
	narrow := draw.Crop(*c, 0, -3, 0, 0)
	s.Thumbnailer.Thumbnail(&narrow)
}
