package charts

import (
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const noon = 1741089600 // 2025-03-04 12:00:00 UTC

// textOf represents a text element in an SVG. Y is measured from the top.
type textOf struct {
	X     float64 `xml:"x,attr"`
	Y     float64 `xml:"y,attr"`
	Width float64 `xml:"textLength,attr"`
	Text  string  `xml:",chardata"`
}

// textsIn returns the texts in the chart that draw draws. It fails the test if the chart is not
// well-formed, or if any text is outside the page or overlaps another.
func textsIn(t *testing.T, draw func() string) (all []string) {
	t.Helper()
	svg := draw()
	if svg != draw() {
		t.Fatal("two drawings of a chart differ")
	}
	var page struct {
		Box   string   `xml:"viewBox,attr"`
		Texts []textOf `xml:"text"`
	}
	if err := xml.Unmarshal([]byte(svg), &page); err != nil || strings.Contains(svg, "NaN") {
		t.Fatalf("%v in %s", err, svg)
	}
	var wide, height float64
	_, _ = fmt.Sscanf(page.Box, "0 0 %g %g", &wide, &height)
	for i, a := range page.Texts {
		all = append(all, a.Text)
		if a.X < 0 || a.X+a.Width > wide+0.1 || a.Y < 8 || a.Y > height {
			t.Errorf("%q is not on the page: from %v to %v, at %v", a.Text, a.X, a.X+a.Width, a.Y)
		}
		for _, b := range page.Texts[i+1:] {
			if math.Abs(b.Y-a.Y) < 9 && b.X < a.X+a.Width && a.X < b.X+b.Width {
				t.Errorf("%q and %q overlap", a.Text, b.Text)
			}
		}
	}
	return all
}

// replayOf returns a chart with attempts at the given seconds, and a set of limits for each list of
// waits. Each set denies the last attempts, as many as there are waits.
func replayOf(seconds []int64, waits ...[]time.Duration) Replay {
	r := Replay{Title: "a title", Zone: "UTC", Timeline: NewTimeline(len(waits))}
	for i, w := range waits {
		r.Sets = append(r.Sets, Set{Name: fmt.Sprintf("%d/1h", i+1), Waits: waitsOf(w), Denied: len(w)})
	}
	for i, s := range seconds {
		var allowed []bool
		for _, w := range waits {
			allowed = append(allowed, i < len(seconds)-len(w))
		}
		r.Timeline.Add(time.Unix(s, 0), allowed)
	}
	return r
}

// each returns n times that are apart seconds from one another.
func each(from, apart int64, n int) (seconds []int64) {
	for i := range n {
		seconds = append(seconds, from+int64(i)*apart)
	}
	return seconds
}

// TestCharts checks the texts in charts, including charts of unusual data.
func TestCharts(t *testing.T) {
	two := []time.Duration{time.Second, time.Minute}
	never := replayOf(each(noon, 1, 500), nil)
	never.Sets[0].Denied = 500
	five := replayOf(each(noon, 3600, 2000), make([][]time.Duration, 5)...)
	five.Title = strings.Repeat("long ", 1e3)
	for i := range five.Sets {
		five.Sets[i].Name = strings.Repeat(fmt.Sprintf("%d/1h, ", i), 100)
	}
	logins := Logins{replayOf(nil, two), []Budget{{"address", "20/1m", 0}, {"pair", "5/1m, 10/1h", 2}}}
	logins.Timeline = NewTimeline(3)
	logins.Timeline.Add(time.Unix(noon, 0), []bool{true, false, false})
	logins.Timeline.Add(time.Unix(noon, 0), []bool{false, false, true})
	logins.Timeline.Add(time.Unix(noon, 0), []bool{false, false, true})
	for name, c := range map[string]struct {
		draw func() string
		want []string
	}{
		"one set": {replayOf(each(noon, 60, 1500), two).Draw, []string{
			"a title", "attempts (1,500)", "allowed under 1/1h (2 denied)", "Attempts per 5 min", "UTC", "Mar 4, 2025", "Mar 5, 2025", "03:00", "in steps of 9 %", "30 s", "1 min",
		}},
		"two sets":          {replayOf(each(noon, 60, 1500), two, nil).Draw, []string{"1/1h", "1,498 allowed, 2 denied", "2/1h", "1,500 allowed, 0 denied"}},
		"ends at midnight":  {replayOf(each(noon, 43, 1005), nil).Draw, []string{"Mar 4, 2025", "Mar 5, 2025"}},
		"starts before it":  {replayOf(each(1742774090, 5, 340), nil, nil).Draw, []string{"Mar 23, 2025", "Mar 24, 2025"}},
		"few among many":    {replayOf(append(each(noon, 1, 300), each(noon+299, 0, 12345)...), nil).Draw, []string{"12,346", "UTC, square-root scale"}},
		"no attempts":       {replayOf(nil, nil).Draw, []string{"There are no attempts.", "No attempt is denied."}},
		"no wait helps":     {never.Draw, []string{"No wait helps: they ask for more than a limit holds."}},
		"the longest waits": {replayOf(each(noon, 1, 9), []time.Duration{0, math.MaxInt64}).Draw, []string{"100 years"}},
		"4000 years":        {replayOf(each(0, 365*day, 4000), nil).Draw, []string{"2500"}},
		"long names":        {five.Draw, []string{"Attempts per 6 h"}},
		"logins":            {logins.Draw, []string{"attempts (3)", "allowed (1)", "denied (2)", "Denied by pair", "2 denied, limits 5/1m, 10/1h", "Waits of the denied"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := textsIn(t, c.draw)
			for _, want := range c.want {
				if !slices.Contains(got, want) {
					t.Errorf("no %q in %q", want, got)
				}
			}
		})
	}
}

// FuzzReplay checks that random timelines and waits under random names stay legible.
func FuzzReplay(f *testing.F) {
	f.Add("OpenSSH_2k.log", "5/1h", "UTC", uint64(1), false)
	f.Add("\xff\x00<&>]]>", "\u202e\"'", "\x1b", uint64(2), true)
	f.Fuzz(func(t *testing.T, title, name, zone string, seed uint64, yearless bool) {
		random := rand.New(rand.NewPCG(seed, 5))
		r := Replay{Title: title, Zone: zone, Yearless: yearless, Timeline: timelineOf(randomHistory(random))}
		for range 2 {
			r.Sets = append(r.Sets, Set{Name: name, Waits: waitsOf(randomWaits(random)), Denied: random.IntN(1e6)})
		}
		textsIn(t, r.Draw)
	})
}

// TestSave checks the file that is written.
func TestSave(t *testing.T) {
	file, draw := filepath.Join(t.TempDir(), "chart.svg"), replayOf(each(noon, 60, 1500), nil).Draw
	if err := errors.Join(Check(file), Save(file, draw), Check(file)); err != nil {
		t.Fatal(err)
	}
	if written := string(must(os.ReadFile(file))); written != draw() || !strings.Contains(written, "prefers-color-scheme:dark") || Save(filepath.Dir(file), draw) == nil {
		t.Errorf("it is another chart, has no dark style, or replaces a directory: %s", written)
	}
}

// TestContrast checks that text and curves have the contrast that WCAG 2 requires at level AA, in
// both modes.
func TestContrast(t *testing.T) {
	for _, c := range palette {
		least := 3.0
		switch c {
		case Ink, Faint:
			least = 4.5
		case Paper, Rule, Shade:
			continue
		}
		if light, dark := contrast(c.light, Paper.light), contrast(c.dark, Paper.dark); light < least || dark < least {
			t.Errorf("%s has a contrast of %.1f in light mode and of %.1f in dark mode, not %.1f", c, light, dark, least)
		}
	}
}

func contrast(a, b uint32) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// luminance returns the relative luminance as defined by WCAG 2.
func luminance(rgb uint32) float64 {
	linear := func(part uint32) float64 {
		v := float64(part&0xff) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(rgb>>16) + 0.7152*linear(rgb>>8) + 0.0722*linear(rgb)
}
