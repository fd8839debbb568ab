package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/slidegate/slidegate/window"
)

const topEvents = 10 // how many of the events denied most are reported

// report is the outcome of a replay, as --json prints it. Waits and the period are in milliseconds.
type report struct {
	Sample          bool          `json:"sample"`          // the built-in log, no file
	Files           []string      `json:"files,omitempty"` // in the order of the replay
	Redis           []string      `json:"redis,omitempty"` // the addresses; in memory without
	Limiter         string        `json:"limiter,omitempty"`
	Lines           int           `json:"lines"`
	Unreadable      int           `json:"unreadable_lines"`
	FirstUnreadable string        `json:"first_unreadable,omitempty"`
	Attempts        int           `json:"attempts"`
	Admitted        int           `json:"admitted"`
	Denied          int           `json:"denied"`
	Hopeless        int           `json:"never_admissible"` // of the denied: they ask for more units than a limit holds
	StepsBack       int           `json:"out_of_order"`     // attempts dated before one that stands above them
	Events          int           `json:"events"`
	From            time.Time     `json:"from"`
	To              time.Time     `json:"to"`
	Period          int64         `json:"period_ms"`
	YearsAssumed    int           `json:"years_assumed"` // attempts from lines without a year
	DefaultLimits   bool          `json:"default_limits"`
	Limits          []limitReport `json:"limits"`
	Top             []eventReport `json:"denied_most"`
	MoreDenied      int           `json:"denied_more"` // events denied that denied_most leaves out
}

type limitReport struct {
	Limit  window.Limit `json:"limit"`
	Denied int          `json:"denied"` // attempts that this limit denies, whatever the others say
}

type eventReport struct {
	Event    string `json:"event"`
	Attempts int    `json:"attempts"`
	Denied   int    `json:"denied"`
	Never    bool   `json:"never"`                     // all that it was denied asked for more units than a limit holds: no wait helps
	Longest  int64  `json:"longest_wait_ms,omitempty"` // left out if never
}

// skip counts a line that cannot be read.
func (p *report) skip(file string, line int, why error) {
	p.Unreadable++
	if p.FirstUnreadable == "" {
		p.FirstUnreadable = fmt.Sprintf("line %d of %s: %v", line, file, why)
	}
}

// spans extends the period to the time of an attempt.
func (p *report) spans(a attempt) {
	if p.From.IsZero() || a.at.Before(p.From) {
		p.From = a.at
	}
	if a.at.Before(p.To) {
		p.StepsBack += a.times
	}
	p.To = later(p.To, a.at)
	if a.yearless {
		p.YearsAssumed += a.times
	}
}

// count counts one decision. A limit denies if it alone would ask for a wait, or could never hold the units.
func (p *report) count(a attempt, d window.Decision) {
	p.Attempts++
	if d.Allowed {
		p.Admitted++
		return
	}
	p.Denied++
	if d.Usage == nil {
		p.Hopeless++
	}
	for i := range p.Limits {
		if d.Usage == nil && a.units > p.Limits[i].Limit.Max || d.Usage != nil && d.Usage[i].RetryAfter > 0 {
			p.Limits[i].Denied++
		}
	}
}

// finish fills in what is known at the end alone.
func (r *replay) finish() *report {
	p := &r.report
	p.Events = len(r.events)
	p.Period = p.To.Sub(p.From).Milliseconds()
	p.Top = []eventReport{}
	for event, t := range r.events {
		if t.denied > 0 {
			p.Top = append(p.Top, eventReport{event, t.attempts, t.denied, t.longest == 0, t.longest.Milliseconds()})
		}
	}
	slices.SortFunc(p.Top, func(a, b eventReport) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Longest, a.Longest), cmp.Compare(a.Event, b.Event))
	})
	p.MoreDenied = max(0, len(p.Top)-topEvents)
	p.Top = p.Top[:len(p.Top)-p.MoreDenied]
	return p
}

