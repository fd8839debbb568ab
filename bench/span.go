package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// span holds the figures of a contender in a span.
type span struct {
	calls       float64
	least, most float64 // the fewest calls in any 100 ms, and the most in any second
	low, high   float64 // the smallest and the largest share of a process, in percent
	scripts     float64 // script calls per call
	client      float64 // µs of CPU of all processes, per call
}

func newSpan(all []*process, begin, end time.Time, scripts int) (s span, err error) {
	var at []int64
	var used int64
	var shares []float64
	for _, p := range all {
		calls, cpu := p.between(begin, end)
		used += cpu
		shares = append(shares, float64(len(calls)))
		for _, c := range calls {
			at = append(at, c.at)
		}
	}
	if len(at) == 0 {
		return s, errors.New("nobody could call")
	}
	slices.Sort(at)
	n := float64(len(at))
	return span{
		calls: n, least: leastIn(at, begin, end, 100*time.Millisecond), most: mostIn(at, time.Second),
		low: 100 * slices.Min(shares) / n, high: 100 * slices.Max(shares) / n,
		scripts: float64(scripts) / n, client: float64(used) / 1000 / n,
	}, nil
}

// leastIn returns the minimum number of calls in any interval of the given length between begin and
// end.
func leastIn(at []int64, begin, end time.Time, length time.Duration) float64 {
	starts := append([]int64{begin.UnixNano()}, at...)
	least := len(at)
	for i, start := range starts {
		if start+length.Nanoseconds() >= end.UnixNano() {
			break
		}
		until, _ := slices.BinarySearch(at, start+length.Nanoseconds()+1)
		least = min(least, until-i) // without the call at the start, which is the i-th
	}
	return float64(least)
}

// mostIn returns the maximum number of calls in any interval of the given length.
func mostIn(at []int64, length time.Duration) (most float64) {
	for i, start := range at {
		until, _ := slices.BinarySearch(at, start+length.Nanoseconds())
		most = max(most, float64(until-i))
	}
	return most
}

// fleet is the result of the pace part, or of inflight's fleets.
type fleet struct {
	Processes int        `json:"processes"`
	Callers   int        `json:"callers"` // per process
	Span      string     `json:"span"`
	Rounds    int        `json:"rounds"`
	Rows      []fleetRow `json:"rows"`
}

// fleetRow holds the figures of a contender. They are medians over the rounds, except Least and
// Most.
type fleetRow struct {
	Name    string  `json:"name"`
	Like    string  `json:"like"`
	Alone   bool    `json:"one_process,omitempty"` // a single process has all callers
	Calls   float64 `json:"calls"`
	Least   float64 `json:"least"` // the fewest calls in any 100 ms of any round
	Most    float64 `json:"most"`  // the most calls in any second of any round
	Low     float64 `json:"low"`   // the smallest share of a process, in percent
	High    float64 `json:"high"`
	Scripts float64 `json:"script_calls"` // per call
	Client  float64 `json:"client_us"`    // CPU per call
}

// summarizeSpans computes the medians of spans.
func (b bench) summarizeSpans(all []contender, seen [][]span) *fleet {
	f := &fleet{Processes: fleetProcesses, Callers: fleetCallers, Span: b.span.String(), Rounds: b.rounds}
	for i, c := range all {
		f.Rows = append(f.Rows, newFleetRow(c, seen[i]))
	}
	return f
}

func newFleetRow(c contender, seen []span) fleetRow {
	of := func(percent int, figure func(span) float64) float64 { return quantile(each(seen, figure), percent) }
	return fleetRow{
		Name: c.name, Like: c.like, Alone: c.alone,
		Calls:   of(50, func(s span) float64 { return s.calls }),
		Least:   of(0, func(s span) float64 { return s.least }),
		Most:    of(100, func(s span) float64 { return s.most }),
		Low:     of(50, func(s span) float64 { return s.low }),
		High:    of(50, func(s span) float64 { return s.high }),
		Scripts: of(50, func(s span) float64 { return s.scripts }),
		Client:  of(50, func(s span) float64 { return s.client }),
	}
}

// table returns the result as a Markdown table.
func (f *fleet) table() string {
	var text strings.Builder
	fmt.Fprintf(&text, "\n%d rounds of %s. %d processes of %d callers wait for one event. The figures are medians over the rounds, except the least and the most.\n\n",
		f.Rounds, f.Span, f.Processes, f.Callers)
	text.WriteString("| | calls | least in any 100 ms | most in any second | shares of the processes | script calls | client CPU, µs | what it is |\n")
	text.WriteString("|---|" + strings.Repeat("---:|", 6) + "---|\n")
	for _, r := range f.Rows {
		shares := fmt.Sprintf("%.0f to %.0f %%", r.Low, r.High)
		if r.Alone {
			shares = "one process"
		}
		fmt.Fprintf(&text, "| %s | %.0f | %.0f | %.0f | %s | %.2f | %.0f | %s |\n",
			r.Name, r.Calls, r.Least, r.Most, shares, r.Scripts, r.Client, r.Like)
	}
	return text.String()
}
