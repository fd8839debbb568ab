package charts

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Colour represents a chart colour in light mode and its counterpart in dark mode.
type Colour struct{ light, dark uint32 }

// The colours. Each curve has a contrast of at least 3 with its background, and text has at least
// 4.5. Colour-blind readers can tell the curves apart: they use the Okabe-Ito palette or differ in
// lightness.
var (
	Paper = Colour{0xffffff, 0x0d1117}
	Ink   = Colour{0x222222, 0xe6edf3}
	Faint = Colour{0x666666, 0x9198a1} // for remarks and axes
	Rule  = Colour{0xe6e6e6, 0x262c36} // for a grid
	Shade = Colour{0xb4bec9, 0x566270} // for an area behind other areas

	Blue      = Colour{0x0072b2, 0x4a9fe0}
	Vermilion = Colour{0xd55e00, 0xff8b3d}
	Green     = Colour{0x009e73, 0x2bc79a}
)

var palette = []Colour{Paper, Ink, Faint, Rule, Shade, Blue, Vermilion, Green}

// RGBA returns the light-mode colour. It implements color.Color.
func (c Colour) RGBA() (r, g, b, a uint32) {
	return c.light >> 16 * 0x101, c.light >> 8 & 0xff * 0x101, c.light & 0xff * 0x101, 0xffff
}

// String returns the light-mode colour in SVG notation.
func (c Colour) String() string { return fmt.Sprintf("#%06X", c.light) }

// The text styles, and the grid of a plot.
var (
	Heading = letters(11, true, Ink)
	Remark  = letters(10, false, Faint)
	Label   = letters(10, false, Ink)
	Grid    = &plotter.Grid{Vertical: rule, Horizontal: rule}

	title = letters(15, true, Ink)
	rule  = draw.LineStyle{Color: Rule, Width: 0.6}
	axis  = draw.LineStyle{Color: Faint, Width: 0.8}
)

// letters returns a text style. A page displayed at a width of 800 pixels has 1.07 pixels per
// point.
func letters(size float64, bold bool, c Colour) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Length(size)}
	if bold {
		f.Weight = xfont.WeightBold
	}
	return text.Style{Color: c, Font: f, Handler: plot.DefaultTextHandler}
}

// Line returns a line in the given colour. Without points, the line serves as a sample in a legend.
func Line(c Colour, points plotter.XYs, dashes ...vg.Length) *plotter.Line {
	return &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: c, Width: 1.5, Dashes: dashes}}
}

// lettered matches a text element and its font, as gonum writes them.
var lettered = regexp.MustCompile(`(<text [^>]*)style="font-family:Liberation Sans;font-variant:normal;font-weight:(normal|bold);font-style:normal;font-size:([0-9.]+)px([^"]*)">([^<]+)`)

// finish adds what gonum cannot write to an SVG that gonum wrote: a style for dark mode, and
// fallback fonts for readers without Liberation Sans. Arial and Helvetica have the same letter
// widths. The width of each text is fixed too, so that the text fits even in a wider font.
func finish(svg []byte) []byte {
	svg = lettered.ReplaceAllFunc(svg, func(found []byte) []byte {
		part := lettered.FindSubmatch(found)
		size, _ := strconv.ParseFloat(string(part[3]), 64)
		width := letters(size, string(part[2]) == "bold", Ink).Width(html.UnescapeString(string(part[5])))
		return fmt.Appendf(nil, `%stextLength="%.5g" lengthAdjust="spacingAndGlyphs" style="font:%s %spx 'Liberation Sans',Arial,Helvetica,sans-serif%s">%s`,
			part[1], width, part[2], part[3], part[4], part[5])
	})
	const groups = "\n<g "
	return bytes.Replace(svg, []byte(groups), []byte("\n"+darkStyle()+groups[1:]), 1)
}

// darkStyle returns a style sheet that replaces the colours of an SVG in dark mode. Viewers that
// ignore style sheets still draw the chart in light mode. Each element states its colour in its
// style attribute, for example style="fill:#222222".
func darkStyle() string {
	var s strings.Builder
	s.WriteString("<style>@media (prefers-color-scheme:dark){\n")
	for _, c := range palette {
		for _, property := range []string{"fill", "stroke"} {
			fmt.Fprintf(&s, `[style*="%s:%s"]{%[1]s:#%06[3]X!important}`, property, c, c.dark)
		}
		s.WriteByte('\n')
	}
	s.WriteString("}</style>\n")
	return s.String()
}
