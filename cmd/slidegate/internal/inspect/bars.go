package inspect

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

// eighths are bars in eighths of a line.
var eighths = []rune(" ▁▂▃▄▅▆▇█")

// bars draws what a window counts over time, one bar for what lies close together, the highest as
// high as the line. Below is a ruler, from where units come back up to now.
func (sec *section) bars(width int) (bars string, highest int64) {
	quarter := (width - 3) / 4
	units := sec.spread(4*quarter + 1)
	line := make([]rune, len(units))
	highest = slices.Max(units)
	for i, n := range units {
		line[i] = eighths[int(math.Ceil(8*float64(n)/float64(highest)))]
	}
	return "  " + strings.TrimRight(string(line), " ") + "\n  " + sec.ruler(quarter) + "\n", highest
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

// ruler says how long ago each place is. A number stands over its place.
func (sec *section) ruler(quarter int) string {
	line := []rune("├" + strings.Repeat("─", 4*quarter-1) + "┤")
	for i := range 3 {
		text := " " + span(sec.per/4*time.Duration(3-i)) + " "
		copy(line[(i+1)*quarter-len(text)/2:], []rune(text))
	}
	copy(line[1:], []rune(" "+span(sec.per)+" ago "))
	copy(line[4*quarter-len(" now "):], []rune(" now "))
	return string(line)
}

// gauge draws how full a limit is. A level can exceed Max by about half a unit, and a limit that was
// lowered by any number.
func (sec *section) gauge(screen output.Screen, width int) string {
	used := 0.0
	switch {
	case sec.Bound == nil:
		return ""
	case sec.Counts != nil:
		used = float64(sec.Used)
	case sec.Level != nil:
		used = sec.Level.Level
	}
	full := int(math.Ceil(min(1, used/float64(sec.Max)) * float64(width)))
	if full == width && sec.Remaining > 0 {
		full--
	}
	bar := strings.Repeat("█", full)
	switch {
	case sec.Remaining == 0:
		bar = screen.Bad(bar)
	case 5*sec.Remaining <= sec.Max:
		bar = screen.Warn(bar)
	default:
		bar = screen.Good(bar)
	}
	return bar + screen.Faint(strings.Repeat("░", width-full))
}