func (p *report) print(out io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(p)
	}
	var b strings.Builder
	p.printHead(&b)
	p.printLimits(&b)
	p.printTop(&b)
	p.printNotes(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

func (p *report) printHead(b *strings.Builder) {
	if p.Sample {
		b.WriteString("This is the built-in sample: two days of made-up logins to one host.\nYour own log: slidegate replay /var/log/auth.log\n\n")
	}
	writeTable(b, 0, [][]string{
		{"limits", p.limits()},
		{"decided", p.where()},
		{"log", p.source() + ", " + number(p.Lines, "line")},
		{"period", p.period()},
		{"events", strconv.Itoa(p.Events)},
		{"attempts", strconv.Itoa(p.Attempts)},
		{"admitted", p.share(p.Admitted)},
		{"denied", p.share(p.Denied)},
	})
}

func (p *report) limits() string {
	var s []string
	for _, l := range p.Limits {
		s = append(s, l.Limit.String())
	}
	if p.DefaultLimits {
		return strings.Join(s, ", ") + " (the default; choose by --limit)"
	}
	return strings.Join(s, ", ")
}

func (p *report) where() string {
	if p.Limiter == "" {
		return "in memory"
	}
	return "on Redis at " + strings.Join(p.Redis, ", ")
}

func (p *report) source() string {
	if p.Sample {
		return "sample.log, built in"
	}
	return strings.Join(p.Files, ", ")
}

// period leaves out years and a zone if the log tells none.
func (p *report) period() string {
	layout, zone := time.DateTime, " UTC"
	if p.YearsAssumed == p.Attempts {
		layout, zone = time.Stamp, ""
	}
	return fmt.Sprintf("%s to %s%s, %s", p.From.Format(layout), p.To.Format(layout), zone, human(p.To.Sub(p.From)))
}

func (p *report) share(n int) string {
	return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(p.Attempts))
}

func (p *report) printLimits(b *strings.Builder) {
	b.WriteString("\nDenied by each limit (one attempt may be denied by several):\n\n")
	var rows [][]string
	for _, l := range p.Limits {
		rows = append(rows, []string{strconv.Itoa(l.Denied), "  " + l.Limit.String()})
	}
	writeTable(b, tabwriter.AlignRight, rows)
}

func (p *report) printTop(b *strings.Builder) {
	if len(p.Top) == 0 {
		return
	}
	b.WriteString("\nDenied most:\n\n")
	rows := [][]string{{"denied", "of attempts", "longest wait", "  event"}}
	for _, e := range p.Top {
		rows = append(rows, []string{strconv.Itoa(e.Denied), strconv.Itoa(e.Attempts), e.longest(), "  " + printable(e.Event)})
	}
	writeTable(b, tabwriter.AlignRight, rows)
	if p.MoreDenied > 0 {
		fmt.Fprintf(b, "  and %d more\n", p.MoreDenied)
	}
}

// writeTable aligns all columns but the last, which is as wide as it is.
func writeTable(b *strings.Builder, flags uint, rows [][]string) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', flags)
	for _, row := range rows {
		_, _ = io.WriteString(t, strings.Join(row, "\t")+"\n") // a strings.Builder takes everything
	}
	_ = t.Flush()
}

func (e eventReport) longest() string {
	if e.Never {
		return "never"
	}
	return human(time.Duration(e.Longest) * time.Millisecond)
}

// printNotes tells what else a reader must know to believe the counts.
func (p *report) printNotes(b *strings.Builder) {
	if p.Hopeless > 0 {
		fmt.Fprintf(b, "\nNever admissible: %d of the denied, for more units than a limit holds, so no wait helps.\n", p.Hopeless)
	}
	if p.StepsBack > 0 {
		fmt.Fprintf(b, "\nOut of order: %s. None is decided earlier than the last one counted for its event.\n", number(p.StepsBack, "attempt"))
	}
	if p.YearsAssumed > 0 && p.YearsAssumed < p.Attempts {
		fmt.Fprintf(b, "\nYears assumed: %s. A log without years is read as one that begins in 2001, or goes on from the sshd log before it.\n", number(p.YearsAssumed, "attempt"))
	}
	if p.Unreadable > 0 {
		fmt.Fprintf(b, "\nUnreadable lines: %d. The first is %s.\n", p.Unreadable, p.FirstUnreadable)
	}
}

// printable is an event on one line of a terminal, whatever bytes it has.
func printable(event string) string {
	s := event
	if !strconv.CanBackquote(s) || strings.ContainsAny(s, " \"") {
		s = strconv.Quote(s)
	}
	if r := []rune(s); len(r) > 60 {
		s = string(r[:59]) + "…"
	}
	return s
}

// number is a number of things, in words that fit.
func number(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// human is a duration in whole seconds, or milliseconds if it is short, written as limits write theirs.
func human(d time.Duration) string {
	unit := time.Second
	if d < time.Minute {
		unit = time.Millisecond
	}
	return strings.TrimPrefix(window.Every(d.Truncate(unit)).String(), "1/")
}
