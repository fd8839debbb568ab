package replay

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

// print writes the report as text, or as one JSON object.
func (p *Report) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return output.JSON(out, p)
	}
	var b strings.Builder
	p.printHead(&b)
	if len(p.Sets) == 1 {
		p.printSet(&b, p.Sets[0])
	} else {
		p.printSets(&b)
	}
	p.printNotes(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

func (p *Report) printHead(b *strings.Builder) {
	p.printSample(b, "slidegate replay")
	rows := [][]string{
		{"decided", p.where()},
		{"log", p.source() + ", " + p.lines()},
		{"period", p.period()},
		{"events", p.events()},
		{"attempts", p.attempts()},
	}
	rows = append(p.estimator(), rows...)
	if len(p.Sets) == 1 {
		rows = slices.Concat([][]string{{"limits", p.limits()}}, rows, p.outcome(p.Sets[0]))
	}
	output.Table(b, 0, rows)
}

// printSample tells what to do about the sample, if it is that.
func (p *logReport) printSample(b *strings.Builder, command string) {
	if p.Sample {
		fmt.Fprintf(b, "This is the built-in sample: two days of made-up logins to one host.\nYour own log: %s /var/log/auth.log, or - for the standard input\n\n", command)
	}
}

func (p *Report) limits() string {
	if p.DefaultLimits {
		return p.Sets[0].limits() + " (the default; choose by --limit)"
	}
	return p.Sets[0].limits()
}

// estimator explains how limits count, if not by windows.
func (p *Report) estimator() [][]string {
	if p.Estimator == "window" {
		return nil
	}
	return [][]string{{"estimator", p.Estimator + ": levels that decay; a limit holds MAX at once, and up to 2 x MAX in a span of PER"}}
}

func (s *result) limits() string {
	return strings.Join(s.limitTexts(), ", ")
}

func (s *result) limitTexts() (texts []string) {
	for _, l := range s.Limits {
		texts = append(texts, l.Limit)
	}
	return texts
}

func (p *Report) where() string {
	if p.Redis == "" {
		return "in memory"
	}
	return "on Redis at " + p.Redis
}

func (p *logReport) source() string {
	if p.Sample {
		return "the built-in sample"
	}
	if len(p.Files) == 1 && p.Files[0] == "-" {
		return "standard input"
	}
	if n := len(p.Files); n > 3 {
		return logs.Shown(fmt.Sprintf("%s, %s and %d more files", p.Files[0], p.Files[1], n-2))
	}
	return logs.Shown(strings.Join(p.Files, ", "))
}

func (p *logReport) lines() string {
	if p.NoAttempt == 0 {
		return output.Count(p.Lines, "line")
	}
	return fmt.Sprintf("%s, of which %d without an attempt", output.Count(p.Lines, "line"), p.NoAttempt)
}

// period leaves out years and a zone if the log tells none.
func (p *logReport) period() string {
	layout, zone := time.DateTime, " UTC"
	if p.yearless() {
		layout, zone = time.Stamp, ""
	}
	return fmt.Sprintf("%s to %s%s, %s", p.From.Format(layout), p.To.Format(layout), zone, output.Duration(p.Period))
}

func (p *logReport) yearless() bool { return p.YearsAssumed == p.Attempts }

func (p *Report) events() string {
	text := p.estimate(strconv.Itoa(p.Events))
	if p.By != "" {
		text += " by " + logs.ShellQuoted(p.By)
	}
	return text
}

func (p *Report) estimate(n string) string { return about(p.Estimated, n) }

func about(estimated bool, n string) string {
	if estimated {
		return "about " + n
	}
	return n
}

func (p *logReport) attempts() string {
	if p.WithResult == 0 {
		return strconv.Itoa(p.Attempts)
	}
	return fmt.Sprintf("%d, of which %d succeeded", p.Attempts, p.Succeeded)
}

// outcome is in rows what one set of limits did.
func (p *Report) outcome(s *result) [][]string {
	rows := [][]string{{"admitted", share(s.Admitted, p.Attempts)}, {"denied", share(s.Denied, p.Attempts)}}
	if s.Denied > 0 {
		rows[1][1] += ", from " + p.estimate(output.Count(s.DeniedEvents, "event"))
	}
	if p.WithResult > 0 {
		rows = append(rows, []string{"by mistake", p.mistakes(s.DeniedSucceeded)})
	}
	if s.Denied > s.Hopeless {
		rows = append(rows, []string{"waits", s.half("denied")})
	}
	return rows
}

func (p *logReport) mistakes(n int) string {
	return fmt.Sprintf("%d of %s that had succeeded", n, output.Count(p.Succeeded, "attempt"))
}

// half tells the waits, of which one is above half of the others.
func (w *waitReport) half(of string) string {
	return fmt.Sprintf("half of the %s up to %s, 99 %% up to %s, the longest %s", of, w.about(w.Wait50), w.about(w.Wait99), output.Duration(w.LongestWait))
}

func share(n, of int) string {
	return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(max(1, of)))
}

// printSet prints the details of a single set of limits.
func (p *Report) printSet(b *strings.Builder, s *result) {
	b.WriteString("\nDenied by each limit (one attempt may be denied by several):\n\n")
	var rows [][]string
	for _, l := range s.Limits {
		rows = append(rows, []string{strconv.Itoa(l.Denied), "  " + l.Limit})
	}
	output.Table(b, tabwriter.AlignRight, rows)
	printWidths(b, s.limitTexts())
	p.printEvents(b, eventTable{"Denied most:", "denied", "event", printable}, s.Top, s.MoreDenied)
	p.printEvents(b, eventTable{"Denied by mistake, as they had succeeded:", "denied", "event", printable}, s.Hurt, s.MoreHurt)
}

