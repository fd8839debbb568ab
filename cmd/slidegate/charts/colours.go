package charts

import (
	"fmt"
	"strings"
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

// String returns the light-mode colour in SVG notation.
func (c Colour) String() string { return fmt.Sprintf("#%06x", c.light) }

// darkStyle returns a style sheet that replaces the colours of an SVG in dark mode. Viewers that
// ignore style sheets still draw the chart in light mode, because each element states its colour in
// an attribute, for example fill="#222222".
func darkStyle() string {
	var s strings.Builder
	s.WriteString("<style>@media (prefers-color-scheme:dark){\n")
	for _, c := range palette {
		fmt.Fprintf(&s, "[fill=\"%s\"]{fill:#%06[2]x}[stroke=\"%[1]s\"]{stroke:#%06[2]x}\n", c, c.dark)
	}
	s.WriteString("}</style>\n")
	return s.String()
}
