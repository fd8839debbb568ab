package charts

import "slices"

// Panel dimensions, in points.
const (
	headingRoom = 32  // above each panel
	notesRoom   = 12  // below the time axis
	panelRoom   = 165 // including its lower axis
)

// newPanel returns a plot whose horizontal axis runs from left to right, and whose vertical axis
// shows counts.
func newPanel(left, right float64, ticks []Tick, counts countAxis, curves ...Curve) Plot {
	return Plot{X: Axis{Min: left, Max: right, Ticks: ticks}, Y: counts.axis(), Curves: curves}
}

// emptyPanel returns a plot that says why there is nothing to draw.
func emptyPanel(why string) Plot {
	return Plot{X: Axis{Max: 1}, Y: Axis{Max: 1}, over: []func(plotted){func(area plotted) {
		area.Text(Remark.aligned(0.5), (area.Left+area.Right)/2, (area.Top+area.Bottom)/2, why)
	}}}
}

// column is a heading with a remark, above plots that share their scales.
type column struct {
	name, remark string
	panels       []Plot
}

// only returns a column with a single plot. It shortens the remark to fit the page.
func only(name, remark string, p Plot) column {
	return column{name, Remark.fit(remark, width-Heading.width(name)-8), []Plot{p}}
}

// drawHeading writes a name and a remark on the line at y.
func (c Canvas) drawHeading(y float64, name, remark string) {
	c.Text(Heading, c.Left, y, name)
	c.Text(Remark, c.Left+Heading.width(name)+8, y, remark)
}

// drawStack returns a chart that stacks columns of one panel each. Each panel has the given height
// and its own heading above it.
func drawStack(title string, l Legend, room float64, stack ...column) string {
	page := NewPage(PageWidth, title, l, float64(len(stack))*(headingRoom+room+notesRoom)-notesRoom)
	var panels []Plot
	for _, s := range stack {
		panels = append(panels, s.panels...)
	}
	for i, place := range drawAligned(panels, page.Inset(0, headingRoom, 0, 0), headingRoom+notesRoom) {
		place.drawHeading(place.Top-8, stack[i].name, stack[i].remark)
	}
	return page.SVG()
}

// drawAligned stacks panels with the given gap between them and aligns their sides. It returns
// their canvases.
func drawAligned(panels []Plot, c Canvas, gap float64) (places []Canvas) {
	var left float64
	for _, panel := range panels {
		left = max(left, panel.leftRoom())
	}
	for i, panel := range panels {
		place := c.Row(i, len(panels), gap)
		panel.draw(place, left)
		places = append(places, place)
	}
	return places
}

// peakOf returns a function that writes the highest of the counts above its bin. If several bins
// are equally high, the first is used. All bins may be empty.
func peakOf(counts []int, edge func(bin int) float64) func(plotted) {
	highest := slices.Max(counts)
	bin := slices.Index(counts, highest)
	return func(area plotted) {
		if highest == 0 {
			return
		}
		label := Thousands(highest)
		room := Label.width(label) / 2
		top := area.at(Point{(edge(bin) + edge(bin+1)) / 2, float64(highest)})
		area.Text(Label.aligned(0.5), max(area.Left+room, min(area.Right-room, top.X)), top.Y-2.5, label)
	}
}

// area returns the given counts as an area.
func area(c Colour, counts []int, edge func(bin int) float64) Curve {
	var points []Point
	last := 0
	for i, n := range append(counts, 0) {
		if n != last {
			points = append(points, Point{edge(i), float64(last)}, Point{edge(i), float64(n)})
		}
		last = n
	}
	return Curve{Colour: c, Points: points, Filled: true}
}
