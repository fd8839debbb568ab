package picture

// A panel is one of the two diagrams. Its horizontal unit is a bin.
type panel struct {
	heading  string
	remark   string // to the right of the heading
	empty    string // what to say if there are no curves
	from, to float64
	marks    []mark // along the foot
	scale    scale
	curves   []curve
}

// A curve is a count for each bin from a first one on.
type curve struct {
	look   look
	first  int
	counts []int
}

// A frame is where a panel is on a sheet.
type frame struct{ left, right, foot, top float64 }

func (p *panel) height() float64 {
	if len(p.curves) == 0 {
		return 10
	}
	return panelHeight
}

// gutter is the room for the numbers on the left.
func (p *panel) gutter() (width float64) {
	for _, m := range p.numbers() {
		width = max(width, label.width(m.name))
	}
	return width + 5
}

func (p *panel) numbers() []mark {
	if len(p.curves) == 0 {
		return nil
	}
	return p.scale.marks()
}

func (p *panel) draw(s *sheet, f frame) {
	s.text(heading, point{margin, f.top + 14}, leftAligned, p.heading)
	s.text(remark, point{f.right, f.top + 14}, rightAligned, p.remark)
	if len(p.curves) == 0 {
		s.text(remark, point{margin, f.foot}, leftAligned, p.empty)
		return
	}
	p.drawNumbers(s, f)
	p.drawMarks(s, f)
	for _, c := range p.curves {
		c.look.draw(s, p.outlines(f, c))
	}
	s.line(faint, 0.8, nil, []point{{f.left, f.foot}, {f.right, f.foot}})
}

// drawNumbers draws the lines of the grid that lie.
func (p *panel) drawNumbers(s *sheet, f frame) {
	for _, m := range p.numbers() {
		y := p.at(f, 0, m.at).y
		s.line(rule, 0.6, nil, []point{{f.left, y}, {f.right, y}})
		s.text(label, point{f.left - 5, y - 3}, rightAligned, m.name)
	}
}

// drawMarks draws those that stand. A name near an edge of the page moves in.
func (p *panel) drawMarks(s *sheet, f frame) {
	for i, m := range p.marks {
		x := p.at(f, m.at, 0).x
		s.line(rule, 0.6, nil, []point{{x, f.foot}, {x, f.top}})
		s.line(faint, 0.8, nil, []point{{x, f.foot}, {x, f.foot - 3}})
		s.textInside(label, point{x, f.foot - 13}, m.name)
		if i == 0 || m.note != p.marks[i-1].note {
			s.textInside(remark, point{x, f.foot - 25}, m.note)
		}
	}
}

// at is the place of a number of attempts at a distance from the first bin.
func (p *panel) at(f frame, bin, n float64) point {
	return point{
		f.left + (bin-p.from)/(p.to-p.from)*(f.right-f.left),
		f.foot + p.scale.height(n)*(f.top-f.foot),
	}
}

// outlines go along the steps of a curve, from foot to foot, wherever it is not 0.
func (p *panel) outlines(f frame, c curve) (all [][]point) {
	last := 0
	for i, n := range append(c.counts, 0) {
		if n == last {
			continue
		}
		bin := float64(c.first + i)
		if last == 0 {
			all = append(all, nil)
		}
		run := &all[len(all)-1]
		*run = append(*run, p.at(f, bin, float64(last)), p.at(f, bin, float64(n)))
		last = n
	}
	return all
}
