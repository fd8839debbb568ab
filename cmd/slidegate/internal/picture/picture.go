// Package picture draws what a replay found: when attempts came and were admitted, and how long the denied have to wait.
package picture

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
)

// A Picture is the outcome of a replay under one or more sets of limits.
type Picture struct {
	Title    string
	Zone     string // of the times, such as "UTC"; it may be empty
	Yearless bool   // the log names no year, so neither does the picture
	Sets     []Set
	Timeline *Timeline // for as many sets as there are
}

// Set is what one set of limits did.
type Set struct {
	Name   string // such as "1/5s, 5/1h, 20/1d"
	Waits  *Waits
	Denied int // more than there are waits if some can never be admitted
}

// The measures of a picture, in points: 750 are 1000 pixels.
const (
	pageWidth   = 750
	margin      = 15
	titleRoom   = 25
	legendLine  = 15
	headingRoom = 32  // above each panel
	notesRoom   = 12  // below the axis of times
	panelRoom   = 165 // with its lower axis
)

// colours are those of Okabe and Ito that stand out from white. People who see fewer colours can tell them apart too.
var colours = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, // blue
	{0xd5, 0x5e, 0x00, 0xff}, // vermilion
	{0x00, 0x9e, 0x73, 0xff}, // bluish green
	{0xcc, 0x79, 0xa7, 0xff}, // reddish purple
	{0xe6, 0x9f, 0x00, 0xff}, // orange
	{0x56, 0xb4, 0xe9, 0xff}, // sky blue
	{0x00, 0x00, 0x00, 0xff},
}

var allAttempts = plotter.Line{FillColor: color.RGBA{0xcf, 0xd6, 0xde, 0xff}}

// Draw writes the picture as an SVG, about 1000 pixels wide and 650 high; a long legend makes it higher. The same picture is
// always the same bytes.
func Draw(w io.Writer, p Picture) error {
	top := vg.Length(titleRoom + legendLine*(1+len(p.Sets)))
	svg, page := sheet.New(pageWidth, top+2*(headingRoom+panelRoom)+notesRoom+2*margin, margin)
	page.FillText(sheet.Title, vg.Point{X: page.Min.X, Y: page.Max.Y - 12}, sheet.Fit(sheet.Title, p.Title, pageWidth-2*margin))
	p.drawLegend(draw.Crop(page, 0, 0, 0, -titleRoom))
	times, waits := p.times(), p.waits()
	tiles := draw.Tiles{Rows: 2, Cols: 1, PadY: headingRoom + notesRoom}
	canvases := plot.Align([][]*plot.Plot{{times.Plot}, {waits.Plot}}, tiles, draw.Crop(page, 0, 0, 0, -top-headingRoom))
	times.draw(canvases[0][0])
	waits.draw(canvases[1][0])
	return sheet.Write(w, svg)
}

// look is how the counts of a set are drawn, in a panel and in the legend: as an area if it is the only set.
func (p Picture) look(set int) plotter.Line {
	c := colours[set%len(colours)]
	if len(p.Sets) == 1 {
		return plotter.Line{FillColor: c}
	}
	return plotter.Line{LineStyle: draw.LineStyle{Color: c, Width: 1.2, Dashes: plotutil.Dashes(set / len(colours))}}
}

func (p Picture) drawLegend(c draw.Canvas) {
	attempts := 0
	for _, n := range p.Timeline.attempts() {
		attempts += n
	}
	l := plot.NewLegend()
	l.TextStyle, l.ThumbnailWidth, l.Padding, l.Top, l.Left = sheet.Label, 19, 7, true, true
	l.Add("attempts ("+thousands(attempts)+")", sample{allAttempts})
	for i, s := range p.Sets {
		l.Add("admitted under "+sheet.Fit(sheet.Label, s.Name, 500)+" ("+thousands(s.Denied)+" denied)", sample{p.look(i)})
	}
	l.Draw(c)
}

// A sample of a look is what the legend shows, with some room before the name.
type sample struct{ plotter.Line }

