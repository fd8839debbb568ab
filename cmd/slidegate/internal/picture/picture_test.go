package picture

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"gonum.org/v1/plot"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
	"github.com/slidegate/slidegate/internal/look"
	"github.com/slidegate/slidegate/internal/look/looktest"
)

// renderPicture draws a picture twice. It checks that both are the same, and that all of it is
// legible.
func renderPicture(t *testing.T, p Picture) rendered {
	t.Helper()
	var first, second bytes.Buffer
	if err := errors.Join(Draw(&first, sheet.SVG, p), Draw(&second, sheet.SVG, p)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Fatal("two pictures of the same differ")
	}
	return rendered{looktest.Check(t, first.Bytes())}
}

// pictureOf returns a picture with attempts at some seconds and a set of limits for each list of
// waits. Each set denies the last attempts, one for each wait.
func pictureOf(seconds []int64, waits ...[]time.Duration) Picture {
	p := Picture{Title: "a title", Zone: "UTC", Timeline: NewTimeline(len(waits))}
	for i, w := range waits {
		p.Sets = append(p.Sets, Set{Name: fmt.Sprintf("%d/1h", i+1), Waits: waitsOf(w), Denied: len(w)})
	}
	for i, s := range seconds {
		var admitted []bool
		for _, w := range waits {
			admitted = append(admitted, i < len(seconds)-len(w))
		}
		p.Timeline.Add(time.Unix(s, 0), admitted)
	}
	return p
}

// each returns n seconds at a fixed distance.
func each(from, apart int64, n int) (seconds []int64) {
	for i := range n {
		seconds = append(seconds, from+int64(i)*apart)
	}
	return seconds
}

// TestDrawOne checks all texts of a picture of one set.
func TestDrawOne(t *testing.T) {
	p := pictureOf(each(noon, 60, 1500), []time.Duration{time.Second, time.Minute})
	p.Title, p.Sets[0].Name = "a < b & \"c\"", "<5/1h>"
	checkAll(t, renderPicture(t, p), []string{
		"a < b & \"c\"",
		"attempts (1,500)", "admitted under <5/1h> (2 denied)", "denied, by how long they have to wait",
		"Attempts per 5 min", "UTC",
		"5", "0", "2", "4",
		"12:00", "15:00", "18:00", "21:00", "00:00", "03:00", "06:00", "09:00", "12:00", "Mar 4, 2025", "Mar 5, 2025",
		"Waits of the denied", "in steps of 9 %",
		"1", "0", "1", "1 s", "2 s", "5 s", "10 s", "30 s", "1 min",
	})
}

func checkAll(t *testing.T, d rendered, want []string) {
	t.Helper()
	got := d.All()
	slices.Sort(want)
	slices.Sort(got)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
}

// TestDrawRows checks that each of several sets has its own panels, with common headings, dates and
// scales.
func TestDrawRows(t *testing.T) {
	p := pictureOf(each(noon, 60, 1500), []time.Duration{time.Second, time.Minute}, nil)
	times, waits := []string{"5", "0", "2", "4", "6", "12:00", "18:00", "00:00", "06:00", "12:00"}, []string{"0", "1", "1 s", "2 s", "5 s", "10 s", "30 s", "1 min"}
	checkAll(t, renderPicture(t, p), slices.Concat(
		[]string{"a title", "attempts (1,500)", "admitted", "denied, by how long they have to wait"},
		[]string{"Attempts per 5 min", "UTC", "Waits of the denied", "in steps of 9 %"},
		[]string{"1/1h", "1,498 admitted, 2 denied"}, times, waits, []string{"1"},
		[]string{"2/1h", "1,500 admitted, 0 denied"}, times, waits, []string{"Mar 4, 2025", "Mar 5, 2025"},
	))
}

// TestLegend checks the colours of the legend.
func TestLegend(t *testing.T) {
	for _, waits := range [][][]time.Duration{{nil}, {nil, nil, nil}} {
		d := renderPicture(t, pictureOf(each(noon, 60, 5), waits...))
		d.Legend(t, "attempts (5)", look.Shade)
		d.Legend(t, d.All()[2], look.Blue)
		d.Legend(t, "denied, by how long they have to wait", look.Vermilion)
	}
}

