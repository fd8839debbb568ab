package charts

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/window"
)

var update = flag.Bool("update", false, "draw the pictures of docs")

// traffics lists attempts on one event, in seconds.
var traffics = []struct {
	name     string
	attempts []float64
}{
	{"one every 1.6 s", paced(1.6, 1, 60)},
	{"two a second for 30 s", paced(0.5, 5, 35)},
	{"two a second, on and off", slices.Concat(paced(0.5, 2, 6), paced(0.5, 17, 21), paced(0.5, 32, 36), paced(0.5, 47, 51))},
}

// paced returns attempts from one time to another, step seconds apart.
func paced(step, from, to float64) (attempts []float64) {
	for t := from; t < to; t += step {
		attempts = append(attempts, t)
	}
	return attempts
}

// gauge is a limiter of 5 units in 10 s whose state can be read between attempts.
type gauge struct {
	name  string
	line  float64 // the level up to which it allows another unit
	allow func() bool
	read  func() float64
	color Colour
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// gauges returns a window and an ar1 level that use the given clock.
func gauges(t *testing.T, clock func() time.Time) [2]gauge {
	limits := []window.Limit{{Max: 5, Per: 10 * time.Second}}
	w := must(window.NewLocal(window.Config{Name: "w", Limits: limits, Now: clock}))
	a := must(ar1.NewLocal(ar1.Config{Name: "a", Limits: limits, Now: clock}))
	return [2]gauge{
		{
			"window, 5/10s: units in the last 10 s", 4, func() bool { return must(w.Allow(t.Context(), "e")).Allowed },
			func() float64 { return float64(must(w.Inspect(t.Context(), "e")).Limits[0].Used) }, Blue,
		}, {
			"ar1, 5/10s: level", 4.5167, func() bool { return must(a.Allow(t.Context(), "e")).Allowed },
			func() float64 { return must(a.Inspect(t.Context(), "e")).Limits[0].Level }, Green,
		},
	}
}

// run makes the given attempts. It reads the gauge ten times a second, and before and after each
// attempt. It returns the readings, and the allowed and the denied attempts.
func (g gauge) run(now *time.Time, attempts []float64) (readings, allowed, denied []Point) {
	read := func(t float64) {
		*now = time.UnixMilli(0).Add(time.Duration(t * float64(time.Second)))
		readings = append(readings, Point{X: t, Y: g.read()})
	}
	for tenth := range 600 {
		t := float64(tenth) / 10
		for len(attempts) > 0 && attempts[0] <= t {
			t, attempts = attempts[0], attempts[1:]
			read(t)
			if g.allow() {
				allowed = append(allowed, Point{X: t, Y: -0.6})
			} else {
				denied = append(denied, Point{X: t, Y: -1.1})
			}
		}
		read(t)
	}
	return readings, allowed, denied
}

// TestLevels draws windows and levels under the same traffic.
func TestLevels(t *testing.T) {
	checkPicture(t, "levels.svg", func() string { return drawLevels(t) }, "two a second for 30 s: 15 of 60 allowed")
}

// checkPicture checks that a picture in docs contains the same texts as the one that draw draws,
// including the given text. To redraw all pictures: go test ./cmd/slidegate/charts -update.
func checkPicture(t *testing.T, name string, draw func() string, text string) {
	t.Helper()
	file := "../../../docs/" + name
	if *update {
		if err := Save(file, draw); err != nil {
			t.Fatal(err)
		}
	}
	kept := textsIn(t, func() string { return string(must(os.ReadFile(file))) })
	if got := textsIn(t, draw); !slices.Equal(got, kept) || !slices.Contains(got, text) {
		t.Errorf("docs/%s says %q, and this program %q; run go test with -update", name, kept, got)
	}
}

func drawLevels(t *testing.T) string {
	t.Helper()
	const height, headings, gap = 145, 34, 12
	dots := func(c Colour, radius float64, at []Point) Curve { return Curve{Colour: c, Radius: radius, Points: at} }
	page := NewPage(PageWidth, "The same attempts under a window and under a level", Legend{
		{"allowed (window)", dots(Blue, 3, nil)},
		{"allowed (ar1)", dots(Green, 3, nil)},
		{"denied", dots(Vermilion, 3, nil)},
		{"up to here one more is allowed", Curve{Colour: Faint, Dashes: "2 2"}},
	}, 2*(height+headings)+gap)
	for row := range 2 {
		for column, of := range traffics {
			now := time.UnixMilli(0)
			g := gauges(t, func() time.Time { return now })[row]
			readings, allowed, denied := g.run(&now, of.attempts)
			panel := page.Inset(0, headings, 0, 0).Row(row, 2, headings+gap).Column(column, len(traffics), 12)
			Plot{
				X: Axis{Max: 60, Ticks: []Tick{{0, "0"}, {20, "20 s"}, {40, "40 s"}, {60, "60 s"}}},
				Y: Axis{Min: -1.6, Max: 6, Ticks: []Tick{{0, "0"}, {5, "5"}}},
				Curves: []Curve{
					{Colour: Faint, Dashes: "2 2", Points: []Point{{0, g.line}, {60, g.line}}},
					{Colour: g.color, Points: readings},
					dots(Vermilion, 1.5, denied), dots(g.color, 1.5, allowed),
				},
			}.Draw(panel)
			panel.Text(Remark, panel.Left, panel.Top-5, fmt.Sprintf("%s: %d of %d allowed", of.name, len(allowed), len(of.attempts)))
			if column == 0 {
				panel.Text(Heading, panel.Left, panel.Top-19, g.name)
			}
		}
	}
	return page.SVG()
}
