package charts

import (
	"fmt"
	"slices"
	"testing"
	"time"

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
func inLastMinute(times ...float64) (counts []Point) {
	for second := range 481 {
		at, n := float64(second), 0.0
		for _, other := range times {
			if other <= at && other > at-60 {
				n++
			}
		}
		counts = append(counts, Point{X: at, Y: n})
	}
	return counts
}

// shade returns the area below a curve that shows the given times.
func shade(c Colour, times ...float64) Curve {
	return Curve{Colour: c, Filled: true, Points: slices.Concat([]Point{{0, 0}}, inLastMinute(times...), []Point{{480, 0}})}
}

// TestPriority draws how users take precedence over background work, as in a recipe. The picture is
// as wide as a phone.
func TestPriority(t *testing.T) {
	checkPicture(t, "priority.svg", func() string { return drawPriority(t) }, "background work: 305 of 960 allowed")
}

func drawPriority(t *testing.T) string {
	t.Helper()
	users, background := priorityLoads(t)
	limit := func(n float64) Curve {
		return Curve{Colour: Vermilion, Dashes: "4 2", Points: []Point{{0, n}, {480, n}}}
	}
	requests := Curve{Colour: Ink, Dashes: "1 2", Points: inLastMinute(users.requests...)}
	page := NewPage(390, "Requests in the last minute", Legend{
		{users.String(), shade(Blue)},
		{background.String(), shade(Green)},
		{"requests of users", requests},
		{"the limits, 80 and 100", limit(0)},
	}, 190)
	Plot{
		X:      Axis{Max: 480, Ticks: []Tick{{0, "0"}, {120, "2 min"}, {240, "4 min"}, {360, "6 min"}, {480, "8 min"}}},
		Y:      Axis{Max: 125, Ticks: []Tick{{0, "0"}, {40, "40"}, {80, "80"}, {100, "100"}}},
		Curves: []Curve{shade(Green, slices.Concat(users.allowed, background.allowed)...), shade(Blue, users.allowed...), requests, limit(80), limit(100)},
	}.Draw(page)
	return page.SVG()
}
