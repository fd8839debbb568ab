package charts

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func names(ticks []Tick) string {
	var all []string
	for _, t := range ticks {
		all = append(all, t.Label)
	}
	return strings.Join(all, " ")
}

// TestTickStep checks the ticks on axes that span from seconds to thousands of years.
func TestTickStep(t *testing.T) {
	for _, c := range []struct {
		from, to string
		yearless bool
		want     string
		note     string // on the last tick
	}{
		{"2025-03-04T12:00:03Z", "2025-03-04T12:01:20Z", true, "12:00:10 12:00:20 12:00:30 12:00:40 12:00:50 12:01:00 12:01:10 12:01:20", "Mar 4"},
		{"2025-03-04T12:01:00Z", "2025-03-06T12:00:00Z", false, "18:00 00:00 06:00 12:00 18:00 00:00 06:00 12:00", "Mar 6, 2025"},
		{"2024-02-20T00:00:00Z", "2024-03-02T12:00:00Z", false, "Feb 21 Feb 23 Feb 25 Feb 27 Feb 29 Mar 2", "2024"},
		{"2024-12-20T00:00:00Z", "2025-02-20T00:00:00Z", true, "Dec 23 Dec 30 Jan 6 Jan 13 Jan 20 Jan 27 Feb 3 Feb 10 Feb 17", ""},
		{"2020-01-01T00:00:00Z", "2025-01-01T00:00:00Z", false, "Jan Jul Jan Jul Jan Jul Jan Jul Jan Jul Jan", "2025"},
		{"2001-06-01T00:00:00Z", "2008-06-01T00:00:00Z", true, "Jan Jan Jan Jan Jan Jan Jan", ""},
		{"1903-01-01T00:00:00Z", "2090-01-01T00:00:00Z", false, "1920 1940 1960 1980 2000 2020 2040 2060 2080", ""},
	} {
		from, to := unix(t, c.from), unix(t, c.to)
		r := newTickStep(from, to, c.yearless, width)
		ticks := r.Ticks(from, to)
		if got := names(ticks); got != c.want {
			t.Errorf("from %s to %s: %s, not %s", c.from, c.to, got, c.want)
		}
		if note := instant(ticks[len(ticks)-1].Value).Format(r.note); note != c.note {
			t.Errorf("from %s to %s: %q, not %q", c.from, c.to, note, c.note)
		}
	}
}

func unix(t *testing.T, at string) float64 {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, at)
	if err != nil {
		t.Fatal(err)
	}
	return float64(parsed.Unix())
}

// TestTickStepsFit checks that an axis of any length has 2 to 12 ticks.
func TestTickStepsFit(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		from := float64(r.Int64N(60e9) - 1e9)
		to := from + 20*math.Exp(r.Float64()*math.Log(6e9))
		if n := len(newTickStep(from, to, false, width).Ticks(from, to)); n < 2 || n > 12 {
			t.Fatalf("%d ticks from %v to %v", n, from, to)
		}
	}
}

// TestWaitTicks checks the ticks on axes of waits.
func TestWaitTicks(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, c := range []struct {
		from, to time.Duration
		want     string
	}{
		{time.Millisecond, 10 * time.Millisecond, "1 ms 2 ms 5 ms 10 ms"},
		{3 * time.Second, 31 * time.Minute, "5 s 10 s 30 s 1 min 2 min 5 min 10 min 30 min"},
		{time.Second, time.Hour, "1 s 10 s 1 min 10 min 1 h"},
		{year, 250 * year, "1 year 2 years 5 years 10 years 20 years 50 years 100 years 200 years"},
	} {
		if got := names(waitTicks(float64(c.from), float64(c.to), width)); got != c.want {
			t.Errorf("from %v to %v: %s, not %s", c.from, c.to, got, c.want)
		}
	}
}

// TestCountAxis checks the scale, the ticks and the heights on axes of counts.
func TestCountAxis(t *testing.T) {
	for _, c := range []struct {
		counts []int
		sqrt   bool
		ticks  string
		four   float64 // the height of a count of 4, relative to that of the highest count
	}{
		{[]int{1}, false, "0 1", 4},
		{[]int{0, 0, 3, 1}, false, "0 1 2 3", 4.0 / 3},
		{[]int{20, 1, 1, 0, 0}, false, "0 5 10 15 20", 0.2},
		{[]int{21, 1, 1, 0, 0}, true, "0 1 5 10 20", math.Sqrt(4.0 / 21)},
		{[]int{999, 800}, false, "0 500 1,000", 4.0 / 999},
		{[]int{1234567, 3, 4}, true, "0 50,000 200,000 500,000 1,000,000", math.Sqrt(4.0 / 1234567)},
	} {
		a, highest := newCountAxis(c.counts, panelRoom), float64(slices.Max(c.counts))
		if got := names(a.ticks()); a.sqrt != c.sqrt || got != c.ticks {
			t.Errorf("%v: sqrt %v, %s; not %v, %s", c.counts, a.sqrt, got, c.sqrt, c.ticks)
		}
		if got := a.axis().norm(4) / a.axis().norm(highest); math.Abs(got-c.four) > 1e-9 {
			t.Errorf("%v: 4 is %v as high as the highest, not %v", c.counts, got, c.four)
		}
	}
}

// TestRoundStep checks that an axis has neither too few nor too many ticks.
func TestRoundStep(t *testing.T) {
	for _, end := range []float64{0.001, 0.35, 1, 7, 23.4, 99, 100, 86400} {
		if n := int(end / roundStep(end, 10)); n < 4 || n > 10 {
			t.Errorf("%d steps up to %v", n, end)
		}
	}
}

// TestBinName checks how the widths of bins are written.
func TestBinName(t *testing.T) {
	for width, want := range map[int64]string{
		1: "second", 5: "5 s", 60: "minute", 900: "15 min", 3600: "hour", 6 * 3600: "6 h", 86400: "day", 7 * 86400: "week", 28 * 86400: "4 weeks",
	} {
		if got := binName(width); got != want {
			t.Errorf("%d: %s, not %s", width, got, want)
		}
	}
}

// TestFit checks that text is made printable, and shortened to the given width.
func TestFit(t *testing.T) {
	for text, want := range map[string]string{"short": "short", "": "", strings.Repeat("wide ", 9): "wide wide …", "\n": "\ufffd", "a\xff": "a\ufffd"} {
		if got := Label.fit(text, 60); got != want {
			t.Errorf("%q: %q, not %q", text, got, want)
		}
	}
}

// TestPlot checks that numbers at nearby points do not overlap, and that a wide label at the end of
// an axis is on the page.
func TestPlot(t *testing.T) {
	got := textsIn(t, func() string {
		page := NewPage(NarrowWidth, "title", Legend{{"a line", Curve{Colour: Blue, Dashes: "1 1"}}}, 150)
		Plot{
			X:       Axis{Max: 10, Label: "name", Ticks: []Tick{{0, "0"}, {10, "a very wide label"}}},
			Y:       Axis{Max: 3, Ticks: Ticks(3)},
			Curves:  []Curve{{Colour: Blue, Points: []Point{{0, 1}, {10, 2}}}, {Colour: Green, Radius: 2, Points: []Point{{5, 1}}}},
			Numbers: Numbers{{Point{10, 2}, "2.00"}, {Point{10, 1.99}, "1.99"}, {Point{10, 2.01}, "2.01"}},
		}.Draw(page)
		return page.SVG()
	})
	if want := "title|a line|name|0|a very wide label|0|1|2|3|1.99|2.00|2.01"; strings.Join(got, "|") != want {
		t.Errorf("texts %q, want %s", got, want)
	}
}