// TestPeaks checks that the number of the highest bin is above it, and on the page even if the bin
// is at its edge.
func TestPeaks(t *testing.T) {
	for _, seconds := range [][]int64{
		append(each(noon, 1, 300), each(noon, 0, 12345)...),
		append(each(noon, 1, 300), each(noon+150, 0, 12345)...),
		append(each(noon, 1, 300), each(noon+299, 0, 12345)...),
	} {
		d := renderPicture(t, pictureOf(seconds, nil))
		label := d.Find(t, "12,346")
		left, top := math.Inf(1), 0.0
		for _, p := range d.Paths[3:] {
			for _, corner := range p.Corners() {
				if strings.Contains(p.Style, "fill:"+look.Shade.String()) && corner[1] > top {
					left, top = corner[0], corner[1]
				}
			}
		}
		if left < label.X-1 || left > label.End()+1 || -label.Y < top || -label.Y > top+5 {
			t.Errorf("the highest bin is at %v, %v, and its number from %v to %v, at %v", left, top, label.X, label.End(), -label.Y)
		}
	}
}

// TestPNG checks that a PNG is 2000 pixels wide, with the colours of a light background.
func TestPNG(t *testing.T) {
	var b bytes.Buffer
	if err := Draw(&b, sheet.PNG, pictureOf(each(noon, 60, 1500), []time.Duration{time.Second})); err != nil {
		t.Fatal(err)
	}
	drawn, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	colours := map[color.Color]int{}
	size := drawn.Bounds().Size()
	for x := range size.X {
		for y := range size.Y {
			colours[color.RGBAModel.Convert(drawn.At(x, y))]++
		}
	}
	for _, c := range []look.Colour{look.Paper, look.Shade, look.Blue, look.Vermilion} {
		if colours[color.RGBAModel.Convert(c)] < 1000 {
			t.Errorf("%d pixels in %s", colours[color.RGBAModel.Convert(c)], c)
		}
	}
	if size.X != 2000 {
		t.Errorf("%d pixels across", size.X)
	}
}

// TestTradeoff checks that each curve and each proposal is in the legend.
func TestTradeoff(t *testing.T) {
	one, three := Tried{"6/1d", 1, 197, 0.01}, Tried{"1/5s, 3/1m, 5/1d", 3, 1209, 0.02}
	var b bytes.Buffer
	if err := DrawTradeoff(&b, sheet.SVG, Tradeoff{"a log", "honest attempts", 0.03, 0.1, []Tried{one, three}, []Tried{one, three}}); err != nil {
		t.Fatal(err)
	}
	d := looktest.Check(t, b.Bytes())
	d.Legend(t, "one limit", look.Vermilion)
	d.Legend(t, "up to three limits", look.Blue)
	d.Legend(t, "6/1d (197 stopped)", look.Vermilion)
	d.Legend(t, "1/5s, 3/1m, 5/1d (1,209 stopped)", look.Blue)
}

// TestPlaces checks that an attempt and a wait are drawn above their names on the axis. A bin
// begins at the attempt, and contains the wait.
func TestPlaces(t *testing.T) {
	for wait, name := range map[time.Duration]string{time.Second: "1 s", time.Minute: "1 min", time.Hour: "1 h"} {
		d := renderPicture(t, pictureOf([]int64{noon, noon}, []time.Duration{wait}))
		noon := middle(d.Find(t, "12:00:00"))
		left, right := d.bar(look.Blue, 1)
		if math.Abs(left-noon) > 0.1 {
			t.Errorf("noon is at %v, and its attempts from %v", noon, left)
		}
		if right-left > look.PageWidth/20 {
			t.Errorf("a single bin is %v wide", right-left)
		}
		left, right = d.bar(look.Vermilion, 1)
		if at := middle(d.Find(t, name)); left > at || at > right {
			t.Errorf("%s is at %v, and its bin from %v to %v", name, at, left, right)
		}
	}
}

// middle returns the middle of a text.
func middle(text looktest.Text) float64 { return (text.X + text.End()) / 2 }

