package picture

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
	"github.com/slidegate/slidegate/internal/look"
	"github.com/slidegate/slidegate/internal/look/looktest"
	"github.com/slidegate/slidegate/window"
)

var update = flag.Bool("update", false, "draw docs/levels.svg")

// traffic is the attempts of one event, in seconds.
type traffic struct {
	name     string
	attempts []float64
}

// paced returns attempts with a fixed step from one time to another.
func paced(step, from, to float64) (attempts []float64) {
	for t := from; t < to; t += step {
		attempts = append(attempts, t)
	}
	return attempts
}

var traffics = []traffic{
	{"one every 1.6 s", paced(1.6, 1, 60)},
	{"two a second for 30 s", paced(0.5, 5, 35)},
	{"two a second, on and off", append(append(append(paced(0.5, 2, 6), paced(0.5, 17, 21)...), paced(0.5, 32, 36)...), paced(0.5, 47, 51)...)},
}

// gauge is a limiter of 5 in 10 s whose state can be read between attempts.
type gauge struct {
	name  string
	line  float64 // up to which it allows one more
	allow func() bool
	read  func() float64
	color look.Colour
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// gauges returns a window and a level on a clock.
func gauges(t *testing.T, now *time.Time) [2]gauge {
	limits := []window.Limit{{Max: 5, Per: 10 * time.Second}}
	clock := func() time.Time { return *now }
	w := must(window.NewLocal(window.Config{Name: "w", Limits: limits, Now: clock}))
	a := must(ar1.NewLocal(ar1.Config{Name: "a", Limits: limits, Now: clock}))
	return [2]gauge{
		{
			"window, 5/10s: units in the last 10 s", 4, func() bool { return must(w.Allow(t.Context(), "e")).Allowed },
			func() float64 { return float64(must(w.Inspect(t.Context(), "e")).Limits[0].Used) }, look.Blue,
		}, {
			"ar1, 5/10s: level", 4.5167, func() bool { return must(a.Allow(t.Context(), "e")).Allowed },
			func() float64 { return must(a.Inspect(t.Context(), "e")).Limits[0].Level }, look.Green,
		},
	}
}

// track is the readings of a gauge, with the allowed and the denied attempts.
type track struct {
	readings         plotter.XYs
	admitted, denied plotter.XYs
}

// run plays a traffic. It reads the gauge ten times a second, and before and after each attempt.
func (g gauge) run(now *time.Time, of traffic) (k track) {
	const step = 0.1
	begin, next := *now, 0
	read := func(t float64) { k.readings = append(k.readings, plotter.XY{X: t, Y: g.read()}) }
	for i := range int(60 / step) {
		t := float64(i) * step
		for next < len(of.attempts) && of.attempts[next] <= t {
			t = of.attempts[next]
			*now = begin.Add(time.Duration(t * float64(time.Second)))
			read(t)
			if at := (plotter.XY{X: t, Y: 0.5}); g.allow() {
				k.admitted = append(k.admitted, at)
			} else {
				k.denied = append(k.denied, at)
			}
			next++
		}
		*now = begin.Add(time.Duration(t * float64(time.Second)))
		read(t)
	}
	return k
}

// panel returns the panel of a track: the readings, the limit line, and the attempts below.
func (g gauge) panel(k track) *plot.Plot {
	p := plot.New()
	bound := limitLine
	bound.XYs = plotter.XYs{{X: 0, Y: g.line}, {X: 60, Y: g.line}}
	p.Add(&bound, &plotter.Line{XYs: k.readings, LineStyle: draw.LineStyle{Color: g.color, Width: 1.2}}, marks(k.denied, -1.1, look.Vermilion), marks(k.admitted, -0.6, g.color))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 60, -1.6, 6
	p.X.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 20, Label: "20 s"}, {Value: 40, Label: "40 s"}, {Value: 60, Label: "60 s"}}
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 5, Label: "5"}}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle, a.Tick.LineStyle, a.Tick.Length, a.Padding = sheet.Axis, sheet.Axis, 3, 0
		a.Tick.Label.Font, a.Tick.Label.Color = sheet.Label.Font, sheet.Label.Color
	}
	return p
}

// limitLine is the style of the line up to which a limiter allows one more.
var limitLine = plotter.Line{LineStyle: draw.LineStyle{Color: look.Faint, Width: 1, Dashes: []vg.Length{2, 2}}}

// marks returns dots for attempts at a height.
func marks(at plotter.XYs, height float64, c look.Colour) *plotter.Scatter {
	for i := range at {
		at[i].Y = height
	}
	s := mark(c, 1.5)
	s.XYs = at
	return s
}

func mark(c look.Colour, radius vg.Length) *plotter.Scatter {
	return &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: c, Radius: radius, Shape: draw.CircleGlyph{}}}
}

// TestLevelsAreDrawn checks that docs/levels.svg is what this program draws: windows and levels on
// the same traffic. To draw it again: go test ./cmd/slidegate/internal/picture -update.
func TestLevelsAreDrawn(t *testing.T) {
	const file = "../../../../docs/levels.svg"
	var drawn bytes.Buffer
	if err := drawLevels(t, &drawn); err != nil {
		t.Fatal(err)
	}
	looktest.Check(t, drawn.Bytes()).Legend(t, "denied", look.Vermilion)
	if *update {
		if err := os.WriteFile(file, drawn.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := os.ReadFile(file); err != nil || !bytes.Equal(kept, drawn.Bytes()) {
		t.Errorf("%s is not what this draws; run go test with -update (%v)", file, err)
	}
}

func drawLevels(t *testing.T, to *bytes.Buffer) error {
	t.Helper()
	const columns, height, headings, gap = 3, 145, 34, 12
	legend := sheet.Legend{
		{Name: "admitted (window)", Sample: mark(look.Blue, 3)},
		{Name: "admitted (ar1)", Sample: mark(look.Green, 3)},
		{Name: "denied", Sample: mark(look.Vermilion, 3)},
		{Name: "up to here one more is admitted", Sample: &limitLine},
	}
	page, c := sheet.New(sheet.SVG, "The same attempts under a window and under a level", legend, 2*(height+headings)+gap)
	tiles := draw.Tiles{Rows: 2, Cols: columns, PadX: 12, PadY: headings + gap, PadTop: headings}
	for row := range 2 {
		for column, of := range traffics {
			now := time.UnixMilli(0)
			g := gauges(t, &now)[row]
			k := g.run(&now, of)
			panel := tiles.At(c, column, row)
			g.panel(k).Draw(panel)
			remark := fmt.Sprintf("%s: %d of %d admitted", of.name, len(k.admitted), len(of.attempts))
			panel.FillText(sheet.Remark, vg.Point{X: panel.Min.X, Y: panel.Max.Y + 5}, remark)
			if column == 0 {
				panel.FillText(sheet.Heading, vg.Point{X: panel.Min.X, Y: panel.Max.Y + 19}, g.name)
			}
		}
	}
	return sheet.Write(to, page)
}
