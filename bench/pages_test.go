package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/cmd/slidegate/charts"
)

// TestReadmeFigures compares the README's table with the published figures.
func TestReadmeFigures(t *testing.T) {
	f, readme := publishedFigures(t), page(t, "README.md")
	for _, name := range inReadme {
		row := regexp.MustCompile(`(?m)^\| [^|]*` + name + `[^|]* \|.*$`).FindString(readme)
		if want := fmt.Sprintf("%.0f", math.Round(float64(attacked.max)*f.claim(t, name).Most)); column(row, 2) != want {
			t.Errorf("README.md has %q for the most in a second, docs/%s %s: %s", column(row, 2), figuresFile, want, row)
		}
	}
}

// performance is the page that has the figures.
const performance = "performance.md"

// TestPerformanceFigures compares the tables of docs/performance.md with the published figures.
func TestPerformanceFigures(t *testing.T) {
	f, text := publishedFigures(t), page(t, "docs", performance)
	for _, row := range table(t, text, "| | server time × redis_rate |") {
		b := f.bar(t, regexp.MustCompile(`: [a-z]+ .*| \(.*`).ReplaceAllString(column(row, 1), ""))
		want := []string{
			fmt.Sprintf("%.2f", b.Ratio), fmt.Sprintf("%.2f to %.2f", b.Low, b.High), fmt.Sprintf("%.1f", b.Process),
			thousands(b.Event), thousands(b.Replicated), strconv.FormatFloat(math.Round(10*b.Allocs)/10, 'f', -1, 64),
		}
		if b.Event == 0 {
			want[3] = ""
		}
		checkRow(t, row, 2, want)
	}
	for _, row := range table(t, text, "| decisions/s | run |") {
		if column(row, 2) != "first" {
			continue
		}
		name, of, _ := strings.Cut(column(row, 1), " / ")
		var want []string
		for _, r := range f.Ratios {
			if r.Name == name && r.Of == of {
				want = append(want, fmt.Sprintf("%.2f (%.2f–%.2f)", r.Median, r.Low, r.High))
			}
		}
		checkRow(t, row, 3, want)
	}
	for _, row := range table(t, text, "| callers | | decisions/s |") {
		callers, err := strconv.Atoi(column(row, 1))
		if err != nil {
			t.Fatal(err)
		}
		checkRow(t, row, 3, []string{f.decisions(t, column(row, 2), float64(callers))})
	}
	rows := table(t, text, "| | most / Max | denied |")
	if len(rows) != len(f.Accuracy) {
		t.Errorf("docs/%s has %d contenders, docs/%s %d", performance, len(rows), figuresFile, len(f.Accuracy))
	}
	for _, row := range rows {
		name, _, _ := strings.Cut(column(row, 1), " (")
		c := f.claim(t, name)
		checkRow(t, row, 2, []string{fmt.Sprintf("%.2f", c.Most), fmt.Sprint(c.Denied), fmt.Sprint(c.Needless), c.Waits, c.Found})
	}
}

// bar returns a contender's figures in the server part.
func (f figures) bar(t *testing.T, name string) bar {
	t.Helper()
	return find(t, f.Server, name, func(b bar) bool { return b.Name == name })
}

// claim returns what the attacks on the named contender showed.
func (f figures) claim(t *testing.T, name string) claim {
	t.Helper()
	return find(t, f.Accuracy, name, func(c claim) bool { return c.Name == name })
}

// decisions returns the named contender's decisions per second, rounded to three digits.
func (f figures) decisions(t *testing.T, name string, callers float64) string {
	t.Helper()
	y := at(t, f.Callers, name, callers)
	digit := math.Pow(10, math.Floor(math.Log10(y))-2)
	return thousands(math.Round(y/digit) * digit)
}

// at returns the value of a curve at x.
func at(t *testing.T, curves []curve, name string, x float64) float64 {
	t.Helper()
	for _, p := range find(t, curves, name, func(c curve) bool { return c.Name == name }).Points {
		if p.X == x {
			return p.Y
		}
	}
	t.Fatalf("docs/%s has no %v of %s", figuresFile, x, name)
	return 0
}

// find returns the element that matches.
func find[T any](t *testing.T, all []T, name string, match func(T) bool) T {
	t.Helper()
	i := slices.IndexFunc(all, match)
	if i < 0 {
		t.Fatalf("docs/%s has no figures of %q", figuresFile, name)
	}
	return all[i]
}

// table returns the rows of the table whose header begins with the given text.
func table(t *testing.T, page, header string) []string {
	t.Helper()
	_, after, found := strings.Cut(page, "\n"+header)
	rows := strings.Split(after, "\n")
	end := slices.Index(rows, "")
	if !found || end < 3 {
		t.Fatalf("no page has a table %q", header)
	}
	return rows[2:end]
}

// checkRow compares the cells of a row of a table in docs/performance.md, starting at index from,
// with want. With -update, it rewrites them.
func checkRow(t *testing.T, row string, from int, want []string) {
	t.Helper()
	if len(want) == 0 {
		t.Errorf("docs/%s has nothing for %s", figuresFile, row)
	}
	cells := strings.Split(row, "|")
	for i, w := range want {
		if got := column(row, from+i); got != w && !*update {
			t.Errorf("docs/%s has %q, docs/%s %q: %s", performance, got, figuresFile, w, row)
		}
		cells[from+i] = " " + w + " "
	}
	if *update {
		changed := strings.Replace(page(t, "docs", performance), row, strings.Join(cells, "|"), 1)
		if err := os.WriteFile(filepath.Join("..", "docs", performance), []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// column returns the n-th cell of a table row, counted from one and without emphasis. If there is
// no such cell, it returns "".
func column(row string, n int) string {
	cells := strings.Split(row, "|")
	if n >= len(cells) {
		return ""
	}
	return strings.TrimSpace(strings.ReplaceAll(cells[n], "**", ""))
}

// thousands formats x as a whole number with commas between thousands.
func thousands(x float64) string { return charts.Thousands(int(math.Round(x))) }

// TestRounded checks that figures keep four digits, including negative ones: a small difference in
// memory can be negative.
func TestRounded(t *testing.T) {
	for x, want := range map[float64]float64{0: 0, 12345: 12350, 0.123449: 0.1234, -12.3449: -12.34} {
		if got := rounded(x); got != want {
			t.Errorf("%v is %v, not %v", x, got, want)
		}
	}
}
