package picture

import (
	"image/color"
	"math"

	"gonum.org/v1/plot/vg"
)

// A look is how the counts of all attempts, or of one set, are drawn.
type look struct {
	color  color.Color
	dashes []vg.Length
	filled bool
}

// lineLook is that of one set among several.
func lineLook(set int) look {
	l := look{color: colours[set%len(colours)]}
	if round := set / len(colours); round > 0 {
		l.dashes = []vg.Length{vg.Length(2 * round), 1.5}
	}
	return l
}

func (l look) draw(s *sheet, outlines [][]point) {
	if l.filled {
		s.fill(l.color, outlines...)
	} else {
		s.line(l.color, 1.2, l.dashes, outlines...)
	}
}

// An entry is one look in the legend, and what it stands for.
type entry struct {
	look look
	text string
	x    float64
	row  int
}

const sample = 16 // the width of the sample of a look

// layOut puts entries side by side, in as many rows as they need. The distance of two is a multiple of one, so most of those
// below each other begin alike.
func layOut(entries []entry) (rows int) {
	const gap, multiple = 14, 30
	x := float64(margin)
	for i := range entries {
		e := &entries[i]
		width := sample + 5 + label.width(e.text)
		if i > 0 && x+width > pageWidth-margin {
			x, rows = margin, rows+1
		}
		e.x, e.row = x, rows
		x += math.Ceil((width+gap)/multiple) * multiple
	}
	return rows + 1
}

func (e entry) draw(s *sheet) {
	y := s.height - legendTop - float64(e.row*legendLine)
	outline := []point{{e.x, y}, {e.x + sample, y}}
	if e.look.filled {
		outline = []point{{e.x, y - 4}, {e.x + sample, y - 4}, {e.x + sample, y + 4}, {e.x, y + 4}}
	}
	e.look.draw(s, [][]point{outline})
	s.text(label, point{e.x + sample + 5, y - 3}, leftAligned, e.text)
}
