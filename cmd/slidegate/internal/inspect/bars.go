package inspect

import (
	"math"
	"slices"
	"strings"
	"time"
)

// eighths are bars in eighths of a line.
var eighths = []rune(" ▁▂▃▄▅▆▇█")

// bars draws what a window counts over time, one bar for what lies close together, the highest as high as the line. Below is a
// ruler, from where units come back up to now.
func (sec *section) bars(width int) (bars string, highest int64) {
	quarter := (width - 3) / 4
	units := sec.spread(4*quarter + 1)
	line := make([]rune, len(units))
	highest = slices.Max(units)
	for i, n := range units {
		line[i] = eighths[int(math.Ceil(8*float64(n)/float64(highest)))]
	}
	ruler := "├" + strings.Repeat(strings.Repeat("─", quarter-1)+"┼", 3) + strings.Repeat("─", quarter-1) + "┤"
	return "  " + strings.TrimRight(string(line), " ") + "\n  " + ruler + "\n" + sec.times(quarter), highest
}

// spread adds up the units at each of so many places, from Per ago to now.
func (sec *section) spread(places int) []int64 {
	units := make([]int64, places)
	for _, b := range sec.Buckets {
		age := min(1, max(0, float64(sec.now.Sub(b.Last))/float64(sec.per)))
		units[places-1-int(math.Round(age*float64(places-1)))] += b.Units
	}
	return units
}

// times are what stands below the ruler: how long ago.
func (sec *section) times(quarter int) string {
	line := []byte(strings.Repeat(" ", 4*quarter+3))
	for i := range 3 {
		text := span(sec.per / 4 * time.Duration(3-i))
		copy(line[2+(i+1)*quarter-len(text)/2:], text)
	}
	copy(line[2:], span(sec.per)+" ago ")
	copy(line[4*quarter:], "now")
	return string(line) + "\n"
}

// gauge draws a level up to Max, which it can exceed by about half a unit.
func (sec *section) gauge(width int) string {
	width -= 4
	if sec.Level.Level == 0 {
		return ""
	}
	full := int(math.Round(min(1, sec.Level.Level/float64(sec.Max)) * float64(width)))
	return "  [" + strings.Repeat("█", full) + strings.Repeat(" ", width-full) + "]\n"
}
