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

// TestReadmeFigures compares the README's table and picture with the published figures.
func TestReadmeFigures(t *testing.T) {
	f, readme := publishedFigures(t), page(t, "README.md")
	for _, name := range inReadme {
		row := regexp.MustCompile(`(?m)^\| [^|]*` + name + `[^|]* \|.*$`).FindString(readme)
		if want := fmt.Sprintf("%.0f", math.Round(float64(attacked.max)*f.claim(t, name).Most)); column(row, 2) != want {
			t.Errorf("README.md has %q for the most in a second, docs/%s %s: %s", column(row, 2), figuresFile, want, row)
		}
	}
}

// TestSentencesWithFigures checks the sentences that quote published figures.
func TestSentencesWithFigures(t *testing.T) {
	f := publishedFigures(t)
	one, three := f.rates(t, "window", rate, 64), f.rates(t, "window, 3 limits", "redis_rate, 3 limits", 64)
	few := f.rates(t, "window", rate, 4)
	window, windows := f.bar(t, "window"), f.bar(t, "window, 3 limits")
	rated, ratedThree, counted := f.bar(t, rate), f.bar(t, "redis_rate, 3 limits"), f.bar(t, counting)
	attacked := func(name string) string {
		return fmt.Sprintf("allowed %.2f × Max within one second", f.claim(t, name).Most)
	}
	tests := map[string][]string{
		"README.md": {
			fmt.Sprintf("time in Redis for one limit %.2f (throttled %.2f, ulule %.2f), for three limits in one call %.2f; decisions per second %.1f with 64 callers, %.1f with 4. An event takes %.0f bytes in Redis",
				window.Ratio, f.bar(t, "throttled").Ratio, f.bar(t, "ulule").Ratio, windows.Ratio/ratedThree.Ratio, one, few, window.Event),
		},
		"docs/performance.md": {
			fmt.Sprintf("%.0f µs of CPU with one limit, %.0f µs with three. redis_rate takes %.0f µs, and %.0f µs in three calls.",
				math.Round(window.Process), math.Round(windows.Process), math.Round(rated.Process), math.Round(ratedThree.Process)),
			fmt.Sprintf("64 callers on two cores, shared with Redis, get %s decisions a second", f.decisions(t, "window", 64)),
			fmt.Sprintf("64 callers get %.1f × as many decisions a second, and %.1f × with three limits. 4 callers get %.1f ×", one, three, few),
			fmt.Sprintf("%.0f bytes per event with one limit, %.0f with three", window.Event, windows.Event),
			fmt.Sprintf("under 1/5s, 50/1h, 200/1d takes %.0f bytes", f.Memory.BytesPerEvent),
			fmt.Sprintf("Eight limits take %.1f × the time of one redis_rate decision, and 31 take %.1f ×",
				at(t, f.Limits, "window, allowed", 8), at(t, f.Limits, "window, allowed", 31)),
		},
		"docs/algorithm.md": {
			fmt.Sprintf("`INCR` and `PEXPIRE NX` in a pipeline take %.2f × the server time of redis_rate, and `window` takes %.2f ×. Including the work for sockets, that is %.1f and %.1f µs of CPU time, respectively. An event takes %.0f and %.0f bytes.",
				counted.Ratio, window.Ratio, counted.Process, window.Process, counted.Event, window.Event),
		},
		"docs/keys.md": {
			fmt.Sprintf("five units under 1/5s, 50/1h, 200/1d | %.0f |", f.Memory.BytesPerEvent),
		},
		"docs/from-redis_rate.md": {
			attacked(rate),
			fmt.Sprintf("One limit takes the server %.2f × the time of redis_rate. Three limits take %.2f ×, and three calls of redis_rate take %.2f ×.",
				window.Ratio, windows.Ratio, ratedThree.Ratio),
			fmt.Sprintf("With 4 callers `window` makes %.1f × as many decisions per second as redis_rate, and with 64 callers %.1f × as many", few, one),
		},
		"docs/from-throttled.md": {
			attacked("throttled"),
			fmt.Sprintf("throttled takes %.2f × that of redis_rate, and `window` %.2f ×", f.bar(t, "throttled").Ratio, window.Ratio),
			fmt.Sprintf("with sockets, throttled takes %.0f µs of the server's CPU, and `window` %.0f µs", f.bar(t, "throttled").Process, window.Process),
		},
		"docs/from-ulule.md": {
			attacked("ulule"),
			fmt.Sprintf("ulule takes %.2f × that of redis_rate, and `window` %.2f ×", f.bar(t, "ulule").Ratio, window.Ratio),
		},
	}
	for name, sentences := range tests {
		text := strings.ReplaceAll(strings.Join(strings.Fields(page(t, name)), " "), "**", "")
		for _, s := range sentences {
			if !strings.Contains(text, s) {
				t.Errorf("%s does not say %q, as docs/%s does", name, s, figuresFile)
			}
		}
	}
}

