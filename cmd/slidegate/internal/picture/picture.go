// Package picture draws what a replay found: when attempts came and were admitted, and how long the denied have to wait.
package picture

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"
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
	panelHeight = 150
	headingRoom = 28 // above each panel
	timesRoom   = 32 // below the upper panel
	waitsRoom   = 20 // below the lower one
	legendTop   = 46 // from the upper edge to the middle of the first line of the legend
	legendLine  = 15
)

var (
	ink   = color.Gray{0x22}
	faint = color.Gray{0x66}
	rule  = color.Gray{0xe6}

	title   = style{bold, 14, ink}
	heading = style{bold, 10, ink}
	remark  = style{regular, 9, faint}
	label   = style{regular, 9, ink}

	allAttempts = look{color: color.RGBA{0xcf, 0xd6, 0xde, 0xff}, filled: true}
	admitted    = look{color: colours[0], filled: true}
	denied      = look{color: colours[1], filled: true}
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

// Draw writes the picture as an SVG, about 1000 pixels wide and 640 high; a long legend makes it higher, and a log without
// denials less high. The same picture is always the same bytes.
func Draw(w io.Writer, p Picture) error {
	legend, times, waits := p.legend(), p.times(), p.waits()
	top := float64(legendTop + layOut(legend)*legendLine + headingRoom)
	below := timesRoom + headingRoom + waits.height() + waitsRoom
	s := newSheet(pageWidth, top+times.height()+below)
	s.text(title, point{margin, s.height - 26}, leftAligned, title.fit(p.Title, pageWidth-2*margin))
	for _, e := range legend {
		e.draw(s)
	}
	left := margin + max(times.gutter(), waits.gutter())
	times.draw(s, frame{left, pageWidth - 2*margin, below, below + times.height()})
	waits.draw(s, frame{left, pageWidth - 2*margin, waitsRoom, waitsRoom + waits.height()})
	return s.writeTo(w)
}

func (p Picture) legend() []entry {
	attempts := 0
	for _, n := range p.Timeline.attempts() {
		attempts += n
	}
	entries := []entry{{look: allAttempts, text: "attempts (" + thousands(attempts) + ")"}}
	for i, s := range p.Sets {
		text := label.fit(s.Name, 220) // leaves room for two in a row
		if len(p.Sets) == 1 {
			text = "admitted under " + label.fit(s.Name, 400)
		}
		entries = append(entries, entry{look: p.look(i, admitted), text: text + " (" + thousands(s.Denied) + " denied)"})
	}
	return entries
}

// look is that of a set among several, or of what became of the attempts if it is the only one.
func (p Picture) look(set int, only look) look {
	if len(p.Sets) == 1 {
		return only
	}
	return lineLook(set)
}

// times is the upper panel. Its bins are those of the timeline.
func (p Picture) times() *panel {
	t := p.Timeline
	times := &panel{heading: "Attempts and admissions per " + binName(t.width), empty: "There are no attempts."}
	if t.bins() == 0 {
		return times
	}
	times.curves = []curve{{allAttempts, 0, t.attempts()}}
	for i := range p.Sets {
		times.curves = append(times.curves, curve{p.look(i, admitted), 0, t.admitted(i)})
	}
	times.scale = newScale(t.attempts())
	times.remark = remarks(p.Zone, times.scale.String())
	times.from, times.to = atLeast(20, 0, float64(t.bins()))
	width, first := float64(t.width), float64(t.first)
	for _, m := range timeMarks((first+times.from)*width, (first+times.to)*width, p.Yearless) {
		m.at = m.at/width - first
		times.marks = append(times.marks, m)
	}
	return times
}

// waits is the lower panel. Each of its bins joins 2 or 4 of those of Waits.
func (p Picture) waits() *panel {
	waits := &panel{heading: "Denied attempts by the time they have to wait", empty: p.noWaits()}
	least, most := p.waitBins()
	if most < 0 {
		return waits
	}
	join := 4
	if most-least < 6*perOctave {
		join = 2
	}
	first, last := joinedBin(least, join), joinedBin(most, join)
	var all []int
	for i, s := range p.Sets {
		c := curve{p.look(i, denied), first - 1, s.Waits.joined(join, first, last)}
		waits.curves = append(waits.curves, c)
		all = append(all, c.counts...)
	}
	waits.scale = newScale(all)
	waits.remark = remarks(fmt.Sprintf("in steps of %.0f %%", 100*math.Exp2(float64(join)/perOctave)-100), waits.scale.String())
	waits.from, waits.to = atLeast(4*perOctave/float64(join), float64(first-2), float64(last+1))
	for _, m := range waitMarks(waits.from*float64(join), waits.to*float64(join)) {
		m.at /= float64(join)
		waits.marks = append(waits.marks, m)
	}
	return waits
}

// waitBins are the first and the last bin that a wait is in, or -1.
func (p Picture) waitBins() (least, most int) {
	least, most = waitBins, -1
	for _, s := range p.Sets {
		for i, n := range s.Waits.bins {
			if n > 0 {
				least, most = min(least, i), max(most, i)
			}
		}
	}
	return least, most
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

// remarks are put side by side.
func remarks(all ...string) string {
	all = slices.DeleteFunc(all, func(s string) bool { return s == "" })
	return strings.Join(all, ", ")
}

// binName is the width of a bin, in the largest unit that measures it.
func binName(width int64) string {
	for _, u := range []struct {
		seconds   int64
		one, many string
	}{{7 * day, "week", "weeks"}, {day, "day", "days"}, {hour, "hour", "h"}, {minute, "minute", "min"}} {
		if width == u.seconds {
			return u.one
		}
		if width%u.seconds == 0 {
			return thousands(int(width/u.seconds)) + " " + u.many
		}
	}
	if width == 1 {
		return "second"
	}
	return fmt.Sprintf("%d s", width)
}
