package charts

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidegate/slidegate/window"
)

// load represents the requests of users, or those of background work, in seconds.
type load struct {
	name     string
	requests []float64
	allowed  []float64 // those requests that the limiter allowed
}

// priorityLoads returns eight minutes of requests, as the limiters in the recipe decide on them.
// Users come and go, while background work constantly sends two requests a second.
func priorityLoads(t *testing.T) (users, background load) {
	t.Helper()
	var now time.Time
	first := must(window.NewLocal(window.Config{Name: "api", Limits: []window.Limit{window.PerMinute(100)}, Now: func() time.Time { return now }}))
	second := must(first.With(window.PerMinute(80)))
	users = load{name: "users", requests: slices.Concat(paced(3, 0, 120), paced(1, 120, 240), paced(0.5, 240, 360), paced(3, 360, 480))}
	background = load{name: "background work", requests: paced(0.5, 0.25, 480)}
	decide := func(l *window.Limiter, of *load, at float64) {
		if slices.Contains(of.requests, at) && must(l.Allow(t.Context(), "customer 17")).Allowed {
			of.allowed = append(of.allowed, at)
		}
	}
	for quarter := range 4 * 480 {
		at := float64(quarter) / 4
		now = time.UnixMilli(0).Add(time.Duration(at * float64(time.Second)))
		decide(first, &users, at)
		decide(second, &background, at)
	}
	return users, background
}

// String returns the name of the load, and how many of its requests were allowed.
func (l load) String() string {
	return fmt.Sprintf("%s: %d of %d allowed", l.name, len(l.allowed), len(l.requests))
}

// inLastMinute returns, for each second, how many of the given times are in the minute before it.
func inLastMinute(times ...float64) (counts plotter.XYs) {
	for second := range 481 {
		at, n := float64(second), 0.0
		for _, other := range times {
			if other <= at && other > at-60 {
				n++
			}
		}
		counts = append(counts, plotter.XY{X: at, Y: n})
	}
	return counts
}

// shade returns the area below a curve.
func shade(c Colour, curve plotter.XYs) *plotter.Line {
	return &plotter.Line{XYs: curve, LineStyle: draw.LineStyle{Color: c, Width: 0.5}, FillColor: c}
}

// TestPriority draws how users take precedence over background work, as in a recipe. The picture is
// as wide as a phone.
func TestPriority(t *testing.T) {
	checkPicture(t, "priority.svg", func(w io.Writer, f Format) error { return drawPriority(t, w, f) }, "background work: 305 of 960 allowed")
}

func drawPriority(t *testing.T, w io.Writer, f Format) error {
	t.Helper()
	users, background := priorityLoads(t)
	requests := Line(Ink, inLastMinute(users.requests...), 1, 2)
	page := newPage(f, 390, "Requests in the last minute", Legend{
		{users.String(), shade(Blue, nil)},
		{background.String(), shade(Green, nil)},
		{"requests of users", requests},
		{"the limits, 80 and 100", Line(Vermilion, nil, 4, 2)},
	}, 190)
	p := NewPlot()
	p.Add(shade(Green, inLastMinute(slices.Concat(users.allowed, background.allowed)...)), shade(Blue, inLastMinute(users.allowed...)), requests)
	for _, limit := range []float64{80, 100} {
		p.Add(Line(Vermilion, plotter.XYs{{X: 0, Y: limit}, {X: 480, Y: limit}}, 4, 2))
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 480, 0, 125
	p.X.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 120, Label: "2 min"}, {Value: 240, Label: "4 min"}, {Value: 360, Label: "6 min"}, {Value: 480, Label: "8 min"}}
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 40, Label: "40"}, {Value: 80, Label: "80"}, {Value: 100, Label: "100"}}
	p.Draw(page.Canvas)
	return page.Write(w)
}
