package inspect

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestWidth checks that no line of the bar chart is wider than the terminal, or much narrower.
func TestWidth(t *testing.T) {
	const m, h = time.Minute, time.Hour
	now := time.Date(2025, 3, 4, 14, 0, 0, 0, time.UTC)
	for width := 40; width < 250; width++ {
		sec := &section{per: 24 * h, now: now, Counts: &Counts{Buckets: []bucket{{now.Add(-24 * h), 1}, {now.Add(-9 * h), 7}, {now, 2}, {now.Add(m), 3}}}}
		bars, highest := sec.bars(width)
		lines := strings.Split(strings.TrimSuffix(bars, "\n"), "\n")
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > width || n < width-4 {
				t.Fatalf("%d wide on %d: %q", n, width, line)
			}
		}
		if highest != 7 || !strings.HasPrefix(lines[0], "  ▂") || !strings.HasSuffix(lines[0], "▆") || strings.Count(lines[0], "█") != 1 || !strings.HasSuffix(lines[1], " now ┤") {
			t.Fatalf("highest %d\n%s", highest, bars)
		}
	}
}