// TestSteps checks the outline of counts.
func TestSteps(t *testing.T) {
	got := fmt.Sprint(steps([]int{0, 2, 2, 0, 1}, func(bin int) float64 { return float64(10 * bin) }))
	if want := "[{10 -1} {10 2} {30 2} {30 -1} {40 -1} {40 1} {50 1} {50 -1}]"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

// TestDegenerate checks pictures of unusual data.
func TestDegenerate(t *testing.T) {
	never := pictureOf(each(noon, 1, 500), nil)
	never.Sets[0].Denied = 500
	twelve := pictureOf(each(noon, 3600, 2000), make([][]time.Duration, 12)...)
	for i := range twelve.Sets {
		twelve.Sets[i].Name = strings.Repeat(fmt.Sprintf("%d/1h, ", i), 100)
	}
	twelve.Title = strings.Repeat("long ", 1e4)
	long := pictureOf([]int64{noon}, nil)
	long.Sets[0].Name = strings.Repeat("1/5s, ", 17)
	broken := pictureOf([]int64{noon}, nil)
	broken.Title, broken.Sets[0].Name, broken.Zone = "a\xffb\x00c]]>\u2028\ufffe", "<\x1b[31m>", strings.Repeat("\x07", 999)
	for name, c := range map[string]struct {
		picture Picture
		want    string
	}{
		"no attempts":       {pictureOf(nil, nil), "There are no attempts."},
		"one attempt":       {pictureOf([]int64{noon}, nil), "No attempt is denied."},
		"at once":           {pictureOf(each(noon, 0, 300), repeatWait(time.Hour, 299)), "admitted under 1/1h (299 denied)"},
		"no wait helps":     {never, "No wait helps: they ask for more than a limit holds."},
		"waits of 0":        {pictureOf(each(noon, 1, 9), repeatWait(0, 3)), "1 ms"},
		"the longest waits": {pictureOf(each(noon, 1, 9), repeatWait(math.MaxInt64, 3)), "200 years"},
		"all waits":         {pictureOf(each(noon, 1, 9), []time.Duration{0, math.MaxInt64}), "100 years"},
		"before 1970":       {pictureOf([]int64{-86400 * 500, 0}, nil), "Jan"},
		"4000 years":        {pictureOf(each(0, 365*86400, 4000), nil), "2500"},
		"many long names":   {twelve, "Attempts per 6 h"},
		"one long name":     {long, "admitted under " + sheet.Fit(sheet.Label, long.Sets[0].Name, 500) + " (0 denied)"},
		"broken names":      {broken, "a\ufffdb\ufffdc]]>\ufffd\ufffd"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := renderPicture(t, c.picture).All(); !slices.Contains(got, c.want) {
				t.Errorf("no %q in %q", c.want, got)
			}
		})
	}
}

func repeatWait(wait time.Duration, n int) []time.Duration {
	return slices.Repeat([]time.Duration{wait}, n)
}

// TestSize checks the size of the largest picture: five sets with the most bins and different
// counts in all of them.
func TestSize(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	p := pictureOf(nil, randomWaits(r), randomWaits(r), randomWaits(r), randomWaits(r), randomWaits(r))
	for second := range int64(maxBins) {
		for range 1 + r.IntN(1000) {
			p.Timeline.Add(time.Unix(noon+second, 0), []bool{r.IntN(9) > 0, r.IntN(5) > 0, r.IntN(4) > 0, r.IntN(3) > 0, r.IntN(2) > 0})
		}
	}
	var b bytes.Buffer
	if err := Draw(&b, sheet.SVG, p); err != nil || b.Len() > 180_000 {
		t.Errorf("%d bytes, %v", b.Len(), err)
	}
}

func names(ticks []plot.Tick) string {
	var all []string
	for _, t := range ticks {
		all = append(all, t.Label)
	}
	return strings.Join(all, " ")
}

