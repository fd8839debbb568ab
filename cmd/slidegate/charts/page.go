// Package charts draws the charts of the slidegate command and the benchmarks as SVG. It provides
// what all charts share (page, legend, colours, axes and curves), and the command's own charts. It
// is not part of Slidegate's API, and can change without notice.
package charts

import (
	"fmt"
	"html"
	"strings"
)

// Page dimensions, in points. The text of a narrow page is readable on a phone.
const (
	PageWidth   = 750
	NarrowWidth = 320

	margin = 15
	width  = PageWidth - 2*margin
)

// Canvas is a rectangle of a page. Lengths are in points. They are measured from the upper left
// corner of the page.
type Canvas struct {
	Left, Top, Right, Bottom float64

	svg *strings.Builder
}

// Inset returns the canvas without the given margins.
func (c Canvas) Inset(left, top, right, bottom float64) Canvas {
	return Canvas{c.Left + left, c.Top + top, c.Right - right, c.Bottom - bottom, c.svg}
}

// Row returns one of n rows with the given gap between them. Rows are counted from 0.
func (c Canvas) Row(i, n int, gap float64) Canvas {
	high := (c.Bottom - c.Top + gap) / float64(n)
	c.Top += float64(i) * high
	c.Bottom = c.Top + high - gap
	return c
}

// Column returns one of n columns with the given gap between them. Columns are counted from 0.
func (c Canvas) Column(i, n int, gap float64) Canvas {
	wide := (c.Right - c.Left + gap) / float64(n)
	c.Left += float64(i) * wide
	c.Right = c.Left + wide - gap
	return c
}

// Text writes t on the line at y. Its width is fixed, so that it fits even in a wider font.
func (c Canvas) Text(s Style, x, y float64, t string) {
	wide := s.width(t)
	fmt.Fprintf(c.svg, `<text x="%.1f" y="%.1f" textLength="%.1f" lengthAdjust="spacingAndGlyphs" font-size="%g" font-weight="%s" fill="%s">%s</text>`+"\n",
		x-s.align*wide, y, wide, s.size, s.weight, s.colour, html.EscapeString(t))
}

// stroke draws a line through the given points. Without dashes, it is solid.
func (c Canvas) stroke(of Colour, wide float64, dashes string, points ...Point) {
	if dashes != "" {
		dashes = ` stroke-dasharray="` + dashes + `"`
	}
	fmt.Fprintf(c.svg, `<polyline fill="none" stroke="%s" stroke-width="%g"%s points="%s"/>`+"\n", of, wide, dashes, join(points))
}

// fill fills the polygon with the given corners.
func (c Canvas) fill(of Colour, corners ...Point) {
	fmt.Fprintf(c.svg, `<polygon fill="%s" points="%s"/>`+"\n", of, join(corners))
}

// dot draws a dot.
func (c Canvas) dot(of Colour, radius float64, at Point) {
	fmt.Fprintf(c.svg, `<circle fill="%s" r="%g" cx="%.1f" cy="%.1f"/>`+"\n", of, radius, at.X, at.Y)
}

func join(points []Point) string {
	var all strings.Builder
	for _, p := range points {
		fmt.Fprintf(&all, "%.2f,%.2f ", p.X, p.Y)
	}
	return strings.TrimSuffix(all.String(), " ")
}

// NewPage starts a chart with a title and a legend. It returns the canvas below them, which has the
// given height. The given width includes the margins.
func NewPage(wide float64, name string, l Legend, height float64) Canvas {
	const titleRoom = 24
	room := wide - 2*margin
	places, legendRoom := l.places(room)
	high := height + titleRoom + legendRoom + 2*margin
	c := Canvas{margin, margin, wide - margin, high - margin, &strings.Builder{}}
	fmt.Fprintf(c.svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%gpt" height="%gpt" viewBox="0 0 %[1]g %[2]g" font-family="%s">`+"\n",
		wide, high, "'Liberation Sans',Arial,Helvetica,sans-serif")
	fmt.Fprintf(c.svg, `%s<rect width="100%%" height="100%%" fill="%s"/>`+"\n", darkStyle(), Paper)
	c.Text(title, c.Left, c.Top+12, title.fit(name, room))
	for i, e := range l {
		e.draw(c.Inset(places[i].X, titleRoom+places[i].Y, 0, 0), room)
	}
	return c.Inset(0, titleRoom+legendRoom, 0, 0)
}

// SVG returns the page as a file.
func (c Canvas) SVG() string { return c.svg.String() + "</svg>\n" }

// Legend explains what a chart shows. Its entries are placed side by side and wrap onto further
// lines as needed.
type Legend []Entry

// Entry represents a name, with a sample of its curve.
type Entry struct {
	Name   string
	Sample Curve
}

// nameAt is the horizontal position of an entry's name, after its sample.
const nameAt = 24

func (e Entry) name(room float64) string { return Label.fit(e.Name, room-nameAt) }

// places returns the positions of the entries within the given width, measured from the top left
// corner, and their total height.
func (l Legend) places(room float64) (places []Point, height float64) {
	const legendLine = 16
	at := Point{}
	for _, e := range l {
		wide := nameAt + Label.width(e.name(room))
		if at.X > 0 && at.X+wide > room {
			at = Point{Y: at.Y + legendLine}
		}
		places = append(places, at)
		at.X += wide + 16
	}
	return places, at.Y + legendLine
}

// draw draws the entry at the upper left corner of c.
func (e Entry) draw(c Canvas, room float64) {
	e.Sample.sample(Canvas{c.Left, c.Top, c.Left + nameAt - 6, c.Top + 9, c.svg})
	c.Text(Label, c.Left+nameAt, c.Top+8.5, e.name(room))
}
