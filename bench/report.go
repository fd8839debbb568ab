package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// result is the result of a run.
type result struct {
	conditions

	Throughput *throughput `json:"throughput,omitempty"`
	Hot        *throughput `json:"hot,omitempty"`

	Rounds int     `json:"rounds,omitempty"`
	Events int     `json:"events,omitempty"`
	Rows   []row   `json:"rows,omitempty"`
	Memory *memory `json:"memory,omitempty"`

	Accuracy []accuracy `json:"accuracy,omitempty"`
	Pace     *fleet     `json:"pace,omitempty"`
	InFlight *leases    `json:"inflight,omitempty"`
}

// conditions describes the conditions of a run.
type conditions struct {
	Command string `json:"command"`
	Server  string `json:"server"`
	Go      string `json:"go"`
	System  string `json:"system"`
	Cores   int    `json:"cores"`
	Load    string `json:"load"` // load averages over 1, 5 and 15 minutes before the run
	Busy    int    `json:"busy"` // the number of other processes that use as much CPU as they can get
	Network string `json:"network"`
}

func (c conditions) String() string {
	return fmt.Sprintf("    %s\n\n%s, %s, %s with %d cores; load averages before: %s; busy loops: %d; %s.\n",
		c.Command, c.Server, c.Go, c.System, c.Cores, c.Load, c.Busy, c.Network)
}

// row holds the figures of a contender in the server part. Ratio is the median of the ratios within
// the same passes. Half of those ratios lie between Low and High. Quiet is the ratio of the fastest
// tenths of the slices, because other work on the machine can only add time.
type row struct {
	Name     string         `json:"name"`
	Like     string         `json:"like"`
	Executes map[string]int `json:"executes"` // commands that the server executed per decision, including those called by scripts
	Grows    string         `json:"grows,omitempty"`
	Size     int            `json:"size,omitempty"`
	Ratio    float64        `json:"ratio"` // of the time in the server, relative to redis_rate
	Low      float64        `json:"low"`
	High     float64        `json:"high"`
	Quiet    float64        `json:"quiet"`
	Beside   string         `json:"beside,omitempty"`
	OfBeside float64        `json:"of_beside,omitempty"` // the same as Quiet, but relative to that row
	Micros   float64        `json:"us"`                  // in the server; a median, like all fields that follow
	Process  float64        `json:"process_us"`          // CPU of the server processes
	Allocs   float64        `json:"allocs"`              // of this process
	Bytes    float64        `json:"bytes"`
	Event    float64        `json:"bytes_per_event,omitempty"` // in the servers, in the state before a decision

	Replicated float64 `json:"bytes_replicated"` // to each replica
}

// compareAll returns the rows of the contenders. Each is compared with redis_rate within the same
// passes.
func compareAll(all []contender, seen [][]sample) (rows []row) {
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
		rows = append(rows, row)
	}
	return rows
}

// compare returns a row that is compared with redis_rate and, if beside is given, with another row.
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

// ratios returns the ratios within the same passes.
func ratios[T any](seen, others []T, of func(T) float64) []float64 {
	r := make([]float64, len(seen))
	for i := range r {
		r[i] = of(seen[i]) / of(others[i])
	}
	return r
}

// quantile returns the value below which the given percentage of the values lies, interpolated
// between neighbouring values.
func quantile(of []float64, percent int) float64 {
	sorted, hundredths := slices.Sorted(slices.Values(of)), (len(of)-1)*percent
	i, part := hundredths/100, float64(hundredths%100)/100
	if part == 0 {
		return sorted[i]
	}
	return sorted[i]*(1-part) + sorted[i+1]*part
}

// write prints the result as tables or as a JSON object, and draws the pictures.
func (o output) write(r result) error {
	if o.plots != "" {
		if err := r.figures().save(o.plots); err != nil {
			return err
		}
	}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	_, err := os.Stdout.WriteString(r.tables())
	return err
}

// tables returns the result as Markdown.
func (r result) tables() string {
	var text strings.Builder
	text.WriteString(r.String())
	for _, t := range []*throughput{r.Throughput, r.Hot} {
		if t != nil {
			t.writeTables(&text)
		}
	}
	if len(r.Rows) > 0 {
		text.WriteString(r.serverTable())
	}
	if r.Memory != nil {
		text.WriteString(r.Memory.sentence())
	}
	if len(r.Accuracy) > 0 {
		text.WriteString(accuracyTable(r.Accuracy))
	}
	if r.Pace != nil {
		text.WriteString(r.Pace.table())
	}
	if r.InFlight != nil {
		text.WriteString(r.InFlight.tables())
	}
	return text.String()
}

func (r result) serverTable() string {
	var text strings.Builder
	fmt.Fprintf(&text, "\n%d rounds of %d events. Ratios compare the time in the server (INFO commandstats): their median over alternating slices,\n", r.Rounds, r.Events)
	text.WriteString("the range in which half of them lie and, as undisturbed, the ratio of the fastest tenths.\n\n")
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
Memory: %.1f bytes per event in all: growth of used_memory over %d events, each counted
%d times %v apart under %s. The values have %d, %d, %d bytes (least, median, most).
`, m.BytesPerEvent, m.Events, times, between, strings.Join(memoryLimits, ", "), m.Shortest, m.Median, m.Longest)
}