// Thumbnail implements plot.Thumbnailer.
func (s sample) Thumbnail(c *draw.Canvas) {
	narrow := draw.Crop(*c, 0, -3, 0, 0)
	s.Line.Thumbnail(&narrow)
}

// curve draws the counts of bins.
func curve(look plotter.Line, counts []int, edge func(bin int) float64) plot.Plotter {
	look.XYs = steps(counts, edge)
	return &look
}

// times is the upper panel. Its bins are those of the timeline.
func (p Picture) times() panel {
	t := p.Timeline
	name := "Attempts per " + binName(t.width)
	if t.bins() == 0 {
		return panel{emptyPanel("There are no attempts."), name, ""}
	}
	edge := func(bin int) float64 { return float64((t.first + int64(bin)) * t.width) }
	curves := []plot.Plotter{curve(allAttempts, t.attempts(), edge)}
	for i := range p.Sets {
		curves = append(curves, curve(p.look(i), t.admitted(i), edge))
	}
	scale := scaleOf(t.attempts())
	from, to := atLeast(20*float64(t.width), edge(0), edge(t.bins()))
	ticks := newRhythm(from, to, p.Yearless)
	return panel{newPanel(from, to, ticks, scale, append(curves, ticks)...), name, remarks(sheet.Fit(sheet.Remark, p.Zone, 200), scale)}
}

// waits is the lower panel. Each of its bins joins 2 or 4 of those of Waits.
func (p Picture) waits() panel {
	const name = "Denied attempts by the time they have to wait"
	var together Waits
	for _, s := range p.Sets {
		together.Merge(s.Waits)
	}
	if together.Count() == 0 {
		return panel{emptyPanel(p.noWaits()), name, ""}
	}
	least := slices.IndexFunc(together.bins[:], func(n int) bool { return n > 0 })
	most := waitBin(together.Longest())
	join := 4
	if most-least < 6*perOctave {
		join = 2
	}
	octaves := float64(join) / perOctave // of a bin
	edge := func(bin float64) float64 { return float64(shortest) * math.Exp2(bin*octaves) }
	first, last := joinedBin(least, join), joinedBin(most, join)
	var curves []plot.Plotter
	var counts []int
	for i, s := range p.Sets {
		c := s.Waits.joined(join, first, last)
		look := p.look(i)
		if len(p.Sets) == 1 {
			look.FillColor = colours[1] // that of admissions would seem to say that these were admitted
		}
		curves = append(curves, curve(look, c, func(bin int) float64 { return edge(float64(first + bin - 1)) }))
		counts = append(counts, c...)
	}
	scale := scaleOf(counts)
	from, to := atLeast(4/octaves, float64(first-2), float64(last+1))
	lower := newPanel(edge(from), edge(to), plot.TickerFunc(waitTicks), scale, curves...)
	lower.X.Scale = plot.LogScale{}
	return panel{lower, name, remarks(fmt.Sprintf("in steps of %.0f %%", 100*math.Exp2(octaves)-100), scale)}
}

// noWaits tells why there is nothing to draw.
func (p Picture) noWaits() string {
	for _, s := range p.Sets {
		if s.Denied > 0 {
			return "No wait helps those denied: they ask for more than a limit holds."
		}
	}
	return "No attempt is denied."
}

// atLeast widens a range on both sides to a length.
func atLeast(length, from, to float64) (wideFrom, wideTo float64) {
	more := max(0, length-(to-from)) / 2
	return from - more, to + more
}

// remarks are what there is to say about a panel.
func remarks(first string, scale countScale) string {
	return strings.Trim(first+", "+scale.String(), ", ")
}

// binName is the width of a bin, in the largest unit that measures it.
func binName(width int64) string {
	type unit struct {
		seconds   int64
		one, many string
	}
	units := []unit{{7 * day, "week", "weeks"}, {day, "day", "days"}, {hour, "hour", "h"}, {minute, "minute", "min"}, {1, "second", "s"}}
	u := units[slices.IndexFunc(units, func(u unit) bool { return width%u.seconds == 0 })]
	if width == u.seconds {
		return u.one
	}
	return fmt.Sprintf("%d %s", width/u.seconds, u.many)
}
