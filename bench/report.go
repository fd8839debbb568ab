package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// result is what one run says.
type result struct {
	Server  string  `json:"server"`
	Rounds  int     `json:"rounds"`
	Events  int     `json:"events"`
	Callers int     `json:"callers"`
	Rows    []row   `json:"rows"`
	Memory  *memory `json:"memory,omitempty"`
}

// row is one contender. A ratio is the median of those of the slices; half of them lie between Low and High. Quiet is the ratio of what
// the fastest tenth of the slices took: whatever else the machine does only ever adds.
type row struct {
	Name     string  `json:"name"`
	Like     string  `json:"like"`
	Ratio    float64 `json:"ratio"` // to redis_rate's admission
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
	Quiet    float64 `json:"quiet"`
	Beside   string  `json:"beside,omitempty"`
	OfBeside float64 `json:"of_beside,omitempty"` // ratio to that row, of the fastest tenths
	Micros   float64 `json:"us"`                  // median
}

// result compares what the contenders spent, in µs by slice, each with redis_rate in the same turn.
func (b bench) result(ctx context.Context, all []contender, spent [][]float64, m *memory) result {
	res := result{Server: b.version(ctx), Rounds: b.rounds, Events: b.events, Callers: b.callers, Memory: m}
	by := map[string][]float64{}
	for i, c := range all {
		by[c.name] = spent[i]
	}
	for i, c := range all {
		of := ratios(spent[i], by[rate])
		r := row{
			Name: c.name, Like: c.like, Ratio: quantile(of, 50), Low: quantile(of, 25), High: quantile(of, 75),
			Quiet: quantile(spent[i], 10) / quantile(by[rate], 10), Micros: quantile(spent[i], 50),
		}
		if c.beside != "" {
			r.Beside, r.OfBeside = c.beside, quantile(spent[i], 10)/quantile(by[c.beside], 10)
		}
		res.Rows = append(res.Rows, r)
	}
	return res
}

func ratios(of, to []float64) []float64 {
	r := make([]float64, len(of))
	for i := range r {
		r[i] = of[i] / to[i]
	}
	return r
}

// quantile is the value below which so many per cent lie.
func quantile(of []float64, percent int) float64 {
	return slices.Sorted(slices.Values(of))[(len(of)-1)*percent/100]
}

// version is what the server calls itself.
func (b bench) version(ctx context.Context) string {
	info, _ := b.client.Do(ctx, b.client.B().Info().Section("server").Build()).ToString()
	for _, name := range []string{"valkey", "redis"} {
		if _, rest, found := strings.Cut(info, name+"_version:"); found {
			version, _, _ := strings.Cut(rest, "\r")
			return name + " " + version
		}
	}
	return "unknown"
}

// print writes the table, or one JSON object.
func (r result) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	text := r.table()
	if r.Memory != nil {
		text += r.Memory.sentence()
	}
	_, err := io.WriteString(w, text)
	return err
}

func (r result) table() string {
	var text strings.Builder
	fmt.Fprintf(&text, "Time of the server in one decision, by INFO commandstats: %s, %d rounds of %d events,\n", r.Server, r.Rounds, r.Events)
	fmt.Fprintf(&text, "%d pipelined callers. The ratio is the result: the median over slices of %d decisions that take turns;\nundisturbed, that of the fastest tenth of the slices.\n\n", r.Callers, slice)
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\t× redis_rate\thalf lie in\tundisturbed\t× another row, undisturbed\tµs here\twhat it is")
	for _, row := range r.Rows {
		_, _ = fmt.Fprintln(t, row)
	}
	_ = t.Flush() // into memory
	return text.String()
}

func (r row) String() string {
	another := ""
	if r.Beside != "" {
		another = fmt.Sprintf("%.2f × %s", r.OfBeside, r.Beside)
	}
	return fmt.Sprintf("%s\t%.2f\t%.2f to %.2f\t%.2f\t%s\t%.1f\t%s", r.Name, r.Ratio, r.Low, r.High, r.Quiet, another, r.Micros, r.Like)
}

func (m memory) sentence() string {
	return fmt.Sprintf(`
Memory: %.1f bytes per event, all told: growth of used_memory over %d events, each counted
%d times %v apart under %s. The values have %d, %d, %d bytes (least, median, most).
`, m.BytesPerEvent, m.Events, times, between, strings.Join(memoryLimits, ", "), m.Shortest, m.Median, m.Longest)
}