// TestTickStep checks the ticks of spans from seconds to thousands of years.
func TestTickStep(t *testing.T) {
	for _, c := range []struct {
		from, to string
		yearless bool
		want     string
		note     string // of the last
	}{
		{"2025-03-04T12:00:00Z", "2025-03-04T12:00:05Z", false, "12:00:00 12:00:01 12:00:02 12:00:03 12:00:04 12:00:05", "Mar 4, 2025"},
		{"2025-03-04T12:00:03Z", "2025-03-04T12:01:20Z", true, "12:00:10 12:00:20 12:00:30 12:00:40 12:00:50 12:01:00 12:01:10 12:01:20", "Mar 4"},
		{"2025-03-04T23:58:30Z", "2025-03-05T00:04:00Z", false, "23:58:30 23:59:00 23:59:30 00:00:00 00:00:30 00:01:00 00:01:30 00:02:00 00:02:30 00:03:00 00:03:30 00:04:00", "Mar 5, 2025"},
		{"2025-03-04T12:01:00Z", "2025-03-06T12:00:00Z", false, "18:00 00:00 06:00 12:00 18:00 00:00 06:00 12:00", "Mar 6, 2025"},
		{"2024-02-26T00:00:00Z", "2024-03-02T12:00:00Z", true, "00:00 12:00 00:00 12:00 00:00 12:00 00:00 12:00 00:00 12:00 00:00 12:00", "Mar 2"},
		{"2024-02-20T00:00:00Z", "2024-03-02T12:00:00Z", false, "Feb 21 Feb 23 Feb 25 Feb 27 Feb 29 Mar 2", "2024"},
		{"2024-12-20T00:00:00Z", "2025-02-20T00:00:00Z", true, "Dec 23 Dec 30 Jan 6 Jan 13 Jan 20 Jan 27 Feb 3 Feb 10 Feb 17", ""},
		{"2024-10-02T00:00:00Z", "2025-08-02T00:00:00Z", false, "Nov Dec Jan Feb Mar Apr May Jun Jul Aug", "2025"},
		{"2020-01-01T00:00:00Z", "2025-01-01T00:00:00Z", false, "Jan Jul Jan Jul Jan Jul Jan Jul Jan Jul Jan", "2025"},
		{"2001-06-01T00:00:00Z", "2008-06-01T00:00:00Z", true, "Jan Jan Jan Jan Jan Jan Jan", ""},
		{"1903-01-01T00:00:00Z", "2090-01-01T00:00:00Z", false, "1920 1940 1960 1980 2000 2020 2040 2060 2080", ""},
		{"1970-01-01T00:00:00Z", "5970-01-01T00:00:00Z", false, "2000 2500 3000 3500 4000 4500 5000 5500", ""},
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

// TestTickStepsFit checks that the ticks of any span are in order and within it, and that there are
// from 2 to 12 of them.
func TestTickStepsFit(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		from := float64(r.Int64N(60e9) - 1e9)
		to := from + 20*math.Exp(r.Float64()*math.Log(6e9))
		ticks := newTickStep(from, to, false, width).Ticks(from, to)
		inOrder(t, ticks, from, to)
		if len(ticks) < 2 || len(ticks) > 12 {
			t.Fatalf("%d ticks from %v to %v", len(ticks), from, to)
		}
	}
}

func inOrder(t *testing.T, ticks []plot.Tick, from, to float64) {
	t.Helper()
	for i, tick := range ticks {
		if tick.Value < from || tick.Value > to || i > 0 && tick.Value <= ticks[i-1].Value {
			t.Fatalf("from %v to %v: %v", from, to, ticks)
		}
	}
}

// TestWaitTicks checks the ticks of axes of waits.
func TestWaitTicks(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, c := range []struct {
		from, to time.Duration
		want     string
	}{
		{time.Millisecond, 10 * time.Millisecond, "1 ms 2 ms 5 ms 10 ms"},
		{3 * time.Second, 31 * time.Minute, "5 s 10 s 30 s 1 min 2 min 5 min 10 min 30 min"},
		{time.Second, time.Hour, "1 s 10 s 1 min 10 min 1 h"},
		{59 * time.Minute, 25 * time.Hour, "1 h 2 h 6 h 12 h 1 d"},
		{time.Hour, 366 * 24 * time.Hour, "1 h 6 h 1 d 7 d 30 d 1 year"},
		{year, 250 * year, "1 year 2 years 5 years 10 years 20 years 50 years 100 years 200 years"},
	} {
		if got := names(waitAxis(width).Ticks(float64(c.from), float64(c.to))); got != c.want {
			t.Errorf("from %v to %v: %s, not %s", c.from, c.to, got, c.want)
		}
	}
	for from := 1e6; from < 1e18; from *= 1.1 {
		for to := 8 * from; to < 1e19; to *= 1.3 {
			inOrder(t, waitAxis(width).Ticks(from, to), from, to)
		}
	}
}

// TestWaitNamesFit draws waits of all lengths and ranges. renderPicture checks that no names
// overlap.
func TestWaitNamesFit(t *testing.T) {
	for from := time.Millisecond; from < 1<<61; from *= 9 {
		for to := from; to > 0 && to < 1<<61; to *= 5 {
			renderPicture(t, pictureOf([]int64{noon, noon, noon}, []time.Duration{from, to}))
		}
	}
}

// TestCountScale checks the scales and the ticks of counts.
func TestCountScale(t *testing.T) {
	for _, c := range []struct {
		counts []int
		sqrt   bool
		ticks  string
	}{
		{[]int{1}, false, "0 1"},
		{[]int{0, 0, 3, 1}, false, "0 1 2 3"},
		{[]int{7, 5, 3}, false, "0 2 4 6"},
		{[]int{20, 1, 1, 0, 0}, false, "0 5 10 15 20"},
		{[]int{21, 1, 1, 0, 0}, true, "0 1 5 10 20"},
		{[]int{999, 800}, false, "0 200 400 600 800"},
		{[]int{1234567, 3, 4}, true, "0 50,000 200,000 500,000 1,000,000"},
		{[]int{2_000_000, 1_900_000}, false, "0 500,000 1,000,000 1,500,000 2,000,000"},
	} {
		s := scaleOf(c.counts)
		if got := names(s.Ticks(0, float64(slices.Max(c.counts)))); s.sqrt != c.sqrt || got != c.ticks {
			t.Errorf("%v: sqrt %v, %s; not %v, %s", c.counts, s.sqrt, got, c.sqrt, c.ticks)
		}
	}
	for _, s := range []countScale{{false}, {true}} {
		for top := 1; top < 1e7; top += 1 + top/7 {
			if n := len(s.Ticks(0, float64(top))); n < 2 || n > 8 {
				t.Errorf("%d ticks up to %d, %+v", n, top, s)
			}
		}
	}
}

// TestScaleIsHonest checks that heights are the square roots of counts if the heading says so, and
// proportional to them otherwise.
func TestScaleIsHonest(t *testing.T) {
	for _, c := range []struct {
		highest int
		want    string // the height of 4 attempts, in parts of that
	}{
		{16, "0.25"},
		{400, "0.10"},
	} {
		seconds := append(each(noon, 1, 30), each(noon+30, 0, c.highest)...)
		for range 3 {
			seconds = append(seconds, each(noon, 1, 30)...)
		}
		p := pictureOf(seconds, nil)
		d, upper := renderPicture(t, p), p.times(width, panelRoom).panels[0]
		if got := fmt.Sprintf("%.2f", upper.Y.Norm(4)/upper.Y.Norm(float64(c.highest))); got != c.want {
			t.Errorf("4 is %s as high as %d, not %s", got, c.highest, c.want)
		}
		if shown := slices.Contains(d.All(), "UTC, square-root scale"); shown != (c.highest == 400) {
			t.Errorf("up to %d: shown is %v, in %q", c.highest, shown, d.All())
		}
	}
}

// TestBinName checks the names of bins.
func TestBinName(t *testing.T) {
	for width, want := range map[int64]string{
		1: "second", 5: "5 s", 60: "minute", 900: "15 min", 3600: "hour", 6 * 3600: "6 h", 86400: "day", 7 * 86400: "week", 28 * 86400: "4 weeks",
	} {
		if got := binName(width); got != want {
			t.Errorf("%d: %s, not %s", width, got, want)
		}
	}
}

// TestFit checks that texts are shortened to a width.
func TestFit(t *testing.T) {
	for text, want := range map[string]string{"short": "short", "": "", strings.Repeat("wide ", 9): "wide wide …", "\n": "\ufffd"} {
		if got := sheet.Fit(sheet.Label, text, 60); got != want {
			t.Errorf("%q: %q, not %q", text, got, want)
		}
	}
}

// FuzzDraw draws random timelines and waits under random names. renderPicture checks the pictures.
func FuzzDraw(f *testing.F) {
	f.Add("OpenSSH_2k.log", "5/1h", "UTC", uint64(1), false)
	f.Add("\xff\x00<&>]]>", "\u202e\"'", "\x1b", uint64(2), true)
	f.Fuzz(func(t *testing.T, title, name, zone string, seed uint64, yearless bool) {
		r := rand.New(rand.NewPCG(seed, 5))
		p := Picture{Title: title, Zone: zone, Yearless: yearless, Timeline: timelineOf(randomHistory(r))}
		for range 2 {
			s := Set{Name: name, Waits: &Waits{}, Denied: r.IntN(1e6)}
			if r.IntN(4) > 0 {
				s.Waits = waitsOf(randomWaits(r))
			}
			p.Sets = append(p.Sets, s)
		}
		renderPicture(t, p)
	})
}
