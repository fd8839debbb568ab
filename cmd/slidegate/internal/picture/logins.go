package picture

import (
	"io"

	"gonum.org/v1/plot"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
)

// Logins is the outcome of a replay by a login guard.
type Logins struct {
	Title    string
	Zone     string    // of the times, such as "UTC"; it may be empty
	Yearless bool      // the log names no year, so neither does the picture
	Budgets  []Budget  // in the order in which the guard checks them
	Timeline *Timeline // its first set are the allowed attempts, and the others those that each budget denied
	Waits    *Waits    // of the denied
}

// Budget is a budget of the guard, with its denials.
type Budget struct {
	Name   string
	Limits string // such as "20/1m, 50/1h"
	Denied int
}

// DrawLogins writes the picture: all attempts over time and the allowed ones, the attempts that
// each budget denied, and the waits of the denied. A budget that denied nothing has no panel. The
// same picture always has the same bytes.
func DrawLogins(w io.Writer, f sheet.Format, l Logins) error {
	stack := l.stack()
	page, c := sheet.New(f, l.Title, l.legend(), stackHeight(len(stack), loginRoom))
	drawStack(c, stack...)
	return sheet.Write(w, page)
}

// loginRoom is the height of each panel, with its lower axis.
const loginRoom = 110

// stack returns the panels from top to bottom.
func (l Logins) stack() []column {
	p := Picture{Zone: l.Zone, Yearless: l.Yearless, Timeline: l.Timeline, Sets: []Set{{Waits: l.Waits, Denied: l.Waits.Count()}}}
	stack := []column{p.times(width, loginRoom)}
	for i, b := range l.Budgets {
		if b.Denied > 0 {
			stack = append(stack, p.deniedBy(b, l.Timeline.admitted(1+i)))
		}
	}
	return append(stack, p.waits(width, loginRoom))
}

// deniedBy returns the panel of the attempts that a budget denied, in front of all attempts. It has
// the scales of the first panel.
func (p Picture) deniedBy(b Budget, counts []int) column {
	t, f := p.Timeline, p.timeFrame(width, loginRoom)
	name, remark := "Denied by "+b.Name, thousands(b.Denied)+" denied, limits "+b.Limits
	panel := f.panel(area(attempted, t.attempts(), t.edge), area(denied, counts, t.edge), f.ticks)
	return column{heading{name, sheet.Fit(sheet.Remark, remark, width-sheet.Heading.Width(name)-8)}, []*plot.Plot{panel}}
}

func (l Logins) legend() sheet.Legend {
	return sheet.Legend{
		{Name: "attempts (" + thousands(l.Timeline.total(0)) + ")", Sample: &attempted},
		{Name: "allowed (" + thousands(l.Timeline.total(1)) + ")", Sample: &admitted},
		{Name: "denied (" + thousands(l.Waits.Count()) + ")", Sample: &denied},
	}
}
