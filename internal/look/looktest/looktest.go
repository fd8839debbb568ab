// Package looktest checks pictures.
package looktest

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/look"
)

// A Picture holds what a test reads of an SVG that gonum drew. The Y of texts counts from the top,
// that of paths from the bottom.
type Picture struct {
	Box   string `xml:"viewBox,attr"`
	Style string `xml:"style"`
	Texts []Text `xml:"g>text"`
	Paths []Path `xml:"g>path"`
}

// A Text represents a text of a picture, which begins at X.
type Text struct {
	X     float64 `xml:"x,attr"`
	Y     float64 `xml:"y,attr"`
	Width float64 `xml:"textLength,attr"`
	Style string  `xml:"style,attr"`
	Text  string  `xml:",chardata"`
}

// A Path represents a line or an area of a picture.
type Path struct {
	Data  string `xml:"d,attr"`
	Style string `xml:"style,attr"`
}

// End returns the X where a text ends.
func (t Text) End() float64 { return t.X + t.Width }

// Corners returns the points of a path, except those of arcs.
func (p Path) Corners() (all [][2]float64) {
	for _, text := range strings.FieldsFunc(p.Data, func(r rune) bool { return strings.ContainsRune("MLZ", r) }) {
		var x, y float64
		_, _ = fmt.Sscanf(text, "%g,%g", &x, &y)
		all = append(all, [2]float64{x, y})
	}
	return all
}

// Check parses a picture, and fails the test if a reader could not read it. It finds a picture that
// is not well-formed, a colour without a counterpart in dark mode, and a text that is not on the
// page or overlaps another.
func Check(t *testing.T, svg []byte) Picture {
	t.Helper()
	var p Picture
	if err := xml.Unmarshal(svg, &p); err != nil {
		t.Fatalf("%v in %s", err, svg)
	}
	if !strings.Contains(p.Style, "prefers-color-scheme:dark") {
		t.Error("no dark style")
	}
	checkColours(t, svg)
	p.checkTexts(t)
	for _, path := range p.Paths {
		if strings.Contains(path.Data, "NaN") || strings.Contains(path.Data, "Inf") {
			t.Fatalf("a path goes nowhere: %s", path.Data)
		}
	}
	return p
}

var inked = regexp.MustCompile(`<(text|path)[^>]*style="[^"]*"`)

// checkColours checks that each element has a colour of the palette.
func checkColours(t *testing.T, svg []byte) {
	t.Helper()
	if all := bytes.Count(svg, []byte("<text")) + bytes.Count(svg, []byte("<path")); len(inked.FindAll(svg, -1)) != all {
		t.Errorf("not all %d texts and paths have a style", all)
	}
	for _, element := range inked.FindAllString(string(svg), -1) {
		if !coloured(element) {
			t.Errorf("a colour that is not in the palette: %s", element)
		}
	}
}

func coloured(element string) bool {
	for _, c := range look.All() {
		if strings.Contains(element, "fill:"+c.String()) || strings.Contains(element, "stroke:"+c.String()) {
			return true
		}
	}
	return false
}

func (p Picture) checkTexts(t *testing.T) {
	t.Helper()
	var left, top, width, height float64
	_, _ = fmt.Sscan(p.Box, &left, &top, &width, &height)
	for i, a := range p.Texts {
		if a.X < 0 || a.End() > width+0.1 || a.Y > 0 || a.Y < 8-height {
			t.Errorf("%q is not on the page: from %v to %v, at %v", a.Text, a.X, a.End(), a.Y)
		}
		for _, b := range p.Texts[i+1:] {
			if math.Abs(b.Y-a.Y) < 9 && b.X < a.End() && a.X < b.End() {
				t.Errorf("%q and %q overlap", a.Text, b.Text)
			}
		}
	}
}

// Find returns a text of a picture, and fails the test if it is not there.
func (p Picture) Find(t *testing.T, text string) Text {
	t.Helper()
	for _, found := range p.Texts {
		if found.Text == text {
			return found
		}
	}
	t.Errorf("no %q in %q", text, p.All())
	return Text{}
}

// All returns all texts.
func (p Picture) All() (all []string) {
	for _, t := range p.Texts {
		all = append(all, t.Text)
	}
	return all
}

// Legend fails the test if a text of the legend is missing, or has no sample in this colour beside
// it.
func (p Picture) Legend(t *testing.T, text string, c look.Colour) {
	t.Helper()
	entry := p.Find(t, text)
	for _, path := range p.Paths {
		at := path.Corners()[0]
		if strings.Contains(path.Style, c.String()) && at[0] < entry.X && at[0] > entry.X-35 && math.Abs(at[1]+entry.Y) < 12 {
			return
		}
	}
	t.Errorf("no sample in %s beside %q", c, text)
}
