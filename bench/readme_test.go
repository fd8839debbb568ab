package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestReadmeTable compares the figures of the README with those of docs: the time in the server
// with bench.json, who keeps the limit with audit.md, and decisions a second with performance.md.
func TestReadmeTable(t *testing.T) {
	published := publishedFigures(t)
	readme, audited := page(t, "README.md"), page(t, "docs", "audit.md")
	for name, audit := range map[string]string{
		"window":     `\*\*window\*\*`,
		"ar1":        "ar1",
		"redis_rate": `redis_rate \(GCRA\)`,
		"throttled":  `throttled \(GCRA\)`,
		"ulule":      `ulule \(fixed window\)`,
	} {
		cells := regexp.MustCompile(`(?m)^\| [^|]*` + name + `[^|]* \|.*$`).FindString(readme)
		most := cell(t, audited, `(?m)^\| `+audit+` \| \**([0-9.]+)`)
		if want := strconv.FormatFloat(math.Round(20*most), 'f', 0, 64); strings.ReplaceAll(column(cells, 3), "*", "") != want {
			t.Errorf("README.md has %q for the most in a second, docs/audit.md %s: %s", column(cells, 3), want, cells)
		}
		if want := published.times(name); column(cells, 6) != want {
			t.Errorf("README.md has %q for the server time, docs/%s %q: %s", column(cells, 6), figuresFile, want, cells)
		}
	}
	performance := page(t, "docs", "performance.md")
	one := cell(t, performance, `(?m)^\| window / redis_rate \|(?:[^|]*\|){3} ([0-9.]+)`)
	three := cell(t, performance, `(?m)^\| window, 3 limits / redis_rate, 3 limits \|(?:[^|]*\|){3} ([0-9.]+)`)
	want := fmt.Sprintf("64 callers get %.1f × the decisions a second of redis_rate, %.1f × with three limits", one, three)
	if !strings.Contains(strings.Join(strings.Fields(readme), " "), want) {
		t.Errorf("README.md does not say %q, as docs/performance.md does", want)
	}
}

// times returns the server times of a library under one limit and, if it has them, under three.
func (f figures) times(name string) string {
	ratio := map[string]float64{}
	for _, b := range f.Server {
		ratio[b.Name] = b.Ratio
	}
	times := fmt.Sprintf("%.2f", ratio[name])
	if three := ratio[name+", 3 limits"]; three > 0 {
		times += fmt.Sprintf(", %.2f", three)
	}
	return times
}

// cell returns the number that a pattern captures in a page.
func cell(t *testing.T, page, pattern string) float64 {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("no page has %s", pattern)
	}
	number, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// column returns a cell of a table's row, counted from one, or "".
func column(row string, n int) string {
	cells := strings.Split(row, "|")
	if n >= len(cells) {
		return ""
	}
	return strings.TrimSpace(cells[n])
}
