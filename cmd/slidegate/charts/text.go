package charts

import (
	"strings"
	"unicode"
)

// Style is a style of text.
type Style struct {
	size   float64
	weight string
	colour Colour
	align  float64 // how much of the text is to the left of its position: from 0, none, to 1, all
}

// The styles. A page displayed at a width of 800 pixels has 1.07 pixels per point.
var (
	Heading = Style{11, "bold", Ink, 0}
	Remark  = Style{10, "normal", Faint, 0}
	Label   = Style{10, "normal", Ink, 0}
	title   = Style{15, "bold", Ink, 0}
)

// aligned returns s with another alignment.
func (s Style) aligned(align float64) Style {
	s.align = align
	return s
}

// letterWidths lists the widths of the printable ASCII characters in Arial, in thousandths of the size.
// Helvetica and Liberation Sans have the same widths.
var letterWidths = [...]float64{
	278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, // space to /
	556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, // 0 to ?
	1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, // @ to O
	667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, // P to _
	333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, // ` to o
	556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584, // p to ~
}

// width returns the width of t. It is an estimate for characters beyond ASCII and for bold text,
// but the text is drawn with exactly this width.
func (s Style) width(t string) (wide float64) {
	const other, ideograph, bold = 600, 1000, 1.06
	for _, r := range t {
		switch {
		case r >= ' ' && r <= '~':
			wide += letterWidths[r-' ']
		case r < 0x2e80 && r != '…':
			wide += other
		default:
			wide += ideograph
		}
	}
	if s.weight == "bold" {
		wide *= bold
	}
	return wide * s.size / 1000
}

// fit makes t printable, and shortens it to the given width.
func (s Style) fit(t string, width float64) string {
	if t = printable(t); s.width(t) <= width {
		return t
	}
	runes := []rune(t)
	runes = runes[:min(len(runes), 1000)] // far more than can fit, because a name can be very long
	for len(runes) > 0 && s.width(string(runes)+"…") > width {
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
