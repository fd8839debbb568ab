package picture

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidegate/slidegate/internal/look"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
)

// Trail is the use of a claim during an audit.
type Trail struct {
	Claim    string // such as "20/10s"
	Max      int64
	Per      time.Duration
	Admitted []Span // one for each request that was allowed
}

// Span is the time in which a request certainly was in the window, since the start of the audit. It
// is empty if To is not after From.
type Span struct{ From, To time.Duration }

// claimed is the style of the line of a claim.
var claimed = plotter.Line{LineStyle: draw.LineStyle{Color: look.Vermilion, Width: 1.2}}

// DrawTrails writes the picture of an audit. Each claim has a panel with the requests that were
// allowed in the window before. The same trails always give the same bytes.
func DrawTrails(w io.Writer, f sheet.Format, title string, took time.Duration, trails []Trail) error {
	var stack []column
	for _, t := range trails {
		stack = append(stack, t.column(max(took, time.Millisecond)))
	}
	legend := sheet.Legend{{Name: "admitted in the window before", Sample: &admitted}, {Name: "claim", Sample: &claimed}}
	page, c := sheet.New(f, title, legend, stackHeight(len(stack), panelRoom))
	drawStack(c, stack...)
	return sheet.Write(w, page)
}

// column returns the panel of a trail.
func (t Trail) column(took time.Duration) column {
	used, most := t.steps()
	area, line, end := admitted, claimed, took.Seconds()
	area.XYs, line.XYs = used, plotter.XYs{{X: 0, Y: float64(t.Max)}, {X: end, Y: float64(t.Max)}}
	counts := newCountAxis([]int{most, int(t.Max)}, panelRoom)
	panel := newPanel(0, end, plot.ConstantTicks(seconds(end)), counts, &area, &line)
	name := "Admitted in the " + t.Per.String() + " before"
	remark := remarks(fmt.Sprintf("claim %s, the most was %s; seconds since the audit began", t.Claim, thousands(most)), counts.scale)
	return column{heading{name, sheet.Fit(sheet.Remark, remark, width-sheet.Heading.Width(name)-8)}, []*plot.Plot{panel}}
}

// steps returns the outline of the requests in the window, and its highest point.
func (t Trail) steps() (outline plotter.XYs, most int) {
	n := 0
	for _, c := range t.changes() {
		outline = append(outline, plotter.XY{X: c.at.Seconds(), Y: height(n)}, plotter.XY{X: c.at.Seconds(), Y: height(n + c.by)})
		n += c.by
		most = max(most, n)
	}
	return outline, most
}

// change is a request that enters the window (1) or leaves it (-1).
type change struct {
	at time.Duration
	by int
}

// changes returns the changes in the order of time. At the same time, requests that leave come
// first.
func (t Trail) changes() (all []change) {
	for _, request := range t.Admitted {
		if request.From < request.To {
			all = append(all, change{request.From, 1}, change{request.To, -1})
		}
	}
	slices.SortFunc(all, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), a.by-b.by) })
	return all
}

// seconds returns ticks at about five to ten round seconds up to an end.
func seconds(end float64) (ticks []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10(end/5)))
	for _, times := range []float64{1, 2, 5, 10} {
		if end/(times*step) <= 10 {
			step *= times
			break
		}
	}
	for n := 0; float64(n)*step <= end; n++ {
		ticks = append(ticks, plot.Tick{Value: float64(n) * step, Label: fmt.Sprintf("%g", math.Round(float64(n)*step*1e6)/1e6)})
	}
	return ticks
}
