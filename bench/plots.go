package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidegate/slidegate/cmd/slidegate/charts"
)

// figures holds the figures of a run that pages and pictures show. They are stored next to the
// pictures, so that pictures can be redrawn without measuring again, and tests can compare the
// tables with them.
type figures struct {
	Run      conditions `json:"run"`
	Server   []bar      `json:"server"`  // the slowest first
	Callers  []curve    `json:"callers"` // decisions per second
	Ratios   []rates    `json:"ratios"`
	Limits   []curve    `json:"limits"`
	Buckets  []curve    `json:"buckets"`
	Memory   *memory    `json:"memory,omitempty"`
	Accuracy []claim    `json:"accuracy,omitempty"`
}

// bar holds the figures of a contender in the server part, as in its table row.
type bar struct {
	Name       string  `json:"name"`
	Ratio      float64 `json:"ratio"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Process    float64 `json:"process_us"`
	Allocs     float64 `json:"allocs"`
	Event      float64 `json:"bytes_per_event,omitempty"`
	Replicated float64 `json:"bytes_replicated"`
}

// rates compares the decisions per second of two contenders for one number of callers.
type rates struct {
	pair
	quartiles

	Callers int `json:"callers"`
}

// claim is what the attacks on a contender showed, as in the table.
type claim struct {
	Name     string  `json:"name"`
	Most     float64 `json:"most"`
	Denied   int     `json:"denied"`
	Needless int     `json:"needless"`
	Waits    string  `json:"waits"`
	Found    string  `json:"found"`
}

// curve is a line in a picture. Its x axis is the number of callers, limits or buckets.
type curve struct {
	Name   string      `json:"name"`
	Points plotter.XYs `json:"points"`
}

// figuresFile is the name of the file that holds the figures. It is in the same directory as the
// pictures.
const figuresFile = "bench.json"

// figures returns the part of a result that pages and pictures show, rounded to four digits.
func (r result) figures() figures {
	f := figures{
		Run:     r.conditions,
		Memory:  r.Memory,
		Limits:  r.growth(series{"limits", "window, allowed"}),
		Buckets: r.growth(series{"buckets, allowed", "window, allowed"}, series{"buckets, denied", "window, denied"}),
	}
	for _, row := range r.Rows {
		if row.Grows == "" {
			f.Server = append(f.Server, bar{
				row.Name, rounded(row.Ratio), rounded(row.Low), rounded(row.High),
				rounded(row.Process), rounded(row.Allocs), rounded(row.Event), rounded(row.Replicated),
			})
		}
	}
	slices.SortStableFunc(f.Server, func(a, b bar) int { return cmp.Compare(b.Ratio, a.Ratio) })
	for _, p := range r.Throughput.Ratios {
		of := p.Ratios[decisions]
		f.Ratios = append(f.Ratios, rates{p.pair, quartiles{rounded(of.Median), rounded(of.Low), rounded(of.High)}, p.Callers})
	}
	for _, a := range r.Accuracy {
		f.Accuracy = append(f.Accuracy, claim{a.Name, a.Most, a.Denied, a.Needless, a.waits(), a.found()})
	}
	for _, line := range callersLines {
		c := curve{Name: line.name}
		for _, row := range r.Throughput.Rows {
			if row.Name == line.name {
				c.Points = append(c.Points, plotter.XY{X: float64(row.Callers), Y: rounded(row.Medians[decisions])})
			}
		}
		if c.Points != nil {
			f.Callers = append(f.Callers, c)
		}
	}
	return f
}

// series names what its rows increase, and their curve.
type series struct{ grows, name string }

// growth returns a curve for each series of rows.
func (r result) growth(of ...series) (all []curve) {
	for _, s := range of {
		c := curve{Name: s.name}
		for _, row := range r.Rows {
			if row.Grows == s.grows {
				c.Points = append(c.Points, plotter.XY{X: float64(row.Size), Y: rounded(row.Ratio)})
			}
		}
		if c.Points != nil {
			all = append(all, c)
		}
	}
	return all
}

// rounded returns x rounded to four digits.
func rounded(x float64) float64 {
	if x == 0 {
		return 0
	}
	digit := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*digit) / digit
}

// special reports whether a row shows a special case of another row.
func (b bar) special() bool {
	ends := func(end string) bool { return strings.HasSuffix(b.Name, end) }
	return slices.ContainsFunc([]string{", new", ", wide", "denied"}, ends)
}

// save writes the figures and the pictures.
func (f figures) save(dir string) error {
	text, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, figuresFile), append(text, '\n'), 0o644); err != nil {
		return err
	}
	for name, d := range f.diagrams() {
		if err := charts.Save(filepath.Join(dir, name), d.write); err != nil {
			return err
		}
	}
	return nil
}

// diagram is a picture. It consists of a plot of the given height below a title and a legend, on a
// page as wide as a phone or wider.
type diagram struct {
	*plot.Plot

	title  string
	legend charts.Legend
	height vg.Length
	narrow bool
}

// write writes the picture.
func (d diagram) write(w io.Writer, f charts.Format) error {
	const gap = 8 // below the legend
	newPage := charts.NewPage
	if d.narrow {
		newPage = charts.NewNarrowPage
	}
	page := newPage(f, d.title, d.legend, gap+d.height)
	d.Draw(draw.Crop(page.Canvas, 0, 0, 0, -gap))
	return page.Write(w)
}

// diagrams returns the pictures by file name.
func (f figures) diagrams() map[string]diagram {
	return map[string]diagram{
		"bench-most.svg":    f.most(),
		"bench-server.svg":  f.serverTimes(),
		"bench-callers.svg": f.byCallers(),
		"bench-limits.svg":  growing("Time in the server by the number of limits, over that of redis_rate", "limits of 4 buckets each", f.Limits),
		"bench-buckets.svg": growing("Time in the server by the number of buckets, over that of redis_rate", "buckets of one limit", f.Buckets),
	}
}

// inReadme lists the limiters in the README's picture, from the bottom up.
var inReadme = []string{"ulule", "throttled", rate, "window"}

// most returns a bar for each limiter in inReadme, which shows the most that an attack got through
// in a second.
func (f figures) most() diagram {
	const line, around = 26, 30
	bars := newBars(line, "%.0f")
	for _, c := range f.Accuracy {
		if i := slices.Index(inReadme, c.Name); i >= 0 {
			bars.add(i, math.Round(c.Most*float64(attacked.max)), colourOf(c.Name))
		}
	}
	limit := charts.Line(charts.Ink, plotter.XYs{{X: float64(attacked.max), Y: -0.6}, {X: float64(attacked.max), Y: 3.6}}, 4, 2)
	bars.Add(limit)
	bars.finish("ulule/limiter", "throttled", "redis_rate", "Slidegate")
	bars.X.Max = 45
	legend := charts.Legend{{Name: fmt.Sprintf("the limit: %d per second", attacked.max), Sample: limit}}
	return diagram{bars.Plot, "Most allowed in any second", legend, 4*line + around, true}
}

// bars draws horizontal bars from the bottom up, each with its value.
type bars struct {
	*plot.Plot

	line   vg.Length // the height of a bar
	format string
	values *plotter.Labels
}

func newBars(line vg.Length, format string) bars {
	p := charts.NewPlot()
	p.Add(&plotter.Grid{Vertical: charts.Grid.Vertical})
	return bars{p, line, format, &plotter.Labels{Offset: vg.Point{X: besidePoint, Y: 1}}}
}

func (b bars) add(i int, value float64, c charts.Colour) {
	b.Add(&plotter.BarChart{Values: plotter.Values{value}, Width: 0.65 * b.line, Color: c, Horizontal: true, XMin: float64(i)})
	b.values.XYs = append(b.values.XYs, plotter.XY{X: value, Y: float64(i)})
	b.values.Labels = append(b.values.Labels, fmt.Sprintf(b.format, value))
}

// finish adds the values and names of the bars.
func (b bars) finish(names ...string) {
	label := charts.Label
	label.YAlign = draw.YCenter
	b.values.TextStyle = slices.Repeat([]text.Style{label}, len(b.values.Labels))
	b.Add(b.values)
	b.NominalY(names...)
	b.X.Min, b.Y.Tick.Length = 0, 0
}

// serverTimes returns a bar for each way to allow an event.
func (f figures) serverTimes() diagram {
	const line, around = 15, 30
	var names []string
	bars := newBars(line, "%.2f")
	for i, b := range slices.DeleteFunc(slices.Clone(f.Server), bar.special) {
		names = append(names, b.Name)
		bars.add(i, b.Ratio, colourOf(b.Name))
	}
	bars.finish(names...)
	legend := charts.Legend{
		{Name: "Slidegate", Sample: &plotter.BarChart{Color: charts.Blue}},
		{Name: "other libraries and scripts", Sample: &plotter.BarChart{Color: charts.Vermilion}},
		{Name: "floors, which decide nothing", Sample: &plotter.BarChart{Color: charts.Faint}},
	}
	return diagram{bars.Plot, "An allowed event: time in the server, over that of redis_rate", legend, vg.Length(len(names)*line + around), false}
}

// colourOf returns different colours for this library, for other libraries, and for floors.
func colourOf(name string) charts.Colour {
	switch {
	case strings.HasPrefix(name, "window"), strings.HasPrefix(name, "ar1"):
		return charts.Blue
	case strings.HasPrefix(name, "floor"), name == constant:
		return charts.Faint
	default:
		return charts.Vermilion
	}
}

// callersLines lists the contenders in the picture of callers. The lines of those with three limits
// are dashed.
var callersLines = []struct {
	name   string
	colour charts.Colour
	dashes []vg.Length
}{
	{constant, charts.Faint, nil},
	{"window", charts.Blue, nil},
	{"window.lua", charts.Green, nil},
	{"window, 3 limits", charts.Blue, []vg.Length{5, 3}},
	{rate, charts.Vermilion, nil},
	{"redis_rate, 3 limits", charts.Vermilion, []vg.Length{5, 3}},
}

// byCallers returns a picture with a line for each of several contenders, over the logarithm of the
// number of callers.
func (f figures) byCallers() diagram {
	d := diagram{Plot: charts.NewPlot(), title: "Thousand decisions a second, by callers at a time", height: 230}
	var lines []*plotter.Line
	var ticks plot.ConstantTicks
	for _, look := range callersLines {
		i := slices.IndexFunc(f.Callers, func(c curve) bool { return c.Name == look.name })
		if i < 0 {
			continue
		}
		line := charts.Line(look.colour, nil, look.dashes...)
		ticks = nil
		for _, at := range f.Callers[i].Points {
			line.XYs = append(line.XYs, plotter.XY{X: math.Log2(at.X), Y: at.Y / 1000})
			ticks = append(ticks, plot.Tick{Value: math.Log2(at.X), Label: fmt.Sprint(at.X)})
		}
		lines = append(lines, line)
		d.legend = append(d.legend, charts.Entry{Name: look.name, Sample: line})
	}
	d.X.Tick.Marker, d.X.Label.Text = ticks, "callers"
	d.addCurves("%.1f", lines)
	return d
}

// growing returns a picture with a line for each series of rows.
func growing(title, x string, curves []curve) diagram {
	d := diagram{Plot: charts.NewPlot(), title: title, height: 180}
	var lines []*plotter.Line
	for i, c := range curves {
		line := charts.Line([]charts.Colour{charts.Blue, charts.Vermilion}[i], c.Points)
		lines = append(lines, line)
		d.legend = append(d.legend, charts.Entry{Name: c.Name, Sample: line})
	}
	d.X.Label.Text = x
	d.addCurves("%.2f", lines)
	return d
}

// addCurves adds the lines, with a dot at each value and each line's last value as a number.
func (d diagram) addCurves(format string, lines []*plotter.Line) {
	d.Add(charts.Grid)
	ends := numbers{format: format}
	for _, l := range lines {
		dots := draw.GlyphStyle{Color: l.Color, Radius: 2.5, Shape: draw.CircleGlyph{}}
		d.Add(l, &plotter.Scatter{XYs: l.XYs, GlyphStyle: dots})
		ends.values = append(ends.values, l.XYs[l.Len()-1])
	}
	d.Add(ends)
	d.X.Min, d.Y.Min = 0, 0
}

// numbers draws labels to the right of points. Where points are close together, it stacks the
// labels vertically.
type numbers struct {
	format string
	values plotter.XYs // each number is the value of Y
}

// Plot implements plot.Plotter.
func (n numbers) Plot(c draw.Canvas, p *plot.Plot) {
	s, free := charts.Label, c.Min.Y-charts.Label.Font.Size
	s.YAlign = draw.YCenter
	slices.SortFunc(n.values, func(a, b plotter.XY) int { return cmp.Compare(a.Y, b.Y) })
	for _, v := range n.values {
		y := max(free, c.Y(p.Y.Norm(v.Y))+1)
		c.FillText(s, vg.Point{X: c.X(p.X.Norm(v.X)) + besidePoint, Y: y}, fmt.Sprintf(n.format, v.Y))
		free = y + s.Font.Size
	}
}

const besidePoint = 5

// GlyphBoxes implements plot.GlyphBoxer, to reserve space at the right edge.
func (n numbers) GlyphBoxes(p *plot.Plot) (boxes []plot.GlyphBox) {
	for _, v := range n.values {
		right := vg.Point{X: besidePoint + charts.Label.Width(fmt.Sprintf(n.format, v.Y))}
		boxes = append(boxes, plot.GlyphBox{X: p.X.Norm(v.X), Y: p.Y.Norm(v.Y), Rectangle: vg.Rectangle{Max: right}})
	}
	return boxes
}
