package charts

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"
)

// Audit represents the outcome of an audit, with one Trail per claim.
type Audit struct {
	Title  string
	Took   time.Duration
	Trails []Trail
}

// Trail represents how much of a claim was used up over the course of an audit.
type Trail struct {
	Claim   string // such as "20/10s"
	Max     int64
	Per     time.Duration
	Allowed []Span // one for each request that was allowed
}

// Span represents the period during which a request was certainly in the window, measured from the
// start of the audit. It is empty if To is not after From.
type Span struct{ From, To time.Duration }

// Draw writes the chart. Each claim has a panel that shows the requests allowed in the preceding
// window. The output is deterministic: the same trails always give the same bytes.
func (a Audit) Draw(w io.Writer, f Format) error {
	var stack []column
	for _, t := range a.Trails {
		stack = append(stack, t.column(max(a.Took, time.Millisecond).Seconds()))
	}
	legend := Legend{{"allowed in the window before", filled(Blue)}, {"claim", Line(Vermilion, nil)}}
	return drawStack(w, f, a.Title, legend, panelRoom, stack...)
}

// column returns the panel of t. Its time axis ends at the given second.
func (t Trail) column(end float64) column {
	used, most := t.used(end)
	claimed := Line(Vermilion, plotter.XYs{{X: 0, Y: float64(t.Max)}, {X: end, Y: float64(t.Max)}})
	counts := newCountAxis([]int{most, int(t.Max)}, panelRoom)
	ticks := multiples(roundStep(end, 10), end, func(second float64) string { return fmt.Sprintf("%.6g", second) })
	remark := remarks(fmt.Sprintf("claim %s, the most was %s; seconds since the audit began", t.Claim, Thousands(most)), counts)
	return only("Allowed in the "+t.Per.String()+" before", remark, newPanel(0, end, ticks, counts, used, claimed))
}

// used returns the number of requests in the window over time as an area that ends at the given
// second, and the maximum of that number.
func (t Trail) used(end float64) (used *plotter.Line, most int) {
	used, n := filled(Blue), 0
	for _, c := range t.changes() {
		n += c.by
		used.XYs = append(used.XYs, plotter.XY{X: min(end, c.at.Seconds()), Y: float64(n)})
		most = max(most, n)
	}
	return used, most
}

// change represents a request that enters the window (1) or leaves it (-1).
type change struct {
	at time.Duration
	by int
}

// changes returns the changes in chronological order. Of simultaneous changes, requests that leave
// come first.
func (t Trail) changes() (all []change) {
	for _, request := range t.Allowed {
		if request.From < request.To {
			all = append(all, change{request.From, 1}, change{request.To, -1})
		}
	}
	slices.SortFunc(all, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), a.by-b.by) })
	return all
}
