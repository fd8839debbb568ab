package charts

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Point is a point of a curve.
type Point struct{ X, Y float64 }

// Tick is a mark on an axis.
type Tick struct {
	Value float64
	Label string
}

// Axis is an axis of a plot.
type Axis struct {
	Min, Max float64
	Ticks    []Tick
	Scale    func(float64) float64 // such as math.Log; nil means linear
	Bare     bool                  // its ticks have no lines across the plot
	Label    string                // below the ticks; only of the horizontal axis
}

// norm returns the position of v on the axis, from 0 to 1.
func (a Axis) norm(v float64) float64 {
	scale := a.Scale
	if scale == nil {
		scale = func(v float64) float64 { return v }
	}
	return (scale(v) - scale(a.Min)) / (scale(a.Max) - scale(a.Min))
}

// Ticks returns about five ticks from 0 to top, which must be above 0.
func Ticks(top float64) []Tick {
	return multiples(roundStep(top, 5), top, func(n float64) string { return fmt.Sprintf("%.6g", n) })
}

// Plot is a pair of axes, with everything that is drawn between them.
type Plot struct {
	X, Y    Axis
	Curves  []Curve
	Numbers Numbers
	over    []func(plotted) // what is drawn last
}

// plotted is the area of a plot, without the labels of its axes.
type plotted struct {
	Canvas

	x, y Axis
}

// at returns the position of p on the page.
func (p plotted) at(v Point) Point {
	return Point{p.Left + p.x.norm(v.X)*(p.Right-p.Left), p.Bottom - p.y.norm(v.Y)*(p.Bottom-p.Top)}
}

const (
	axisWidth = 0.8
	axisRoom  = 16 // below the area, for the labels of the horizontal axis
	labelRoom = 14 // below that, for the name of that axis
)

// leftRoom returns the room that the labels of the vertical axis need.
func (p Plot) leftRoom() (most float64) {
	for _, t := range p.Y.Ticks {
		most = max(most, Label.width(t.Label)+5)
	}
	return most
}

// overhang returns how far a label of the horizontal axis, which has the given length, would be to
// the right of the canvas, beyond the space that there is next to it.
func (p Plot) overhang(wide float64) (most float64) {
	const space = 12
	for _, t := range p.X.Ticks {
		most = max(most, Label.width(t.Label)/2-(1-p.X.norm(t.Value))*wide-space)
	}
	return most
}

// Draw draws the plot, including the labels of its axes, on c.
func (p Plot) Draw(c Canvas) { p.draw(c, p.leftRoom()) }

// draw leaves the given room for the labels of the vertical axis.
func (p Plot) draw(c Canvas, left float64) {
	bottom := float64(axisRoom)
	if p.X.Label != "" {
		bottom += labelRoom
		c.Text(Remark.aligned(0.5), (c.Left+left+c.Right)/2, c.Bottom-3, p.X.Label)
	}
	area := plotted{c.Inset(left, 0, max(p.Numbers.room(), p.overhang(c.Right-c.Left-left)), bottom), p.X, p.Y}
	for _, t := range p.X.Ticks {
		x := area.at(Point{X: t.Value, Y: p.Y.Min}).X
		area.rule(p.X, Point{x, area.Top}, Point{x, area.Bottom})
		area.stroke(Faint, axisWidth, "", Point{x, area.Bottom}, Point{x, area.Bottom + 3})
		area.Text(Label.aligned(0.5), x, area.Bottom+13, t.Label)
	}
	for _, t := range p.Y.Ticks {
		y := area.at(Point{X: p.X.Min, Y: t.Value}).Y
		area.rule(p.Y, Point{area.Left, y}, Point{area.Right, y})
		area.Text(Label.aligned(1), area.Left-5, y+3.5, t.Label)
	}
	for _, curve := range p.Curves {
		curve.draw(area)
	}
	area.stroke(Faint, axisWidth, "", Point{area.Left, area.Bottom}, Point{area.Right, area.Bottom})
	p.Numbers.draw(area)
	for _, draw := range p.over {
		draw(area)
	}
}

// rule draws a line of the grid, unless the axis is bare.
func (p plotted) rule(a Axis, from, to Point) {
	if !a.Bare {
		p.stroke(Rule, 0.6, "", from, to)
	}
}

// Curve is a line, an area or dots. Without points, it serves as a sample in a legend.
type Curve struct {
	Colour Colour
	Points []Point
	Dashes string  // of a line, such as "3 3"
	Filled bool    // the points are the corners of an area
	Radius float64 // of dots; if it is not 0, no line connects them
}

func (k Curve) draw(area plotted) {
	var points []Point
	for _, p := range k.Points {
		points = append(points, area.at(p))
	}
	k.drawAt(area.Canvas, points)
}

// sample draws a sample of k that fills c.
func (k Curve) sample(c Canvas) {
	middle := (c.Top + c.Bottom) / 2
	switch {
	case k.Filled:
		k.drawAt(c, []Point{{c.Left, c.Top}, {c.Right, c.Top}, {c.Right, c.Bottom}, {c.Left, c.Bottom}})
	case k.Radius > 0:
		k.drawAt(c, []Point{{(c.Left + c.Right) / 2, middle}})
	default:
		k.drawAt(c, []Point{{c.Left, middle}, {c.Right, middle}})
	}
}

// drawAt draws k through points of the page.
func (k Curve) drawAt(c Canvas, points []Point) {
	switch {
	case len(points) == 0:
	case k.Filled:
		c.fill(k.Colour, points...)
	case k.Radius > 0:
		for _, p := range points {
			c.dot(k.Colour, k.Radius, p)
		}
	default:
		c.stroke(k.Colour, 1.5, k.Dashes, points...)
	}
}

// Number is a label to the right of a point.
type Number struct {
	Point

	Text string
}

// Numbers are drawn to the right of their points. Where points are close together, the labels are
// stacked.
type Numbers []Number

const besidePoint = 5

// room returns the room to the right of a plot that the labels need.
func (n Numbers) room() (most float64) {
	for _, number := range n {
		most = max(most, besidePoint+Label.width(number.Text))
	}
	return most
}

func (n Numbers) draw(area plotted) {
	free := math.Inf(1) // the lowest line on which the next label fits
	for _, number := range slices.SortedFunc(slices.Values(n), func(a, b Number) int { return cmp.Compare(a.Y, b.Y) }) {
		at := area.at(number.Point)
		y := min(free, at.Y+3.5)
		area.Text(Label, at.X+besidePoint, y, number.Text)
		free = y - Label.size
	}
}
