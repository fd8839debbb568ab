// Package picture draws the outcome of a replay: when attempts came and were allowed, and how long
// the denied ones have to wait.
package picture

import (
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidegate/slidegate/internal/look"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
)

// Picture is the outcome of a replay under one or more sets of limits.
type Picture struct {
	Title    string
	Zone     string // of the times, such as "UTC"; it may be empty
	Yearless bool   // the log names no year, so neither does the picture
	Sets     []Set
	Timeline *Timeline // with one column for each set
}

// Set is the outcome under one set of limits.
type Set struct {
	Name   string // such as "1/5s, 5/1h, 20/1d"
	Waits  *Waits
	Denied int // more than the number of waits if some attempts can never be allowed
}

// These are the measures of a picture, in points.
const (
	width = look.PageWidth - 2*look.Margin

	headingRoom = 32  // above each panel
	notesRoom   = 12  // below the axis of times
	panelRoom   = 165 // with its lower axis
	smallRoom   = 96  // the same for each of several sets
	gutter      = 16  // between the panels of a set
)

// These are the styles of all attempts, of the allowed and of the denied ones.
var (
	attempted = plotter.Line{FillColor: look.Shade}
	admitted  = plotter.Line{FillColor: look.Blue}
	denied    = plotter.Line{FillColor: look.Vermilion}
)

// Draw writes the picture. One set of limits gets two panels, one above the other. Each of several
// sets gets a row of smaller panels, on the same scales. The same picture always has the same
// bytes.
func Draw(w io.Writer, f sheet.Format, p Picture) error {
	if len(p.Sets) == 1 {
		return p.drawOne(w, f)
	}
	return p.drawRows(w, f)
}

func (p Picture) drawOne(w io.Writer, f sheet.Format) error {
	set := p.Sets[0]
	legend := p.legend("admitted under " + sheet.Fit(sheet.Label, set.Name, 500) + " (" + thousands(set.Denied) + " denied)")
	page, c := sheet.New(f, p.Title, legend, stackHeight(2, panelRoom))
	drawStack(c, p.times(width, panelRoom), p.waits(width, panelRoom))
	return sheet.Write(w, page)
}

// stackHeight returns the height of a stack of panels of this height.
func stackHeight(panels int, room vg.Length) vg.Length {
	return vg.Length(panels)*(headingRoom+room+notesRoom) - notesRoom
}

// drawStack draws columns of one panel each, one above the other. Each panel has its own heading.
func drawStack(c draw.Canvas, stack ...column) {
	var panels []*plot.Plot
	for _, s := range stack {
		panels = append(panels, s.panels...)
	}
	for i, place := range placesOf(panels, draw.Crop(c, 0, 0, 0, -headingRoom), headingRoom+notesRoom) {
		panels[i].Draw(place)
		stack[i].heading.draw(place, c.Min.X)
	}
}

// drawRows draws a row for each set: its name, and below it its panels.
func (p Picture) drawRows(w io.Writer, f sheet.Format) error {
	rows := vg.Length(len(p.Sets))
	page, c := sheet.New(f, p.Title, p.legend("admitted"), rows*(headingRoom+smallRoom)+headingRoom/2+notesRoom)
	const timesWidth = 0.62*width - gutter
	p.drawColumn(draw.Crop(c, timesWidth+gutter, 0, 0, 0), p.waits(width-timesWidth-gutter, smallRoom))
	for i, panel := range p.drawColumn(draw.Crop(c, 0, timesWidth-width, 0, 0), p.times(timesWidth, smallRoom)) {
		p.Sets[i].heading(p.Timeline.total(1+i)).draw(panel, c.Min.X)
	}
	return sheet.Write(w, page)
}

// drawColumn draws the panels of all sets, one above the other, below their common heading. It
// returns their places.
func (p Picture) drawColumn(c draw.Canvas, drawn column) (places []draw.Canvas) {
	drawn.heading.draw(draw.Crop(c, 0, 0, 0, -headingRoom/2-8), c.Min.X)
	places = placesOf(drawn.panels, draw.Crop(c, 0, 0, notesRoom, -headingRoom*3/2), headingRoom)
	for i, place := range places {
		drawn.panels[i].Draw(place)
	}
	return places
}

// placesOf returns the places of panels one above the other, with a gap between them and their
// sides in line.
func placesOf(panels []*plot.Plot, c draw.Canvas, gap vg.Length) (places []draw.Canvas) {
	var rows [][]*plot.Plot
	for _, panel := range panels {
		rows = append(rows, []*plot.Plot{panel})
	}
	for _, row := range plot.Align(rows, draw.Tiles{Rows: len(rows), Cols: 1, PadY: gap}, c) {
		places = append(places, row[0])
	}
	return places
}

// heading returns the name of a set, with the numbers of attempts that it allows and denies.
func (s Set) heading(admitted int) heading {
	remark := thousands(admitted) + " admitted, " + thousands(s.Denied) + " denied"
	return heading{sheet.Fit(sheet.Heading, s.Name, width-sheet.Remark.Width(remark)-10), remark}
}

func (p Picture) legend(ofAdmitted string) sheet.Legend {
	return sheet.Legend{
		{Name: "attempts (" + thousands(p.Timeline.total(0)) + ")", Sample: &attempted},
		{Name: ofAdmitted, Sample: &admitted},
		{Name: "denied, by how long they have to wait", Sample: &denied},
	}
}