// printWidths explains what stands after an @.
func printWidths(b *strings.Builder, limits []string) {
	for _, l := range limits {
		if _, width, ok := strings.Cut(l, "@"); ok {
			fmt.Fprintf(b, "\n%s counts in slices of %s: a unit is forgotten up to that much late, and never more is admitted.\n", l, width)
		}
	}
}

// An eventTable has a title, names of its first and its last column, and a way to show an event.
type eventTable struct {
	title, denied, event string
	show                 func(event string) string
}

func (p *logReport) printEvents(b *strings.Builder, t eventTable, events []Event, more int) {
	if len(events) == 0 {
		return
	}
	b.WriteString("\n" + t.title + "\n\n")
	rows := [][]string{{t.denied, "of attempts", "by mistake", "longest wait", "  " + t.event}}
	for _, e := range events {
		rows = append(rows, []string{strconv.Itoa(e.Denied), strconv.Itoa(e.Attempts), strconv.Itoa(e.Succeeded), e.longest(), "  " + t.show(e.Event)})
	}
	p.writeResults(b, rows, 2)
	if more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
}

func (e Event) longest() string {
	if e.Never {
		return "never"
	}
	return output.Duration(e.Longest)
}

// printSets prints several sets of limits side by side.
func (p *Report) printSets(b *strings.Builder) {
	b.WriteString("\n")
	rows := [][]string{{"admitted", "denied", "", "events denied", "by mistake", "half wait up to", "99 % up to", "longest wait", "  limits"}}
	for _, s := range p.Sets {
		rows = append(rows, []string{
			strconv.Itoa(s.Admitted), strconv.Itoa(s.Denied), fmt.Sprintf("%.1f %%", 100*float64(s.Denied)/float64(p.Attempts)), p.estimate(strconv.Itoa(s.DeniedEvents)),
			strconv.Itoa(s.DeniedSucceeded), s.wait(s.about(s.Wait50)), s.wait(s.about(s.Wait99)), s.wait(output.Duration(s.LongestWait)), "  " + s.limits(),
		})
	}
	p.writeResults(b, rows, 4)
}

func (s *result) wait(text string) string {
	if s.Denied == s.Hopeless {
		return "-"
	}
	return text
}

// writeResults leaves out the column of what was denied by mistake, if the log does not know.
func (p *logReport) writeResults(b *strings.Builder, rows [][]string, mistakes int) {
	for i := range rows {
		if p.WithResult == 0 {
			rows[i] = slices.Delete(rows[i], mistakes, mistakes+1)
		}
	}
	output.Table(b, tabwriter.AlignRight, rows)
}

// printNotes tells what else a reader must know to believe the counts.
func (p *Report) printNotes(b *strings.Builder) {
	for _, s := range p.Sets {
		for _, l := range s.Limits {
			if l.Needless != "" {
				fmt.Fprintf(b, "\n%s can never deny beside %s, which holds no more in a longer time; leave it out.\n", l.Limit, l.Needless)
			}
		}
		if s.Hopeless > 0 {
			fmt.Fprintf(b, "\nNever admissible under %s: %d of the denied, for more units than a limit holds, so no wait helps.\n", s.limits(), s.Hopeless)
		}
	}
	p.logReport.printNotes(b)
	if p.Estimated {
		printTooMany(b, "events", "event", p.Sets[0].Lost)
	}
	if p.Picture != "" {
		fmt.Fprintf(b, "\nPicture: %s\n", logs.Shown(p.Picture))
	}
}

func printTooMany(b *strings.Builder, things, thing string, lost int) {
	fmt.Fprintf(b, "\nToo many %s to keep all: their numbers are estimates, and an %s of the lists may have had up to %d more denials at another time.\n", things, thing, lost)
}

// printNotes tells what was odd in the log.
func (p *logReport) printNotes(b *strings.Builder) {
	if p.OutOfOrder > 0 {
		fmt.Fprintf(b, "\nOut of order: %s, dated up to %s before one above. None is decided earlier than the last one counted for its event; --sort puts the log in order first.\n",
			output.Count(p.OutOfOrder, "attempt"), output.Duration(p.FurthestBack))
	}
	if p.YearsAssumed > 0 && !p.yearless() {
		fmt.Fprintf(b, "\nYears assumed: %s. Lines without a year are dated near the other files.\n", output.Count(p.YearsAssumed, "attempt"))
	}
	if p.FirstNoEvent != "" {
		fmt.Fprintf(b, "\nThe first line without an event is %s.\n", p.FirstNoEvent)
	}
	if p.Unreadable > 0 {
		fmt.Fprintf(b, "\nUnreadable lines: %d. The first is %s.\n", p.Unreadable, p.FirstUnreadable)
	}
}

// printable is an event on one line of a terminal, whatever bytes it has.
func printable(event string) string {
	s := logs.Shown(event)
	if s == event && strings.ContainsAny(s, " \"") {
		s = strconv.Quote(s)
	}
	if r := []rune(s); len(r) > 60 {
		s = string(r[:59]) + "…"
	}
	return s
}

// about is a wait that is only known to about 4 %, rounded up.
func (w *waitReport) about(ms int64) string {
	unit := int64(100)
	for _, u := range []int64{1000, 10_000, 60_000, 600_000, 3_600_000} {
		if ms >= 100*unit {
			unit = u
		}
	}
	return output.Duration(min((ms+unit-1)/unit*unit, w.LongestWait))
}
