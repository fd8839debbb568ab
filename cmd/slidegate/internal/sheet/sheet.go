// Package sheet is what the pictures of this command are drawn on, as SVG or PNG.
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

// The letters, and the lines of axes and grids.
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

// Fit makes a text legible, and shortens it to a width.
func Fit(s text.Style, t string, width vg.Length) string {
	if t = legible(t); s.Width(t) <= width {
		return t
	}
	runes := []rune(t)
	runes = runes[:min(len(runes), 1000)] // far more than fit, and far less than a name may have
	for len(runes) > 0 && s.Width(string(runes)+"…") > width {
		runes = runes[:len(runes)-1]
	}
	return string(runes) + "…"
}

// legible replaces what a text in an SVG cannot have or nobody can see: invalid bytes, and characters that control.
func legible(t string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, t)
}

// A Format is a kind of file for pictures.
type Format string

// The formats. An SVG is light or dark, as the reader prefers. A PNG is light, and has 2000 pixels across.
const (
	SVG Format = ".svg"
	PNG Format = ".png"
)

// FormatOf returns the format that the name of a file asks for, and reports whether there is one.
func FormatOf(file string) (f Format, ok bool) {
	f = Format(strings.ToLower(filepath.Ext(file)))
	return f, f == SVG || f == PNG
}

// New returns a page with a title and a legend, and the room below these: as wide as the page without its margins, and this high.
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

// A Legend explains what a picture shows. Its entries stand side by side, in as many lines as they need.
type Legend []Entry

// An Entry is a name, and a sample of what has it.
type Entry struct {
	Name   string
	Sample plot.Thumbnailer
}

const (
	width       = look.PageWidth - 2*look.Margin
	legendLine  = 16
	sampleWidth = 19
)

// name returns the name as far as there is room for it.
func (e Entry) name() string { return Fit(Label, e.Name, width-sampleWidth-5) }

// places returns where the entries stand, from the left and from the top, and how high they are together.
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

// A sample leaves some room before the name.
type sample struct{ plot.Thumbnailer }

// Thumbnail implements plot.Thumbnailer.
func (s sample) Thumbnail(c *draw.Canvas) {
	narrow := draw.Crop(*c, 0, -3, 0, 0)
	s.Thumbnailer.Thumbnail(&narrow)
}
