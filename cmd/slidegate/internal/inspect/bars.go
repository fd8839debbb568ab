package inspect

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

// barRunes are bars of zero to eight eighths of a line's height.
var barRunes = []rune(" ▁▂▃▄▅▆▇█")

// bars draws how many units were counted in a window over time. Units close together share a bar,
// and the highest bar fills the line. The time axis below the bars runs from Per ago, where units
// come back, to now.
func (sec *section) bars(width int) (bars string, highest int64) {
	quarter := (width - 3) / 4
	units := sec.unitsByColumn(4*quarter + 1)
	line := make([]rune, len(units))
	highest = slices.Max(units)
	for i, n := range units {
		line[i] = barRunes[int(math.Ceil(8*float64(n)/float64(highest)))]
	}
	return "  " + strings.TrimRight(string(line), " ") + "\n  " + sec.axis(quarter) + "\n", highest
}

// unitsByColumn returns the number of units in each of the given number of columns, from Per ago to
// now.
func (sec *section) unitsByColumn(columns int) []int64 {
	units := make([]int64, columns)
	for _, b := range sec.Buckets {
		age := min(1, max(0, float64(sec.now.Sub(b.Last))/float64(sec.per)))
		units[columns-1-int(math.Round(age*float64(columns-1)))] += b.Units
	}
	return units
}

// axis returns a line that labels the columns with how long ago they were. Each label is placed
// below its column.
func (sec *section) axis(quarter int) string {
	line := []rune("├" + strings.Repeat("─", 4*quarter-1) + "┤")
	for i := range 3 {
		text := " " + formatDuration(sec.per/4*time.Duration(3-i)) + " "
		copy(line[(i+1)*quarter-len(text)/2:], []rune(text))
	}
	copy(line[1:], []rune(" "+formatDuration(sec.per)+" ago "))
	copy(line[4*quarter-len(" now "):], []rune(" now "))
	return string(line)
}

// gauge draws how full a limit is. An ar1 level can exceed Max by about half a unit. If the limit
// has been lowered, the units used can exceed it by any amount.
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
