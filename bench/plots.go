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
	Name   string         `json:"name"`
	Points []charts.Point `json:"points"`
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
				c.Points = append(c.Points, charts.Point{X: float64(row.Callers), Y: rounded(row.Medians[decisions])})
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
				c.Points = append(c.Points, charts.Point{X: float64(row.Size), Y: rounded(row.Ratio)})
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
	for name, draw := range f.pictures() {
		if err := charts.Save(filepath.Join(dir, name), draw); err != nil {
			return err
		}
	}
	return nil
}

// pictures returns the functions that draw the pictures, by file name.
func (f figures) pictures() map[string]func() string {
	return map[string]func() string{
		"bench-most.svg":    f.most,
		"bench-server.svg":  f.serverTimes,
		"bench-callers.svg": f.byCallers,
		"bench-limits.svg": func() string {
			return growing("Time in the server by the number of limits, over that of redis_rate", "limits of 4 buckets each", f.Limits)
		},
		"bench-buckets.svg": func() string {
			return growing("Time in the server by the number of buckets, over that of redis_rate", "buckets of one limit", f.Buckets)
		},
	}
}

// inReadme lists the limiters in the README's picture, from the bottom up.
var inReadme = []string{"ulule", "throttled", rate, "window"}

// most returns a bar for each limiter in inReadme, which shows the most that an attack got through
// in a second.
func (f figures) most() string {
	const line, around = 26, 30
	bars := newBars("ulule/limiter", "throttled", "redis_rate", "Slidegate")
	for _, c := range f.Accuracy {
		if i := slices.Index(inReadme, c.Name); i >= 0 {
			bars.add(i, math.Round(c.Most*float64(attacked.max)), "%.0f", colourOf(c.Name))
		}
	}
	limit := charts.Curve{Colour: charts.Ink, Dashes: "4 2", Points: []charts.Point{{X: float64(attacked.max), Y: -0.5}, {X: float64(attacked.max), Y: 3.5}}}
	bars.Curves = append(bars.Curves, limit)
	legend := charts.Legend{{Name: fmt.Sprintf("the limit: %d per second", attacked.max), Sample: limit}}
	page := charts.NewPage(charts.NarrowWidth, "Most allowed in any second", legend, 4*line+around)
	bars.draw(page)
	return page.SVG()
}

// bars is a plot of horizontal bars from the bottom up, each with its value.
type bars struct{ charts.Plot }

// newBars returns a plot for bars with the given names, whose axis reaches to 1 or further.
func newBars(names ...string) *bars {
	b := &bars{charts.Plot{X: charts.Axis{Max: 1}, Y: charts.Axis{Min: -0.5, Max: float64(len(names)) - 0.5, Bare: true}}}
	for i, name := range names {
		b.Y.Ticks = append(b.Y.Ticks, charts.Tick{Value: float64(i), Label: name})
	}
	return b
}

func (b *bars) add(i int, value float64, format string, c charts.Colour) {
	const half = 0.325 // of the width of a bar
	low, high := float64(i)-half, float64(i)+half
	b.Curves = append(b.Curves, charts.Curve{Colour: c, Filled: true, Points: []charts.Point{{Y: low}, {X: value, Y: low}, {X: value, Y: high}, {Y: high}}})
	b.Numbers = append(b.Numbers, charts.Number{Point: charts.Point{X: value, Y: float64(i)}, Text: fmt.Sprintf(format, value)})
	b.X.Max = max(b.X.Max, value)
}

// draw draws the bars below the page's legend.
func (b *bars) draw(page charts.Canvas) {
	b.X.Ticks = charts.Ticks(b.X.Max)
	b.Draw(page.Inset(0, belowLegend, 0, 0))
}

const belowLegend = 8

