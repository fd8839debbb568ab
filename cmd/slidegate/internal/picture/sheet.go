package picture

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"sort"
	"strings"
	"unicode"

	"codeberg.org/go-fonts/liberation/liberationsansbold"
	"codeberg.org/go-fonts/liberation/liberationsansregular"
	xfont "golang.org/x/image/font"
	"golang.org/x/image/font/opentype"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgsvg"
)

var (
	regular = face(liberationsansregular.TTF, xfont.WeightNormal)
	bold    = face(liberationsansbold.TTF, xfont.WeightBold)
)

// face reads a font, which tells how wide a text will be. The picture holds the name of it alone.
func face(ttf []byte, weight xfont.Weight) font.Face {
	f, err := opentype.Parse(ttf)
	if err != nil {
		panic(err) // it is part of the program
	}
	return font.Face{Font: font.Font{Variant: "Sans", Weight: weight}, Face: f}
}

// A style is how a text looks.
type style struct {
	face  font.Face
	size  float64
	color color.Color
}

func (s style) sized() font.Face {
	f := s.face
	f.Font.Size = vg.Length(s.size)
	return f
}

func (s style) width(text string) float64 {
	f := s.sized()
	return f.Width(text).Points()
}

// fit shortens a text to a width.
func (s style) fit(text string, width float64) string {
	if text = legible(text); s.width(text) <= width {
		return text
	}
	runes := []rune(text)
	n := sort.Search(len(runes), func(n int) bool { return s.width(string(runes[:n+1])+"…") > width })
	return string(runes[:n]) + "…"
}

// legible replaces what a text in an SVG cannot have or nobody can see: invalid bytes, and characters that control.
func legible(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// align says which part of a text is at its x.
type align float64

const (
	leftAligned  align = 0
	centred      align = 0.5
	rightAligned align = 1
)

type point struct{ x, y float64 }

// A sheet is what is drawn on. Its unit is a point, of which 3 are 4 pixels, and y goes up from the lower edge.
type sheet struct {
	canvas        *vgsvg.Canvas
	width, height float64
}

func newSheet(width, height float64) *sheet {
	s := &sheet{vgsvg.New(vg.Length(width), vg.Length(height)), width, height}
	s.fill(color.White, []point{{0, 0}, {width, 0}, {width, height}, {0, height}})
	return s
}

func (s *sheet) text(st style, at point, a align, text string) {
	if text == "" {
		return
	}
	text = legible(text)
	s.canvas.SetColor(st.color)
	at.x -= float64(a) * st.width(text)
	s.canvas.FillString(st.sized(), vgPoint(at), text)
}

// textInside centres a text, but moves it in if it would get into the margin.
func (s *sheet) textInside(st style, at point, text string) {
	half := st.width(text) / 2
	at.x = max(margin+half, min(at.x, s.width-margin-half))
	s.text(st, at, centred, text)
}

func (s *sheet) fill(c color.Color, outlines ...[]point) {
	s.canvas.SetColor(c)
	s.canvas.Fill(path(outlines))
}

func (s *sheet) line(c color.Color, width float64, dashes []vg.Length, lines ...[]point) {
	s.canvas.SetColor(c)
	s.canvas.SetLineWidth(vg.Length(width))
	s.canvas.SetLineDash(dashes, 0)
	s.canvas.Stroke(path(lines))
}

func path(lines [][]point) (p vg.Path) {
	for _, line := range lines {
		p.Move(vgPoint(line[0]))
		for _, at := range line[1:] {
			p.Line(vgPoint(at))
		}
	}
	return p
}

// vgPoint rounds to a tenth of a point, which nobody sees, to keep the picture small.
func vgPoint(at point) vg.Point {
	return vg.Point{X: vg.Length(math.Round(at.x*10) / 10), Y: vg.Length(math.Round(at.y*10) / 10)}
}

// writeTo writes the sheet as an SVG. Where the font is missing, Arial has letters as wide.
func (s *sheet) writeTo(w io.Writer) error {
	var b bytes.Buffer
	if _, err := s.canvas.WriteTo(&b); err != nil {
		return fmt.Errorf("picture: %w", err)
	}
	const family = `style="font-family:` // no text has it: its quotes are escaped
	_, err := w.Write(bytes.ReplaceAll(b.Bytes(), []byte(family+"Liberation Sans;"), []byte(family+"'Liberation Sans',Arial,Helvetica,sans-serif;")))
	return err
}
