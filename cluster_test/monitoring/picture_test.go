package monitoring_test

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	pictureFile = "../../docs/monitoring/dashboard.svg"
	pictureSpan = 60 * time.Second
	unit        = 34.0 // the size in pixels of one unit of Grafana's grid, which has 24 columns
	top, bottom = 28.0, 62.0
)

// The colours of the picture in light mode, which are those of the other pictures.
const (
	paper, ink, rule                 = "#FFFFFF", "#222222", "#E6E6E6"
	blue, vermilion, green, mulberry = "#0072B2", "#D55E00", "#009E73", "#7A1F5C"
)

// darkStyle replaces the colours in dark mode.
const darkStyle = `<style>@media (prefers-color-scheme:dark){
[style*="fill:#FFFFFF"]{fill:#0D1117!important}
[style*="fill:#222222"]{fill:#E6EDF3!important}
[style*="stroke:#E6E6E6"]{stroke:#262C36!important}
[style*="stroke:#0072B2"]{stroke:#4A9FE0!important}
[style*="stroke:#D55E00"]{stroke:#FF8B3D!important}
[style*="stroke:#009E73"]{stroke:#2BC79A!important}
[style*="stroke:#7A1F5C"]{stroke:#F4B6DA!important}
}</style>
`

// stroke returns the style of a panel's i-th line. From the fifth line on, the colours repeat, and
// lines are dashed.
func stroke(i int) string {
	colours := []string{blue, vermilion, green, mulberry}
	dashes := []string{"none", "5 2", "2 2"}
	return fmt.Sprintf(`fill="none" stroke-width="1.5" stroke-dasharray="%s" style="stroke:%s"`, dashes[i/len(colours)%len(dashes)], colours[i%len(colours)])
}

// draw draws all panels of the dashboard for a minute of Prometheus data, in which Redis is fast,
// slow, fast, hangs, and is fast again.
func (p *scraper) draw(t *testing.T) {
	t.Helper()
	<-time.After(20 * time.Second)
	p.redis.slow(t)
	<-time.After(10 * time.Second)
	p.redis.hang(t, func() {})
	p.redis.hang(t, func() {})
	<-time.After(22 * time.Second)
	end, height := time.Now(), 0.0
	var panels strings.Builder
	for _, panel := range dashboard(t, "3s").Panels {
		height = max(height, unit*(panel.GridPos.Y+panel.GridPos.H))
		p.drawPanel(t, &panels, panel, end)
	}
	text := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="%s" font-size="11" style="fill:%s">%s<rect width="100%%" height="100%%" style="fill:%s"/>`+"\n%s</svg>\n",
		24*unit, height, "'Liberation Sans',Arial,Helvetica,sans-serif", ink, darkStyle, paper, &panels)
	if err := os.WriteFile(pictureFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// drawPanel draws a panel, or the title of a row.
func (p *scraper) drawPanel(t *testing.T, to *strings.Builder, panel panel, end time.Time) {
	t.Helper()
	at, width, height := panel.GridPos, unit*panel.GridPos.W-6, unit*panel.GridPos.H-6
	fmt.Fprintf(to, `<g transform="translate(%g %g)">`, unit*at.X+3, unit*at.Y+3)
	defer to.WriteString("</g>\n")
	if panel.Type == "row" {
		fmt.Fprintf(to, `<text x="4" y="20" font-size="15" font-weight="bold">%s</text>`, panel.Title)
		return
	}
	fmt.Fprintf(to, `<rect width="%g" height="%g" fill="none" style="stroke:%s"/><text x="8" y="18" font-weight="bold">%s</text>`, width, height, rule, html.EscapeString(panel.Title))
	var lines []line
	var names []string
	for _, target := range panel.Targets {
		answer := p.lines(t, target.Expr, end.Add(-pictureSpan), end)
		if panel.Type == "heatmap" {
			separateBuckets(answer)
		}
		for _, line := range answer {
			if line.isZero() {
				continue
			}
			lines = append(lines, line)
			names = append(names, labelPattern.ReplaceAllStringFunc(target.LegendFormat, func(label string) string { return line.Metric[labelsIn(label)[0]] }))
		}
	}
	c := chart{to, width - 70, height - top - bottom, end.Add(-pictureSpan)}
	c.draw(lines, panel.FieldConfig.Defaults.Unit)
	c.legend(names, height)
}

// separateBuckets sorts the cumulative buckets of a histogram, and subtracts the previous bucket
// from each.
func separateBuckets(buckets []line) {
	bound := func(l line) float64 { return must(strconv.ParseFloat(l.Metric["le"], 64)) }
	slices.SortFunc(buckets, func(a, b line) int { return cmp.Compare(bound(a), bound(b)) })
	for i := len(buckets) - 1; i > 0; i-- {
		for j := range buckets[i].Values {
			buckets[i].Values[j][1] = fmt.Sprint(buckets[i].value(j) - buckets[i-1].value(j))
		}
	}
}

// chart is the part of a panel that shows the values.
type chart struct {
	to            *strings.Builder
	width, height float64
	from          time.Time
}

// draw draws the lines. The axis ends at the largest value, which is its only label.
func (c chart) draw(lines []line, unit string) {
	largest := 0.0
	for _, l := range lines {
		for i := range l.Values {
			largest = max(largest, l.value(i))
		}
	}
	if largest == 0 {
		largest = 1
	}
	for _, share := range []float64{0, .5, 1} {
		y := top + c.height*(1-share)
		fmt.Fprintf(c.to, `<path d="M58 %g h%g" style="stroke:%s"/><text x="54" y="%g" text-anchor="end">%s</text>`, y, c.width, rule, y+4, amount(share*largest, unit))
	}
	for i, l := range lines {
		command := "M"
		fmt.Fprintf(c.to, `<path %s d="`, stroke(i))
		for j := range l.Values {
			fmt.Fprintf(c.to, "%s%.1f %.1f", command, 58+c.width*l.second(j, c.from)/pictureSpan.Seconds(), top+c.height*(1-l.value(j)/largest))
			command = "L"
		}
		c.to.WriteString(`"/>`)
	}
}

// legend writes the lines' names below them, each next to a sample.
func (c chart) legend(names []string, height float64) {
	x, y := 8.0, height-bottom+22
	for i, name := range names {
		wide := 32 + 6*float64(len(name))
		if x+wide > c.width+64 {
			x, y = 8, y+13
		}
		fmt.Fprintf(c.to, `<path %s d="M%g %g h14"/><text x="%g" y="%g">%s</text>`, stroke(i), x, y-4, x+18, y, html.EscapeString(name))
		x += wide
	}
}

// value returns the i-th value of a line, or 0 if it is not a number.
func (l line) value(i int) float64 {
	text, _ := l.Values[i][1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

// isZero reports whether all values are 0.
func (l line) isZero() bool {
	return !slices.ContainsFunc(l.Values, func(v [2]any) bool { return line{Values: [][2]any{v}}.value(0) != 0 })
}

// second returns the time of the i-th value, in seconds since from.
func (l line) second(i int, from time.Time) float64 {
	at, _ := l.Values[i][0].(float64)
	return at - float64(from.Unix())
}

// amount formats a value in one of Grafana's units.
func amount(v float64, unit string) string {
	switch unit {
	case "s":
		return fmt.Sprintf("%.3g ms", 1000*v)
	case "percentunit":
		return fmt.Sprintf("%.3g %%", 100*v)
	case "bytes":
		return fmt.Sprintf("%.3g MB", v/1e6)
	case "ops", "reqps":
		return fmt.Sprintf("%.0f/s", v)
	}
	return fmt.Sprintf("%.3g", v)
}
