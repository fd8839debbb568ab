package main

import (
	"cmp"
	"encoding/json"
	"fmt"
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

	"github.com/slidegate/slidegate/internal/look"
)

// figures are the numbers of a run that pages and pictures show. They are kept beside the pictures,
// so that these can be drawn again without measuring, and tests compare the pages with them.
type figures struct {
	Run      conditions `json:"run"`
	Server   []bar      `json:"server"`  // the slowest first
	Callers  []curve    `json:"callers"` // decisions a second
	Ratios   []rates    `json:"ratios"`
	Limits   []curve    `json:"limits"`
	Buckets  []curve    `json:"buckets"`
	Memory   *memory    `json:"memory,omitempty"`
	Accuracy []claim    `json:"accuracy,omitempty"`
}

// bar is a contender of the server part, as its row.
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

// rates compares decisions a second of two contenders with one number of callers.
type rates struct {
	pair
	quartiles

	Callers int `json:"callers"`
}

// claim is what an audit found about a contender, as in its table.
type claim struct {
	Name     string  `json:"name"`
	Most     float64 `json:"most"`
	Denied   int     `json:"denied"`
	Needless int     `json:"needless"`
	Waits    string  `json:"waits"`
	Found    string  `json:"found"`
}

// curve is a line in a picture, by the number of callers, limits or buckets.
type curve struct {
	Name   string      `json:"name"`
	Points plotter.XYs `json:"points"`
}

// figuresFile is the name of the file with the figures, in the directory of the pictures.
const figuresFile = "bench.json"

// figures returns what pages and pictures show of a result, in four digits.
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

// series says what its rows increase, and the name of their curve.
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

// rounded returns a number in four digits.
func rounded(x float64) float64 {
	if x == 0 {
		return 0
	}
	digit := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*digit) / digit
}

// special reports whether a row is a special case of another.
func (b bar) special() bool {
	ends := func(end string) bool { return strings.HasSuffix(b.Name, end) }
	return slices.ContainsFunc([]string{", new", ", wide", "denied"}, ends)
}

// save writes the figures and their pictures.
func (f figures) save(dir string) error {
	text, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, figuresFile), append(text, '\n'), 0o644); err != nil {
		return err
	}
	for name, drawn := range f.pictures() {
		if err := os.WriteFile(filepath.Join(dir, name), drawn, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pictures draws the pictures, by the names of their files.
func (f figures) pictures() map[string][]byte {
	return map[string][]byte{
		"bench-server.svg":  f.drawServer(),
		"bench-callers.svg": f.drawCallers(),
		"bench-limits.svg":  drawGrowth("Time in the server by the number of limits, over that of redis_rate", "limits of 4 buckets each", f.Limits),
		"bench-buckets.svg": drawGrowth("Time in the server by the number of buckets, over that of redis_rate", "buckets of one limit", f.Buckets),
	}
}

// drawServer draws a bar for each way to allow an event.
func (f figures) drawServer() []byte {
	const line, around = 15, 30
	p := newPlot(draw.LineStyle{})
	var names []string
	values := &plotter.Labels{Offset: vg.Point{X: besidePoint, Y: 1}}
	for i, b := range slices.DeleteFunc(slices.Clone(f.Server), bar.special) {
		names = append(names, b.Name)
		p.Add(&plotter.BarChart{Values: plotter.Values{b.Ratio}, Width: 0.65 * line, Color: colourOf(b.Name), Horizontal: true, XMin: float64(i)})
		values.XYs = append(values.XYs, plotter.XY{X: b.Ratio, Y: float64(i)})
		values.Labels = append(values.Labels, fmt.Sprintf("%.2f", b.Ratio))
	}
	values.TextStyle = slices.Repeat([]text.Style{ink}, len(names))
	for i := range values.TextStyle {
		values.TextStyle[i].YAlign = draw.YCenter
	}
	p.Add(values)
	p.NominalY(names...)
	p.Y.Tick.Length = 0
	legend := []entry{
		{"Slidegate", &plotter.BarChart{Color: look.Blue}},
		{"other libraries and scripts", &plotter.BarChart{Color: look.Vermilion}},
		{"floors, which decide nothing", &plotter.BarChart{Color: look.Faint}},
	}
	return picture("An allowed event: time in the server, over that of redis_rate", legend, vg.Length(len(names)*line+around), p)
}

// colourOf distinguishes this library, others and floors.
func colourOf(name string) look.Colour {
	switch {
	case strings.HasPrefix(name, "window"), strings.HasPrefix(name, "ar1"):
		return look.Blue
	case strings.HasPrefix(name, "floor"), name == constant:
		return look.Faint
	default:
		return look.Vermilion
	}
}

// callersLines are the contenders in the picture of callers. Those with three limits are dashed.
var callersLines = []struct {
	name   string
	colour look.Colour
	dashes []vg.Length
}{
	{constant, look.Faint, nil},
	{"window", look.Blue, nil},
	{"window.lua", look.Green, nil},
	{"window, 3 limits", look.Blue, []vg.Length{5, 3}},
	{rate, look.Vermilion, nil},
	{"redis_rate, 3 limits", look.Vermilion, []vg.Length{5, 3}},
}

// drawCallers draws a line for some contenders, by the logarithm of the callers.
func (f figures) drawCallers() []byte {
	p := newPlot(grid)
	var legend []entry
	var ends plotter.XYs
	var ticks plot.ConstantTicks
	for _, look := range callersLines {
		i := slices.IndexFunc(f.Callers, func(c curve) bool { return c.Name == look.name })
		if i < 0 {
			continue
		}
		var points plotter.XYs
		ticks = nil
		for _, at := range f.Callers[i].Points {
			points = append(points, plotter.XY{X: math.Log2(at.X), Y: at.Y / 1000})
			ticks = append(ticks, plot.Tick{Value: math.Log2(at.X), Label: fmt.Sprint(at.X)})
		}
		style := draw.LineStyle{Color: look.colour, Width: 1.5, Dashes: look.dashes}
		legend = append(legend, entry{look.name, addCurve(p, points, style)})
		ends = append(ends, end(points))
	}
	p.Add(numbers{"%.1f", ends})
	p.X.Tick.Marker, p.X.Label.Text = ticks, "callers"
	return picture("Thousand decisions a second, by callers at a time", legend, 230, p)
}

// drawGrowth draws a line for each series of rows.
func drawGrowth(title, x string, curves []curve) []byte {
	p := newPlot(grid)
	var legend []entry
	var ends plotter.XYs
	for i, c := range curves {
		style := draw.LineStyle{Color: []look.Colour{look.Blue, look.Vermilion}[i], Width: 1.5}
		legend = append(legend, entry{c.Name, addCurve(p, c.Points, style)})
		ends = append(ends, end(c.Points))
	}
	p.Add(numbers{"%.2f", ends})
	p.X.Label.Text = x
	return picture(title, legend, 180, p)
}
