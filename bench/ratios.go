package main

import (
	"fmt"
	"slices"
	"strings"
)

// throughput is the result of the part throughput or the part hot.
type throughput struct {
	Callers []int       `json:"callers"`
	Passes  int         `json:"passes"`
	Slice   string      `json:"slice"`
	Rows    []speedRow  `json:"rows"`
	Ratios  []speedPair `json:"ratios"`
}

// speedRow holds the medians of a contender for one number of callers.
type speedRow struct {
	Name    string             `json:"name"`
	Like    string             `json:"like"`
	Callers int                `json:"callers"`
	Medians map[string]float64 `json:"medians"` // by metric
}

// pair names two contenders to compare.
type pair struct {
	Name string `json:"name"`
	Of   string `json:"of"`
}

// speedPair holds the ratios of a pair for one number of callers.
type speedPair struct {
	pair

	Callers int                  `json:"callers"`
	Ratios  map[string]quartiles `json:"ratios"` // by metric
}

// quartiles holds the median of the ratios within the same passes, and the two values between which
// half of the ratios lie.
type quartiles struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// metric is a figure that each slice measures.
type metric struct {
	name     string
	of       func(slice) float64
	decimals int
}

const decisions = "decisions/s"

// compared lists the metrics by which pairs are compared.
var compared = []metric{
	{decisions, func(s slice) float64 { return s.rate }, 0},
	{"median call, µs", func(s slice) float64 { return s.p50 }, 0},
	{"99 % call, µs", func(s slice) float64 { return s.p99 }, 0},
	{"client CPU, µs", func(s slice) float64 { return s.client }, 2},
	{"server CPU, µs", func(s slice) float64 { return s.server }, 2},
}

// metrics lists all metrics.
var metrics = append(compared[:len(compared):len(compared)],
	metric{"allocations", func(s slice) float64 { return s.allocs }, 2},
	metric{"script calls", func(s slice) float64 { return s.scripts }, 3})

// slicesOf holds the slices of each contender by number of callers.
type slicesOf map[string]map[int][]slice

// summarize computes the medians and ratios of slices.
func (b bench) summarize(all []contender, seen slicesOf) *throughput {
	t := &throughput{Callers: b.callers, Passes: b.passes, Slice: b.slice.String()}
	for _, c := range all {
		for _, callers := range b.callers {
			t.Rows = append(t.Rows, speedRow{c.name, c.like, callers, seen.medians(c.name, callers)})
		}
	}
	for _, p := range pairs() {
		if seen[p.Name] == nil || seen[p.Of] == nil {
			continue
		}
		for _, callers := range b.callers {
			t.Ratios = append(t.Ratios, speedPair{p, callers, seen.ratios(p, callers)})
		}
	}
	return t
}

// medians returns the median of each metric.
func (s slicesOf) medians(name string, callers int) map[string]float64 {
	all := map[string]float64{}
	for _, m := range metrics {
		all[m.name] = quantile(each(s[name][callers], m.of), 50)
	}
	return all
}

// ratios returns the quartiles of a pair's ratios for each metric by which pairs are compared.
func (s slicesOf) ratios(p pair, callers int) map[string]quartiles {
	all := map[string]quartiles{}
	for _, m := range compared {
		of := ratios(s[p.Name][callers], s[p.Of][callers], m.of)
		all[m.name] = quartiles{quantile(of, 50), quantile(of, 25), quantile(of, 75)}
	}
	return all
}

// writeTables writes Markdown tables: one of ratios, and one of medians for each metric. Each
// column is for one number of callers.
func (t *throughput) writeTables(w *strings.Builder) {
	fmt.Fprintf(w, "\n%d passes of slices of %s. Each ratio is the median of the ratios within the same passes. Half of those are in the range in brackets.\n", t.Passes, t.Slice)
	for _, m := range compared {
		if len(t.Ratios) > 0 {
			writeTable(w, "ratio of "+m.name, t.Callers, t.Ratios, func(p speedPair) (string, string) {
				of := p.Ratios[m.name]
				return p.Name + " / " + p.Of, fmt.Sprintf("%.2f (%.2f–%.2f)", of.Median, of.Low, of.High)
			})
		}
	}
	for _, m := range metrics {
		writeTable(w, m.name, t.Callers, t.Rows, func(r speedRow) (string, string) {
			return r.Name, fmt.Sprintf("%.*f", m.decimals, r.Medians[m.name])
		})
	}
	w.WriteString("\n")
	for line := range slices.Chunk(t.Rows, len(t.Callers)) {
		fmt.Fprintf(w, "- %s: %s\n", line[0].Name, line[0].Like)
	}
}

// writeTable writes a table with a line for each element of all. Each line has a cell for each
// number of callers.
func writeTable[T any](w *strings.Builder, title string, callers []int, all []T, cell func(T) (name, figure string)) {
	fmt.Fprintf(w, "\n| %s |", title)
	for _, n := range callers {
		fmt.Fprintf(w, " callers: %d |", n)
	}
	w.WriteString("\n|---|" + strings.Repeat("---:|", len(callers)) + "\n")
	for line := range slices.Chunk(all, len(callers)) {
		name, _ := cell(line[0])
		w.WriteString("| " + name + " |")
		for _, of := range line {
			_, figure := cell(of)
			w.WriteString(" " + figure + " |")
		}
		w.WriteString("\n")
	}
}