// TestPerformanceFigures compares the tables of docs/performance.md with the published figures.
func TestPerformanceFigures(t *testing.T) {
	const file = "performance.md"
	f, text := publishedFigures(t), page(t, "docs", file)
	for _, row := range table(t, text, "| | server time × redis_rate |") {
		b := f.bar(t, regexp.MustCompile(`: [a-z]+ .*| \(.*`).ReplaceAllString(column(row, 1), ""))
		want := []string{
			fmt.Sprintf("%.2f", b.Ratio), fmt.Sprintf("%.2f to %.2f", b.Low, b.High), fmt.Sprintf("%.1f", b.Process),
			thousands(b.Event), thousands(b.Replicated), strconv.FormatFloat(math.Round(10*b.Allocs)/10, 'f', -1, 64),
		}
		if b.Event == 0 {
			want[3] = ""
		}
		checkRow(t, file, row, 2, want)
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
		checkRow(t, file, row, 3, want)
	}
	for _, row := range table(t, text, "| callers | | decisions/s |") {
		callers, err := strconv.Atoi(column(row, 1))
		if err != nil {
			t.Fatal(err)
		}
		checkRow(t, file, row, 3, []string{f.decisions(t, column(row, 2), float64(callers))})
	}
	for _, want := range []string{"Redis " + strings.TrimPrefix(f.Run.Server, "redis "), strings.TrimPrefix(f.Run.Go, "go")} {
		if !strings.Contains(text, want) {
			t.Errorf("docs/performance.md does not say that it ran on %s", want)
		}
	}
}

// TestAuditFigures compares the table of contenders in docs/audit.md with the published figures.
func TestAuditFigures(t *testing.T) {
	f := publishedFigures(t)
	rows := table(t, page(t, "docs", "audit.md"), "| | most / Max | denied |")
	if len(rows) != len(f.Accuracy) {
		t.Errorf("docs/audit.md has %d contenders, docs/%s %d", len(rows), figuresFile, len(f.Accuracy))
	}
	for _, row := range rows {
		name, _, _ := strings.Cut(column(row, 1), " (")
		c := f.claim(t, name)
		checkRow(t, "audit.md", row, 2, []string{fmt.Sprintf("%.2f", c.Most), fmt.Sprint(c.Denied), fmt.Sprint(c.Needless), c.Waits, c.Found})
	}
}

// bar returns a contender's figures in the server part.
func (f figures) bar(t *testing.T, name string) bar {
	t.Helper()
	return find(t, f.Server, name, func(b bar) bool { return b.Name == name })
}

// claim returns what the audit of the named contender found.
func (f figures) claim(t *testing.T, name string) claim {
	t.Helper()
	return find(t, f.Accuracy, name, func(c claim) bool { return c.Name == name })
}

// rates returns the ratio of the decisions per second of two contenders.
func (f figures) rates(t *testing.T, name, of string, callers int) float64 {
	t.Helper()
	return find(t, f.Ratios, name, func(r rates) bool { return r.pair == pair{name, of} && r.Callers == callers }).Median
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

// checkRow compares the cells of a table row in docs, starting at index from, with want. With
// -update, it rewrites them.
func checkRow(t *testing.T, file, row string, from int, want []string) {
	t.Helper()
	if len(want) == 0 {
		t.Errorf("docs/%s has nothing for %s", figuresFile, row)
	}
	cells := strings.Split(row, "|")
	for i, w := range want {
		if got := column(row, from+i); got != w && !*update {
			t.Errorf("docs/%s has %q, docs/%s %q: %s", file, got, figuresFile, w, row)
		}
		cells[from+i] = " " + w + " "
	}
	if *update {
		changed := strings.Replace(page(t, "docs", file), row, strings.Join(cells, "|"), 1)
		if err := os.WriteFile(filepath.Join("..", "docs", file), []byte(changed), 0o644); err != nil {
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
