package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// result is what one run says.
type result struct {
	Server string  `json:"server"`
	Rounds int     `json:"rounds"`
	Events int     `json:"events"`
	Rows   []row   `json:"rows"`
	Memory *memory `json:"memory,omitempty"`

	Accuracy []accuracy `json:"accuracy"`
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
	Calls    []calls        `json:"calls"`

	Replicated float64 `json:"bytes_replicated"` // to each replica
}

// calls is what so many callers at a time get.
type calls struct {
	Callers int     `json:"callers"`
	Rate    float64 `json:"per_second"` // decisions of all of them
	OfFloor float64 `json:"of_floor"`   // over that of the bare EVALSHA
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
}

// result compares what the contenders spent, slice by slice, each with redis_rate in the same turn.
func (b bench) result(ctx context.Context, all []contender, seen [][]sample) result {
	res := result{Server: b.describe(ctx), Rounds: b.rounds, Events: b.events}
	of := map[string][]sample{}
	for i, c := range all {
		of[c.name] = seen[i]
	}
	for _, c := range all {
		r := compare(of[c.name], of[rate], of[c.beside])
		r.Name, r.Like, r.Grows, r.Size = c.name, c.like, c.grows, c.size
		r.Executes = of[c.name][0].executes
		if r.OfBeside > 0 {
			r.Beside = c.beside
		}
		for _, callers := range b.callers {
			r.Calls = append(r.Calls, callsOf(of[c.name], of[floor], callers))
		}
		res.Rows = append(res.Rows, r)
	}
	return res
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

// callsOf is what so many callers got, beside what they got of the floor in the same turns.
func callsOf(seen, floor []sample, callers int) calls {
	others := func(s sample) bool { return s.callers != callers }
	seen, floor = slices.DeleteFunc(slices.Clone(seen), others), slices.DeleteFunc(slices.Clone(floor), others)
	if len(seen) == 0 {
		return calls{Callers: callers}
	}
	took, rate := tooks(seen), func(s sample) float64 { return s.rate }
	return calls{callers, quantile(each(seen, rate), 50), quantile(ratios(seen, floor, rate), 50), quantile(took, 50), quantile(took, 99)}
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

// ratios are those of the same turns.
func ratios(seen, others []sample, of func(sample) float64) []float64 {
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
	text := r.serverTable() + r.callsTable()
	if r.Memory != nil {
		text += r.Memory.sentence()
	}
	return text + accuracyTable(r.Accuracy)
}

func (r result) serverTable() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %d rounds of %d events. Ratios are of the time in the server, by INFO commandstats: the median over slices\n", r.Server, r.Rounds, r.Events)
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

func (r result) callsTable() string {
	var text strings.Builder
	fmt.Fprintf(&text, "\nDecisions a second of so many callers at a time, also over those of %q in the same turn, and how long each takes.\n\n|", floor)
	for _, c := range r.Rows[0].Calls {
		fmt.Fprintf(&text, " | callers: %d | × floor | p50 µs | p99 µs", c.Callers)
	}
	text.WriteString(" |\n|---|" + strings.Repeat("---:|", 4*len(r.Rows[0].Calls)) + "\n")
	for _, row := range r.Rows {
		text.WriteString("| " + row.Name)
		for _, c := range row.Calls {
			fmt.Fprintf(&text, " | %.0f | %.2f | %.0f | %.0f", c.Rate, c.OfFloor, c.P50, c.P99)
		}
		text.WriteString(" |\n")
	}
	return text.String()
}

func (m memory) sentence() string {
	return fmt.Sprintf(`
Memory: %.1f bytes per event, all told: growth of used_memory over %d events, each counted
%d times %v apart under %s. The values have %d, %d, %d bytes (least, median, most).
`, m.BytesPerEvent, m.Events, times, between, strings.Join(memoryLimits, ", "), m.Shortest, m.Median, m.Longest)
}
