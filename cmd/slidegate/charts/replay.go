package charts

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Replay represents the outcome of a replay under one or more sets of limits: when attempts were
// made, which were allowed, and how long the denied ones have to wait.
type Replay struct {
	Title    string
	Zone     string // of the times, such as "UTC"; may be empty
	Yearless bool   // the log's timestamps have no years, so the chart shows none
	Sets     []Set
	Timeline *Timeline // with one column for each set
}

// Set represents the outcome of a replay under one set of limits.
type Set struct {
	Name   string // such as "1/5s, 5/1h, 20/1d"
	Waits  *Waits
	Denied int // more than the number of waits if some attempts can never be allowed
}

// Draw writes the chart. A single set of limits gets two panels, one above the other. If there are
// several sets, each gets a row of smaller panels, and all rows share their scales. The output is
// deterministic: the same chart always gives the same bytes.
func (r Replay) Draw(w io.Writer, f Format) error {
	if len(r.Sets) > 1 {
		return r.drawRows(w, f)
	}
	set := r.Sets[0]
	legend := r.legend("allowed under " + fit(Label, set.Name, 500) + " (" + Thousands(set.Denied) + " denied)")
	return drawStack(w, f, r.Title, legend, panelRoom, r.times(width, panelRoom), r.waits(width, panelRoom))
}

// drawRows draws one row per set: the set's name, with its panels below.
func (r Replay) drawRows(w io.Writer, f Format) error {
	const room, gutter = 96, 16 // the height of a panel, and the gap between the panels of a row
	const timesWidth = 0.62*width - gutter
	rows := vg.Length(len(r.Sets))
	page := NewPage(f, r.Title, r.legend("allowed"), rows*(headingRoom+room)+headingRoom/2+notesRoom)
	r.waits(width-timesWidth-gutter, room).draw(draw.Crop(page.Canvas, timesWidth+gutter, 0, 0, 0))
	for i, panel := range r.times(timesWidth, room).draw(draw.Crop(page.Canvas, 0, timesWidth-width, 0, 0)) {
		set, allowed := r.Sets[i], r.Timeline.total(1+i)
		remark := Thousands(allowed) + " allowed, " + Thousands(set.Denied) + " denied"
		drawHeading(panel, page.Min.X, fit(Heading, set.Name, width-Remark.Width(remark)-10), remark)
	}
	return page.Write(w)
}

// draw draws the panels of all sets below their common heading, from top to bottom. It returns
// their canvases.
func (c column) draw(room draw.Canvas) []draw.Canvas {
	drawHeading(draw.Crop(room, 0, 0, 0, -headingRoom/2-8), room.Min.X, c.name, c.remark)
	return drawAligned(c.panels, draw.Crop(room, 0, 0, notesRoom, -headingRoom*3/2), headingRoom)
}

func (r Replay) legend(ofAllowed string) Legend {
	return Legend{
		{"attempts (" + Thousands(r.Timeline.total(0)) + ")", filled(Shade)},
		{ofAllowed, filled(Blue)},
		{"denied, by how long they have to wait", filled(Vermilion)},
	}
}

// times returns the panels that show attempts over time. Each panel has the given size.
func (r Replay) times(wide, high vg.Length) column {
	t := r.Timeline
	c := column{name: "Attempts per " + binName(t.width)}
	if t.bins() == 0 {
		return c.empty(r.Sets, func(Set) string { return "There are no attempts." })
	}
	f := r.timeFrame(wide, high)
	for i := range r.Sets {
		c.panels = append(c.panels, f.panel(area(Shade, t.attempts(), t.edge), area(Blue, t.allowed(i), t.edge), peakOf(t.attempts(), t.edge)))
	}
	c.panels[len(c.panels)-1].Add(f.ticks) // the dates
	c.remark = remarks(fit(Remark, r.Zone, 200), f.counts)
	return c
}

// timeFrame holds the scales that all panels of attempts in a chart share.
type timeFrame struct {
	from, to float64
	ticks    tickStep
	counts   countAxis
}

