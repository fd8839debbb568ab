// Package look holds what all pictures of this project share: their measures, fonts, and colours in
// light and in dark mode. It imports only the standard library, so each module that draws can
// import it.
package look

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"
)

// The measures of a picture and the sizes of its letters, in points. A page that is shown 800
// pixels wide has 1.07 pixels for each point.
const (
	PageWidth = 750
	Margin    = 15

	TitleSize   = 15
	HeadingSize = 11
	LabelSize   = 10
)

// Family is the font and its substitutes. Letters of Arial and Helvetica are as wide as those of
// Liberation Sans.
const Family = "'Liberation Sans',Arial,Helvetica,sans-serif"

// A Colour represents a colour of a picture in light mode, and its counterpart in dark mode.
type Colour struct{ light, dark uint32 }

// The colours. Each curve stands out from its background by a contrast of at least 3, and text by
// at least 4.5. People who see fewer colours can distinguish the curves, by the palette of Okabe
// and Ito or by how light they are.
var (
	Paper = Colour{0xffffff, 0x0d1117}
	Ink   = Colour{0x222222, 0xe6edf3}
	Faint = Colour{0x666666, 0x9198a1} // for remarks and axes
	Rule  = Colour{0xe6e6e6, 0x262c36} // for a grid
	Shade = Colour{0xb4bec9, 0x566270} // for an area behind others

	Blue      = Colour{0x0072b2, 0x4a9fe0}
	Vermilion = Colour{0xd55e00, 0xff8b3d}
	Green     = Colour{0x009e73, 0x2bc79a}
	Purple    = Colour{0x7a1f5c, 0xf4b6da}
)

// All returns every colour that a picture may have.
func All() []Colour {
	return []Colour{Paper, Ink, Faint, Rule, Shade, Blue, Vermilion, Green, Purple}
}

// RGBA implements color.Color, in light mode.
func (c Colour) RGBA() (r, g, b, a uint32) {
	return c.light >> 16 * 0x101, c.light >> 8 & 0xff * 0x101, c.light & 0xff * 0x101, 0xffff
}

// String returns the colour in light mode, as an SVG spells it.
func (c Colour) String() string { return fmt.Sprintf("#%06X", c.light) }

// Style returns the style sheet of an SVG that replaces the colours in dark mode. A program without
// style sheets still draws the picture, in light mode. An element has its colour in its style, as
// in style="fill:#222222".
func Style() string {
	var s strings.Builder
	s.WriteString("<style>@media (prefers-color-scheme:dark){\n")
	for _, c := range All() {
		for _, property := range []string{"fill", "stroke"} {
			fmt.Fprintf(&s, `[style*="%s:%s"]{%[1]s:#%06[3]X!important}`, property, c, c.dark)
		}
		s.WriteByte('\n')
	}
	s.WriteString("}</style>\n")
	return s.String()
}

// letters matches the font of a text as gonum writes it, and the text.
var letters = regexp.MustCompile(`(<text [^>]*)style="font-family:Liberation Sans;font-variant:normal;font-weight:(normal|bold);font-style:normal;font-size:([0-9.]+)px([^"]*)">([^<]+)`)

// Finish adds to an SVG by gonum what gonum cannot write: the style for dark mode, and fonts for
// readers without Liberation Sans. Each text gets its width, so it also fits in a wider font. The
// function width returns the width of a text in Liberation Sans.
func Finish(svg []byte, width func(text string, size float64, bold bool) float64) []byte {
	svg = letters.ReplaceAllFunc(svg, func(found []byte) []byte {
		part := letters.FindSubmatch(found)
		size, _ := strconv.ParseFloat(string(part[3]), 64)
		w := width(html.UnescapeString(string(part[5])), size, string(part[2]) == "bold")
		return fmt.Appendf(nil, `%stextLength="%.5g" lengthAdjust="spacingAndGlyphs" style="font:%s %spx %s%s">%s`, part[1], w, part[2], part[3], Family, part[4], part[5])
	})
	const groups = "\n<g "
	return bytes.Replace(svg, []byte(groups), []byte("\n"+Style()+groups[1:]), 1)
}