// serverTimes returns a bar for each way to allow an event.
func (f figures) serverTimes() string {
	const line, around = 15, 30
	all := slices.DeleteFunc(slices.Clone(f.Server), bar.special)
	var names []string
	for _, b := range all {
		names = append(names, b.Name)
	}
	bars := newBars(names...)
	for i, b := range all {
		bars.add(i, b.Ratio, "%.2f", colourOf(b.Name))
	}
	page := charts.NewPage(charts.PageWidth, "An allowed event: time in the server, over that of redis_rate", charts.Legend{
		{Name: "Slidegate", Sample: charts.Curve{Colour: charts.Blue, Filled: true}},
		{Name: "other libraries and scripts", Sample: charts.Curve{Colour: charts.Vermilion, Filled: true}},
		{Name: "floors, which decide nothing", Sample: charts.Curve{Colour: charts.Faint, Filled: true}},
	}, float64(len(names)*line+around))
	bars.draw(page)
	return page.SVG()
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
	dashes string
}{
	{constant, charts.Faint, ""},
	{"window", charts.Blue, ""},
	{"window.lua", charts.Green, ""},
	{"window, 3 limits", charts.Blue, "5 3"},
	{rate, charts.Vermilion, ""},
	{"redis_rate, 3 limits", charts.Vermilion, "5 3"},
}

// byCallers returns a picture with a line for each of several contenders, over the logarithm of the
// number of callers.
func (f figures) byCallers() string {
	p := newLines("%.1f")
	for _, look := range callersLines {
		i := slices.IndexFunc(f.Callers, func(c curve) bool { return c.Name == look.name })
		if i < 0 {
			continue
		}
		line := charts.Curve{Colour: look.colour, Dashes: look.dashes}
		p.X.Ticks = nil
		for _, at := range f.Callers[i].Points {
			line.Points = append(line.Points, charts.Point{X: math.Log2(at.X), Y: at.Y / 1000})
			p.X.Ticks = append(p.X.Ticks, charts.Tick{Value: math.Log2(at.X), Label: fmt.Sprint(at.X)})
		}
		p.add(look.name, line)
	}
	p.X.Label = "callers"
	return p.draw("Thousand decisions a second, by callers at a time", 230)
}

// growing returns a picture with a line for each series of rows.
func growing(title, x string, curves []curve) string {
	p := newLines("%.2f")
	for i, c := range curves {
		p.add(c.Name, charts.Curve{Colour: []charts.Colour{charts.Blue, charts.Vermilion}[i], Points: c.Points})
	}
	p.X.Label, p.X.Ticks = x, charts.Ticks(p.X.Max)
	return p.draw(title, 180)
}

// lines is a plot of lines, with a dot at each value and each line's last value as a number.
type lines struct {
	charts.Plot

	legend charts.Legend
	format string
}

// newLines returns an empty plot, whose axes reach to 1 or further.
func newLines(format string) *lines {
	return &lines{Plot: charts.Plot{X: charts.Axis{Max: 1}, Y: charts.Axis{Max: 1}}, format: format}
}

func (p *lines) add(name string, line charts.Curve) {
	p.legend = append(p.legend, charts.Entry{Name: name, Sample: line})
	p.Curves = append(p.Curves, line, charts.Curve{Colour: line.Colour, Points: line.Points, Radius: 2.5})
	for _, at := range line.Points {
		p.X.Max, p.Y.Max = max(p.X.Max, at.X), max(p.Y.Max, at.Y)
	}
	last := line.Points[len(line.Points)-1]
	p.Numbers = append(p.Numbers, charts.Number{Point: last, Text: fmt.Sprintf(p.format, last.Y)})
}

// draw returns a picture with the plot, which has the given height.
func (p *lines) draw(title string, height float64) string {
	p.Y.Ticks = charts.Ticks(p.Y.Max)
	page := charts.NewPage(charts.PageWidth, title, p.legend, belowLegend+height)
	p.Draw(page.Inset(0, belowLegend, 0, 0))
	return page.SVG()
}
