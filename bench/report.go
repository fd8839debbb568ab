package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// result is what one run says.
type result struct {
	Server  string  `json:"server"`
	Rounds  int     `json:"rounds"`
	Events  int     `json:"events"`
	Callers int     `json:"callers"`
	Rows    []row   `json:"rows"`
	Memory  *memory `json:"memory,omitempty"`

	Accuracy []accuracy `json:"accuracy"`
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
	Micros   float64 `json:"us"`                  // median, as all that follow
	Process  float64 `json:"process_us"`          // CPU of the server's process
	Rate     float64 `json:"per_second"`          // decisions of all callers
	P50      float64 `json:"p50_us"`              // of calls
	P99      float64 `json:"p99_us"`
	Allocs   float64 `json:"allocs"` // of the client, in a call
	Bytes    float64 `json:"bytes"`
	Event    float64 `json:"bytes_per_event,omitempty"` // in the server, in the state before

	Replicated float64 `json:"bytes_replicated"` // to each replica
}

// result compares what the contenders spent, slice by slice, each with redis_rate in the same turn.
func (b bench) result(ctx context.Context, all []contender, seen [][]sample) result {
	res := result{Server: b.version(ctx), Rounds: b.rounds, Events: b.events, Callers: b.callers}
	by := map[string][]float64{}
	for i, c := range all {
		by[c.name] = each(seen[i], func(s sample) float64 { return s.server })
	}
	for i, c := range all {
		spent := by[c.name]
		of, took := ratios(spent, by[rate]), tooks(seen[i])
		r := row{
			Name: c.name, Like: c.like, Ratio: quantile(of, 50), Low: quantile(of, 25), High: quantile(of, 75),
			Quiet: quantile(spent, 10) / quantile(by[rate], 10), Micros: quantile(spent, 50),
			Process: quantile(each(seen[i], func(s sample) float64 { return s.process }), 50),
			Rate:    quantile(each(seen[i], func(s sample) float64 { return s.rate }), 50),
			Allocs:  quantile(each(seen[i], func(s sample) float64 { return s.allocs }), 50),
			Bytes:   quantile(each(seen[i], func(s sample) float64 { return s.bytes }), 50),
			P50:     quantile(took, 50), P99: quantile(took, 99),
		}
		if c.beside != "" {
			r.Beside, r.OfBeside = c.beside, quantile(spent, 10)/quantile(by[c.beside], 10)
		}
		res.Rows = append(res.Rows, r)
	}
	return res
}

func each(samples []sample, of func(sample) float64) []float64 {
	all := make([]float64, len(samples))
	for i, s := range samples {
		all[i] = of(s)
	}
	return all
}

// tooks are the times of all calls, in µs.
func tooks(samples []sample) (all []float64) {
	for _, s := range samples {
		for _, took := range s.took {
			all = append(all, float64(took.Nanoseconds())/1000)
		}
	}
	return all
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
	_, err := io.WriteString(w, text+accuracyTable(r.Accuracy))
	return err
}

// table is in Markdown.
func (r result) table() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %d rounds of %d events, %d callers. Ratios are of the time in the server, by INFO commandstats: the median over\n", r.Server, r.Rounds, r.Events, r.Callers)
	fmt.Fprintf(&text, "slices of %d decisions that take turns, with the half of them that lies around it; undisturbed, that of the fastest tenth.\n\n", slice)
	text.WriteString("| | × redis_rate | half lie in | undisturbed | × another row, undisturbed | server µs | process µs | decisions/s | p50 µs | p99 µs | allocs | B | bytes/event | bytes replicated | what it is |\n")
	text.WriteString("|---|" + strings.Repeat("---:|", 13) + "---|\n")
	for _, row := range r.Rows {
		text.WriteString(row.String() + "\n")
	}
	return text.String()
}

func (r row) String() string {
	another, bytes := "", ""
	if r.Beside != "" {
		another = fmt.Sprintf("%.2f × %s", r.OfBeside, r.Beside)
	}
	if r.Event > 0 {
		bytes = fmt.Sprintf("%.0f", r.Event)
	}
	return fmt.Sprintf("| %s | %.2f | %.2f to %.2f | %.2f | %s | %.1f | %.1f | %.0f | %.0f | %.0f | %.1f | %.0f | %s | %.0f | %s |", r.Name, r.Ratio, r.Low, r.High, r.Quiet, another,
		r.Micros, r.Process, r.Rate, r.P50, r.P99, r.Allocs, r.Bytes, bytes, r.Replicated, r.Like)
}

func (m memory) sentence() string {
	return fmt.Sprintf(`
Memory: %.1f bytes per event, all told: growth of used_memory over %d events, each counted
%d times %v apart under %s. The values have %d, %d, %d bytes (least, median, most).
`, m.BytesPerEvent, m.Events, times, between, strings.Join(memoryLimits, ", "), m.Shortest, m.Median, m.Longest)
}
