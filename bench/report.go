package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

// result is what one run says.
type result struct {
	conditions

	Throughput *throughput `json:"throughput,omitempty"`
	Hot        *throughput `json:"hot,omitempty"`

	Rounds int     `json:"rounds"`
	Events int     `json:"events"`
	Rows   []row   `json:"rows,omitempty"`
	Memory *memory `json:"memory,omitempty"`

	Accuracy []accuracy `json:"accuracy,omitempty"`
}

// conditions are those of a run.
type conditions struct {
	Command string `json:"command"`
	Server  string `json:"server"`
	Cores   int    `json:"cores"`
	Go      string `json:"go"`
	Load    string `json:"load"` // averages of 1, 5 and 15 minutes before the run
	Busy    int    `json:"busy"` // processes that use all the CPU they get
	Network string `json:"network"`
}

func (c conditions) String() string {
	return fmt.Sprintf("    %s\n\n%s, %s, %d cores, %s; load averages before: %s; %d busy loops beside it; %s.\n", c.Command, c.Server, c.Go, c.Cores, runtime.GOARCH, c.Load, c.Busy, c.Network)
}

// row is one contender. A ratio is the median of those of the slices; half of them lie between Low and High. Quiet is the ratio of what
// the fastest tenth of the slices took: whatever else the machine does only ever adds.
type row struct {
	Name     string         `json:"name"`
	Like     string         `json:"like"`
	Executes map[string]int `json:"executes"` // commands of the server for a decision, those of its scripts too
	Grows    string         `json:"grows,omitempty"`
	Size     int            `json:"size,omitempty"`
	Ratio    float64        `json:"ratio"` // to redis_rate's admission
	Low      float64        `json:"low"`
	High     float64        `json:"high"`
	Quiet    float64        `json:"quiet"`
	Beside   string         `json:"beside,omitempty"`
	OfBeside float64        `json:"of_beside,omitempty"` // ratio to that row, of the fastest tenths
	Micros   float64        `json:"us"`                  // median, as all that follow
	Process  float64        `json:"process_us"`          // CPU of the servers' processes
	Allocs   float64        `json:"allocs"`              // of the client, in a call
	Bytes    float64        `json:"bytes"`
	Event    float64        `json:"bytes_per_event,omitempty"` // in the servers, in the state before

	Replicated float64 `json:"bytes_replicated"` // to each replica
}

// compareAll compares what the contenders spent, slice by slice, each with redis_rate in the same turn.
func (r *result) compareAll(all []contender, seen [][]sample) {
	of := map[string][]sample{}
	for i, c := range all {
		of[c.name] = seen[i]
	}
	for _, c := range all {
		row := compare(of[c.name], of[rate], of[c.beside])
		row.Name, row.Like, row.Grows, row.Size = c.name, c.like, c.grows, c.size
		row.Executes = of[c.name][0].executes
		if row.OfBeside > 0 {
			row.Beside = c.beside
		}
		r.Rows = append(r.Rows, row)
	}
}

// compare is a row, beside that of redis_rate and one of its own, which may be empty.
func compare(seen, rated, beside []sample) row {
	server := func(s sample) float64 { return s.server }
	spent, of := each(seen, server), ratios(seen, rated, server)
	r := row{
		Ratio: quantile(of, 50), Low: quantile(of, 25), High: quantile(of, 75),
		Quiet: quantile(spent, 10) / quantile(each(rated, server), 10), Micros: quantile(spent, 50),
		Process: quantile(each(seen, func(s sample) float64 { return s.process }), 50),
		Allocs:  quantile(each(seen, func(s sample) float64 { return s.allocs }), 50),
		Bytes:   quantile(each(seen, func(s sample) float64 { return s.bytes }), 50),
	}
	if len(beside) > 0 {
		r.OfBeside = quantile(spent, 10) / quantile(each(beside, server), 10)
	}
	return r
}

func each[T any](samples []T, of func(T) float64) []float64 {
	all := make([]float64, len(samples))
	for i, s := range samples {
		all[i] = of(s)
	}
	return all
}

// ratios are those of the same turns.
func ratios[T any](seen, others []T, of func(T) float64) []float64 {
	r := make([]float64, len(seen))
	for i := range r {
		r[i] = of(seen[i]) / of(others[i])
	}
	return r
}

// quantile is the value below which so many per cent lie; between two of them, in proportion.
func quantile(of []float64, percent int) float64 {
	sorted, hundredths := slices.Sorted(slices.Values(of)), (len(of)-1)*percent
	i, part := hundredths/100, float64(hundredths%100)/100
	if part == 0 {
		return sorted[i]
	}
	return sorted[i]*(1-part) + sorted[i+1]*part
}

// write prints the tables, or one JSON object, and draws the pictures.
func (o output) write(r result) error {
	if o.plots != "" {
		if err := r.draw(o.plots); err != nil {
			return err
		}
	}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	_, err := os.Stdout.WriteString(r.tables())
	return err
}

// tables are in Markdown.
func (r result) tables() string {
	text := r.conditions.String()
	for _, t := range []*throughput{r.Throughput, r.Hot} {
		if t != nil {
			text += t.tables()
		}
	}
	if len(r.Rows) > 0 {
		text += r.serverTable()
	}
	if r.Memory != nil {
		text += r.Memory.sentence()
	}
	if len(r.Accuracy) > 0 {
		text += accuracyTable(r.Accuracy)
	}
	return text
}

func (r result) serverTable() string {
	var text strings.Builder
	fmt.Fprintf(&text, "\n%d rounds of %d events. Ratios are of the time in the server, by INFO commandstats: the median over slices\n", r.Rounds, r.Events)
	text.WriteString("of decisions that take turns, with the half of them that lies around it; undisturbed, that of the fastest tenth.\n\n")
	text.WriteString("| | × redis_rate | half lie in | undisturbed | × another row, undisturbed | server µs | process µs | allocs | B | bytes/event | bytes replicated | what it is |\n")
	text.WriteString("|---|" + strings.Repeat("---:|", 10) + "---|\n")
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
	return fmt.Sprintf("| %s | %.2f | %.2f to %.2f | %.2f | %s | %.1f | %.1f | %.1f | %.0f | %s | %.0f | %s |", r.Name, r.Ratio, r.Low, r.High, r.Quiet, another,
		r.Micros, r.Process, r.Allocs, r.Bytes, bytes, r.Replicated, r.Like)
}

func (m memory) sentence() string {
	return fmt.Sprintf(`
Memory: %.1f bytes per event, all told: growth of used_memory over %d events, each counted
%d times %v apart under %s. The values have %d, %d, %d bytes (least, median, most).
`, m.BytesPerEvent, m.Events, times, between, strings.Join(memoryLimits, ", "), m.Shortest, m.Median, m.Longest)
}