// timeFrame returns the scales for panels of the given size. The timeline must contain attempts.
func (r Replay) timeFrame(wide, high vg.Length) timeFrame {
	t := r.Timeline
	from, to := atLeast(20*float64(t.width), t.edge(0), t.edge(t.bins()))
	return timeFrame{from, to, newTickStep(from, to, r.Yearless, wide), newCountAxis(t.attempts(), high)}
}

func (f timeFrame) panel(drawn ...plot.Plotter) *plot.Plot {
	return newPanel(f.from, f.to, f.ticks, f.counts, drawn...)
}

// waits returns the panels that show waits. Each panel has the given size.
func (r Replay) waits(wide, high vg.Length) column {
	c := column{name: "Waits of the denied"}
	var together Waits
	for _, s := range r.Sets {
		together.Merge(s.Waits)
	}
	if together.Count() == 0 {
		return c.empty(r.Sets, Set.noWaits)
	}
	h := newHistogram(&together)
	var all []int
	for _, s := range r.Sets {
		all = append(all, h.counts(s.Waits)...)
	}
	axis := newCountAxis(all, high)
	for _, s := range r.Sets {
		n := h.counts(s.Waits)
		panel := newPanel(h.from, h.to, waitAxis(wide), axis, area(Vermilion, n, h.edge), peakOf(n, h.edge))
		panel.X.Scale = plot.LogScale{}
		c.panels = append(c.panels, panel)
	}
	c.remark = remarks(fmt.Sprintf("in steps of %.0f %%", 100*h.ratio-100), axis)
	return c
}

// empty returns a column whose panels say why there is nothing to draw.
func (c column) empty(sets []Set, why func(Set) string) column {
	for _, s := range sets {
		c.panels = append(c.panels, emptyPanel(why(s)))
	}
	return c
}

// noWaits explains why there are no waits.
func (s Set) noWaits() string {
	if s.Denied > 0 {
		return "No wait helps: they ask for more than a limit holds."
	}
	return "No attempt is denied."
}

// atLeast widens the range between from and to evenly on both sides, if it is shorter than length.
func atLeast(length, from, to float64) (wideFrom, wideTo float64) {
	more := max(0, length-(to-from)) / 2
	return from - more, to + more
}

// remarks joins the given remark and the one that names the scale of counts.
func remarks(first string, counts countAxis) string {
	return strings.Trim(first+", "+counts.String(), ", ")
}

// binName returns the given bin width in the largest unit that divides it.
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

// Logins represents the outcome of a replay with a login guard. It has a single set, which holds
// the waits of the denied attempts. The first column of the timeline counts the allowed attempts.
// Each further column counts the attempts that one budget denied.
type Logins struct {
	Replay

	Budgets []Budget // in the order in which the guard checks them
}

// Budget represents one of the guard's budgets and its denials.
type Budget struct {
	Name   string
	Limits string // such as "20/1m, 50/1h"
	Denied int
}

// Draw writes the chart. It shows all attempts and the allowed ones over time, the attempts that
// each budget denied, and the waits of the denied attempts. A budget that denied nothing has no
// panel. The output is deterministic: the same chart always gives the same bytes.
func (l Logins) Draw(w io.Writer, f Format) error {
	const room = 110
	stack := []column{l.times(width, room)}
	for i, b := range l.Budgets {
		if b.Denied > 0 {
			stack = append(stack, l.deniedBy(b, l.Timeline.allowed(1+i), room))
		}
	}
	legend := Legend{
		{"attempts (" + Thousands(l.Timeline.total(0)) + ")", filled(Shade)},
		{"allowed (" + Thousands(l.Timeline.total(1)) + ")", filled(Blue)},
		{"denied (" + Thousands(l.Sets[0].Denied) + ")", filled(Vermilion)},
	}
	return drawStack(w, f, l.Title, legend, room, append(stack, l.waits(width, room))...)
}

// deniedBy returns a panel that shows the attempts that b denied, in front of all attempts. It has
// the scales of the first panel.
func (r Replay) deniedBy(b Budget, counts []int, room vg.Length) column {
	t, f := r.Timeline, r.timeFrame(width, room)
	panel := f.panel(area(Shade, t.attempts(), t.edge), area(Vermilion, counts, t.edge), f.ticks)
	return only("Denied by "+b.Name, Thousands(b.Denied)+" denied, limits "+b.Limits, panel)
}
