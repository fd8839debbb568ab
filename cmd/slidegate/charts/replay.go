package charts

import (
	"fmt"
	"math"
	"slices"
	"strings"
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

// Draw returns the chart as SVG. A single set of limits gets two panels, one above the other. If
// there are several sets, each gets a row of smaller panels, and all rows share their scales. The
// output is deterministic: the same chart always gives the same bytes.
func (r Replay) Draw() string {
	if len(r.Sets) > 1 {
		return r.drawRows()
	}
	set := r.Sets[0]
	legend := r.legend("allowed under " + Label.fit(set.Name, 500) + " (" + Thousands(set.Denied) + " denied)")
	return drawStack(r.Title, legend, panelRoom, r.times(width, panelRoom), r.waits(width, panelRoom))
}

// drawRows draws one row per set: the set's name, with its panels below.
func (r Replay) drawRows() string {
	const room, gutter = 96, 16 // the height of a panel, and the gap between the panels of a row
	const timesWidth = 0.62*width - gutter
	rows := float64(len(r.Sets))
	page := NewPage(PageWidth, r.Title, r.legend("allowed"), rows*(headingRoom+room)+headingRoom/2+notesRoom)
	r.waits(width-timesWidth-gutter, room).draw(page.Inset(timesWidth+gutter, 0, 0, 0))
	for i, panel := range r.times(timesWidth, room).draw(page.Inset(0, 0, width-timesWidth, 0)) {
		set, allowed := r.Sets[i], r.Timeline.total(1+i)
		remark := Thousands(allowed) + " allowed, " + Thousands(set.Denied) + " denied"
		panel.drawHeading(panel.Top-8, Heading.fit(set.Name, width-Remark.width(remark)-10), remark)
	}
	return page.SVG()
}

// draw draws the panels of all sets below their common heading, from top to bottom. It returns
// their canvases.
func (c column) draw(room Canvas) []Canvas {
	room.drawHeading(room.Top+headingRoom/2, c.name, c.remark)
	return drawAligned(c.panels, room.Inset(0, headingRoom*3/2, 0, notesRoom), headingRoom)
}

func (r Replay) legend(ofAllowed string) Legend {
	return Legend{
		{"attempts (" + Thousands(r.Timeline.total(0)) + ")", Curve{Colour: Shade, Filled: true}},
		{ofAllowed, Curve{Colour: Blue, Filled: true}},
		{"denied, by how long they have to wait", Curve{Colour: Vermilion, Filled: true}},
	}
}

// times returns the panels that show attempts over time. Each panel has the given size.
func (r Replay) times(wide, high float64) column {
	t := r.Timeline
	c := column{name: "Attempts per " + binName(t.width)}
	if t.bins() == 0 {
		return c.empty(r.Sets, func(Set) string { return "There are no attempts." })
	}
	f := r.timeFrame(wide, high)
	for i := range r.Sets {
		panel := f.panel(area(Shade, t.attempts(), t.edge), area(Blue, t.allowed(i), t.edge))
		panel.over = append(panel.over, peakOf(t.attempts(), t.edge))
		c.panels = append(c.panels, panel)
	}
	last := &c.panels[len(c.panels)-1]
	last.over = append(last.over, f.ticks.drawNotes)
	c.remark = remarks(Remark.fit(r.Zone, 200), f.counts)
	return c
}

// timeFrame holds the scales that all panels of attempts in a chart share.
type timeFrame struct {
	from, to float64
	ticks    tickStep
	counts   countAxis
}

// timeFrame returns the scales for panels of the given size. The timeline must contain attempts.
func (r Replay) timeFrame(wide, high float64) timeFrame {
	t := r.Timeline
	from, to := atLeast(20*float64(t.width), t.edge(0), t.edge(t.bins()))
	return timeFrame{from, to, newTickStep(from, to, r.Yearless, wide), newCountAxis(t.attempts(), high)}
}

func (f timeFrame) panel(curves ...Curve) Plot {
	return newPanel(f.from, f.to, f.ticks.Ticks(f.from, f.to), f.counts, curves...)
}

// waits returns the panels that show waits. Each panel has the given size.
func (r Replay) waits(wide, high float64) column {
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
		panel := newPanel(h.from, h.to, waitTicks(h.from, h.to, wide), axis, area(Vermilion, n, h.edge))
		panel.X.Scale, panel.over = math.Log, []func(plotted){peakOf(n, h.edge)}
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

// Draw returns the chart as SVG. It shows all attempts and the allowed ones over time, the attempts
// that each budget denied, and the waits of the denied attempts. A budget that denied nothing has
// no panel. The output is deterministic: the same chart always gives the same bytes.
func (l Logins) Draw() string {
	const room = 110
	stack := []column{l.times(width, room)}
	for i, b := range l.Budgets {
		if b.Denied > 0 {
			stack = append(stack, l.deniedBy(b, l.Timeline.allowed(1+i), room))
		}
	}
	legend := Legend{
		{"attempts (" + Thousands(l.Timeline.total(0)) + ")", Curve{Colour: Shade, Filled: true}},
		{"allowed (" + Thousands(l.Timeline.total(1)) + ")", Curve{Colour: Blue, Filled: true}},
		{"denied (" + Thousands(l.Sets[0].Denied) + ")", Curve{Colour: Vermilion, Filled: true}},
	}
	return drawStack(l.Title, legend, room, append(stack, l.waits(width, room))...)
}

// deniedBy returns a panel that shows the attempts that b denied, in front of all attempts. It has
// the scales of the first panel.
func (r Replay) deniedBy(b Budget, counts []int, room float64) column {
	t, f := r.Timeline, r.timeFrame(width, room)
	panel := f.panel(area(Shade, t.attempts(), t.edge), area(Vermilion, counts, t.edge))
	panel.over = append(panel.over, f.ticks.drawNotes)
	return only("Denied by "+b.Name, Thousands(b.Denied)+" denied, limits "+b.Limits, panel)
}
