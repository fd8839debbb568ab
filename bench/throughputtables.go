package main

import (
	"fmt"
	"slices"
	"strings"
)

// throughput is what the throughput part of a run says.
type throughput struct {
	Callers []int       `json:"callers"`
	Turns   int         `json:"turns"`
	Slice   string      `json:"slice"`
	Rows    []speedRow  `json:"rows"`
	Ratios  []speedPair `json:"ratios"`
}

// speedRow holds the medians of one contender with one number of callers.
type speedRow struct {
	Name    string             `json:"name"`
	Like    string             `json:"like"`
	Callers int                `json:"callers"`
	Medians map[string]float64 `json:"medians"` // by metric
}

// speedPair holds ratios of one contender to another with one number of callers.
type speedPair struct {
	pair

	Callers int                  `json:"callers"`
	Ratios  map[string]quartiles `json:"ratios"` // by metric
}

// pair is two contenders, whose ratio is wanted.
type pair struct {
	Name string `json:"name"`
	Of   string `json:"of"`
}

// quartiles is the median of the ratios in the same turns. Half of them lie from Low to High.
type quartiles struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// metrics are what is measured in a slice.
var metrics = []struct {
	name     string
	of       func(slice) float64
	decimals int
}{
	{"decisions/s", func(s slice) float64 { return s.rate }, 0},
	{"median call, µs", func(s slice) float64 { return s.p50 }, 0},
	{"99 % call, µs", func(s slice) float64 { return s.p99 }, 0},
	{"client CPU, µs", func(s slice) float64 { return s.client }, 2},
	{"server CPU, µs", func(s slice) float64 { return s.server }, 2},
	{"allocations", func(s slice) float64 { return s.allocs }, 1},
	{"script calls", func(s slice) float64 { return s.scripts }, 3},
}

// ratioed is how many of the metrics have a table of ratios.
const ratioed = 5

// summarize turns the slices, by contender and callers, into medians and ratios.
func (b bench) summarize(all []contender, seen map[string]map[int][]slice) *throughput {
	t := &throughput{Callers: b.callers, Turns: b.turns, Slice: b.slice.String()}
	for _, c := range all {
		for _, callers := range b.callers {
			row := speedRow{c.name, c.like, callers, map[string]float64{}}
			for _, m := range metrics {
				row.Medians[m.name] = quantile(each(seen[c.name][callers], m.of), 50)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	for _, p := range pairs() {
		if seen[p.Name] == nil || seen[p.Of] == nil {
			continue
		}
		for _, callers := range b.callers {
			sp := speedPair{p, callers, map[string]quartiles{}}
			for _, m := range metrics {
				of := ratios(seen[p.Name][callers], seen[p.Of][callers], m.of)
				sp.Ratios[m.name] = quartiles{quantile(of, 50), quantile(of, 25), quantile(of, 75)}
			}
			t.Ratios = append(t.Ratios, sp)
		}
	}
	return t
}

// tables returns a table of ratios and one of medians for each metric, in Markdown. A column is a
// number of callers.
func (t *throughput) tables() string {
	text := fmt.Sprintf("\n%d turns of slices of %s. Ratios are medians of those in the same turns; half of them lie in the brackets.\n", t.Turns, t.Slice)
	for i, m := range metrics {
		if i < ratioed && len(t.Ratios) > 0 {
			text += "\n" + t.head("ratio of "+m.name) + lines(t.Ratios, t.Callers, func(p speedPair) (string, string) {
				of := p.Ratios[m.name]
				return p.Name + " / " + p.Of, fmt.Sprintf("%.2f (%.2f–%.2f)", of.Median, of.Low, of.High)
			})
		}
	}
	for _, m := range metrics {
		text += "\n" + t.head(m.name) + lines(t.Rows, t.Callers, func(r speedRow) (string, string) {
			return r.Name, fmt.Sprintf("%.*f", m.decimals, r.Medians[m.name])
		})
	}
	return text
}

// head returns the head of a table.
func (t *throughput) head(what string) string {
	text := "| " + what + " |"
	for _, callers := range t.Callers {
		text += fmt.Sprintf(" callers: %d |", callers)
	}
	return text + "\n|---|" + strings.Repeat("---:|", len(t.Callers)) + "\n"
}

// lines returns the lines of a table. Each has as many of the cells as there are numbers of callers.
func lines[T any](all []T, callers []int, cell func(T) (name, text string)) (text string) {
	for line := range slices.Chunk(all, len(callers)) {
		for i, c := range line {
			name, figure := cell(c)
			if i == 0 {
				text += "| " + name + " |"
			}
			text += " " + figure + " |"
		}
		text += "\n"
	}
	return text
}
