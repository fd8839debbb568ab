// Package sheet is what pictures are drawn on, and in what letters and shades, so that all of them look alike.
package sheet

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"strings"
	"unicode"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The shades, and the letters.
var (
	Ink   = color.Gray{0x22}
	Faint = color.Gray{0x66}
	Rule  = color.Gray{0xe6}

	Title   = style(14, xfont.WeightBold, Ink)
	Heading = style(10, xfont.WeightBold, Ink)
	Remark  = style(9, xfont.WeightNormal, Faint)
	Label   = style(9, xfont.WeightNormal, Ink)
)

func style(size vg.Length, weight xfont.Weight, c color.Color) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Weight: weight, Size: size}
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

// New returns a white page, and what is within its margins.
func New(width, height, margin vg.Length) (*vgsvg.Canvas, draw.Canvas) {
	svg := vgsvg.New(width, height)
	c := draw.New(svg)
	c.SetColor(color.White)
	c.Fill(c.Path())
	return svg, draw.Crop(c, margin, -margin, margin, -margin)
}

// Write writes a page. Where its font is missing, Arial has letters as wide.
func Write(w io.Writer, svg *vgsvg.Canvas) error {
	var b bytes.Buffer
	if _, err := svg.WriteTo(&b); err != nil {
		return fmt.Errorf("drawing: %w", err)
	}
	const family = `style="font-family:` // no text has it: its quotes are escaped
	_, err := w.Write(bytes.ReplaceAll(b.Bytes(), []byte(family+"Liberation Sans;"), []byte(family+"'Liberation Sans',Arial,Helvetica,sans-serif;")))
	return err
}
