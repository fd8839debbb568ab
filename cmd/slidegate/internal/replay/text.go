package replay

import (
	"cmp"
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
	screen := output.ScreenOf(out)
	_, err := io.WriteString(out, screen.Fit(topEvents, func(rows int) string { return p.text(screen, rows) }))
	return err
}

// text returns the report. Each of its lists has at most rows rows.
func (p *Report) text(screen output.Screen, rows int) string {
	var b strings.Builder
	p.printHead(&b)
	if len(p.Sets) == 1 {
		p.printSet(&b, screen, p.Sets[0], rows)
	} else {
		p.printSets(&b, screen)
	}
	p.printNotes(&b, screen)
	verdict, next := p.end()
	screen.End(&b, verdict, next...)
	return b.String()
}

func (p *Report) printHead(b *strings.Builder) {
	p.printSample(b, "slidegate replay")
	rows := [][]string{{"log", p.source() + ", " + p.lines()}, {"period", p.period()}, {"attempts", p.attempts() + p.events()}}
	rows = slices.Concat(p.how(), rows)
	if len(p.Sets) == 1 {
		rows = slices.Concat([][]string{{"limits", p.limits()}}, rows, p.outcomeRows(p.Sets[0]))
	}
	output.Table(b, 0, rows)
}

// printSample explains how to replay the user's own log, if the log is the built-in sample.
func (p *logReport) printSample(b *strings.Builder, command string) {
	if p.Sample {
		fmt.Fprintf(b, "A built-in sample. Your own log: %s /var/log/auth.log\n\n", command)
	}
}

func (p *Report) limits() string {
	if p.DefaultLimits {
		return p.Sets[0].limits() + " (the default; choose with --limit)"
	}
	return p.Sets[0].limits()
}

// how returns table rows that name the estimator and Redis. It omits the defaults, which are
// windows in memory.
func (p *Report) how() (rows [][]string) {
	if p.Estimator != "window" {
		rows = append(rows, []string{"estimator", p.Estimator + ": a limit allows MAX at once, and up to 2 x MAX in one PER"})
	}
	if p.Redis != "" {
		rows = append(rows, []string{"decided", "on Redis at " + p.Redis})
	}
	return rows
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
	return fmt.Sprintf("%s (%d without an attempt)", output.Count(p.Lines, "line"), p.NoAttempt)
}

// period returns the first and the last time in the log, and the time between them. If the log has
// no years, it omits the years and the zone.
func (p *logReport) period() string {
	layout, zone := time.DateTime, " UTC"
	if p.yearless() {
		layout, zone = time.Stamp, ""
	}
	return fmt.Sprintf("%s to %s%s, %s", p.From.Format(layout), p.To.Format(layout), zone, output.Duration(p.Period))
}

func (p *logReport) yearless() bool { return p.YearsAssumed == p.Attempts }

// events returns the number of events, and the field from which they were taken.
func (p *Report) events() string {
	text := ", from " + p.estimate(output.Count(p.Events, "event"))
	if by := cmp.Or(p.By, p.Field); by != "" {
		text += " by " + logs.ShellQuoted(by)
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
	return fmt.Sprintf("%d (%d succeeded)", p.Attempts, p.Succeeded)
}

// outcomeRows returns table rows that say what a set of limits did.
func (p *Report) outcomeRows(s *result) [][]string {
	rows := [][]string{{"allowed", share(s.Allowed, p.Attempts)}, {"denied", share(s.Denied, p.Attempts)}}
	if s.Denied > 0 {
		rows[1][1] += ", from " + p.estimate(output.Count(s.DeniedEvents, "event"))
	}
	if len(s.Limits) > 1 && s.Denied > 0 {
		rows = append(rows, []string{"by limit", s.byLimit()})
	}
	if p.WithResult > 0 {
		rows = append(rows, []string{"by mistake", p.mistakes(s.DeniedSucceeded)})
	}
	if s.Denied > s.NeverAllowed {
		rows = append(rows, []string{"waits", s.spans()})
	}
	return rows
}

// byLimit returns how many attempts each limit denied.
func (s *result) byLimit() string {
	var counts []string
	for _, l := range s.Limits {
		counts = append(counts, fmt.Sprintf("%d by %s", l.Denied, l.Limit))
	}
	return strings.Join(counts, ", ") + "; may overlap"
}

func (p *logReport) mistakes(n int) string {
	return fmt.Sprintf("%d of %s that had succeeded", n, output.Count(p.Succeeded, "attempt"))
}

// spans returns the median, the 99th percentile and the maximum of the waits.
func (w *waitReport) spans() string {
	return fmt.Sprintf("half up to %s, 99 %% up to %s, the longest %s", w.about(w.Wait50), w.about(w.Wait99), output.Duration(w.LongestWait))
}

func share(n, of int) string {
	return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(max(1, of)))
}

// printSet prints the details of a single set of limits.
func (p *Report) printSet(b *strings.Builder, screen output.Screen, s *result, rows int) {
	printWidths(b, screen, s.limitTexts())
	p.printEvents(b, screen, "denied", rows, []eventList{{printable, s.Top}}, eventList{printable, s.ByMistake})
}

// printWidths explains the bucket width, which is the part of a limit after the @.
func printWidths(b *strings.Builder, screen output.Screen, limits []string) {
	for _, l := range limits {
		if _, width, ok := strings.Cut(l, "@"); ok {
			printNote(b, screen, "%s counts in buckets of %s: units come back up to that much late, never early.", l, width)
			return // one example is enough
		}
	}
}

// eventList is a part of the table of events. show formats an event for printing.
type eventList struct {
	show   func(event string) string
	events []Event
}

// printEvents prints several lists as one table, with at most maxRows rows of each list. Events
// denied by mistake come last.
func (p *logReport) printEvents(b *strings.Builder, screen output.Screen, denied string, maxRows int, lists []eventList, byMistake eventList) {
	rows := [][]string{{denied, "of attempts", "by mistake", "longest wait", "  " + denied + " most"}}
	for _, l := range append(lists, byMistake) {
		rows = append(rows, l.rows(maxRows)...)
	}
	if len(rows) == 1 {
		return
	}
	var table strings.Builder
	p.writeResults(&table, rows, 2)
	header, body, _ := strings.Cut(table.String(), "\n")
	b.WriteString("\n" + screen.Faint(header) + "\n")
	lines := slices.Collect(strings.Lines(body))
	last := len(lines) - min(maxRows, len(byMistake.events))
	b.WriteString(strings.Join(lines[:last], ""))
	if last < len(lines) {
		b.WriteString(screen.Warn("  by mistake (the log says that they succeeded):") + "\n" + strings.Join(lines[last:], ""))
	}
}

// rows returns the first events as table rows.
func (l *eventList) rows(maxRows int) (rows [][]string) {
	for _, e := range l.events[:min(maxRows, len(l.events))] {
		rows = append(rows, []string{
			strconv.Itoa(e.Denied), strconv.Itoa(e.Attempts), strconv.Itoa(e.Succeeded), e.longest(), "  " + l.show(e.Event),
		})
	}
	return rows
}

func (e Event) longest() string {
	if e.Never {
		return "never"
	}
	return output.Duration(e.Longest)
}

// printSets prints several sets of limits side by side. Limits that do not fit wrap onto the next
// line.
func (p *Report) printSets(b *strings.Builder, screen output.Screen) {
	rows := [][]string{{"denied", "events", "mistakes", "half wait", "99 %", "longest", ""}}
	for _, s := range p.Sets {
		rows = append(rows, []string{
			fmt.Sprintf("%d %5.1f %%", s.Denied, 100*float64(s.Denied)/float64(p.Attempts)), p.estimate(strconv.Itoa(s.DeniedEvents)),
			strconv.Itoa(s.DeniedSucceeded), s.wait(s.about(s.Wait50)), s.wait(s.about(s.Wait99)), s.wait(output.Duration(s.LongestWait)), "",
		})
	}
	var table strings.Builder
	p.writeResults(&table, rows, 2)
	lines := strings.Split(strings.ReplaceAll("\n"+table.String(), "\n  ", "\n"), "\n")[1:]
	width := len(lines[0]) + len("  ")
	b.WriteString("\n" + screen.Faint(lines[0]+"  limits") + "\n")
	for i, s := range p.Sets {
		limits := output.Wrapped(s.limitTexts(), ", ", max(12, screen.Width-width))
		b.WriteString(lines[i+1] + "  " + strings.Join(limits, "\n"+strings.Repeat(" ", width)) + "\n")
	}
}

func (s *result) wait(text string) string {
	if s.Denied == s.NeverAllowed {
		return "-"
	}
	return text
}

// writeResults writes a table. It omits the column of mistakes if the log does not say which
// attempts succeeded.
func (p *logReport) writeResults(b *strings.Builder, rows [][]string, mistakes int) {
	for i := range rows {
		if p.WithResult == 0 {
			rows[i] = slices.Delete(rows[i], mistakes, mistakes+1)
		}
	}
	output.Table(b, tabwriter.AlignRight, rows)
}

// printNotes prints the notes needed to interpret the counts.
func (p *Report) printNotes(b *strings.Builder, screen output.Screen) {
	for _, s := range p.Sets {
		for _, l := range s.Limits {
			if l.Needless != "" {
				printNote(b, screen, "%s denies nothing beyond %s, which allows no more in a longer time; leave it out.", l.Limit, l.Needless)
			}
		}
		if s.NeverAllowed > 0 {
			printNote(b, screen, "Never allowed under %s: %d of the denied attempts request more units than a limit's Max, so no wait helps.", s.limits(), s.NeverAllowed)
		}
	}
	p.logReport.printNotes(b, screen)
	if p.Estimated {
		printTooMany(b, screen, "events", "event", p.Sets[0].Lost)
	}
	printPicture(b, screen, p.Picture)
}

// printNote prints a paragraph.
func printNote(b *strings.Builder, screen output.Screen, format string, args ...any) {
	b.WriteString("\n" + screen.Wrap(fmt.Sprintf(format, args...)) + "\n")
}

// printPicture prints the name of the chart's file, if a chart was drawn.
func printPicture(b *strings.Builder, screen output.Screen, file string) {
	if file != "" {
		printNote(b, screen, "Picture: %s", logs.Shown(file))
	}
}

func printTooMany(b *strings.Builder, screen output.Screen, things, thing string, lost int) {
	printNote(b, screen, "Too many %s to keep all: their numbers are estimates, and each %s in the lists may have had up to %d more denials at another time.", things, thing, lost)
}

// printNotes prints notes about anything unusual in the log.
func (p *logReport) printNotes(b *strings.Builder, screen output.Screen) {
	if p.OutOfOrder > 0 {
		printNote(b, screen, "Out of order: %s, dated up to %s before an earlier line. Each is decided no earlier than the last one counted for its event; --sort sorts the log first.",
			output.Count(p.OutOfOrder, "attempt"), output.Duration(p.FurthestBack))
	}
	if p.YearsAssumed > 0 && !p.yearless() {
		printNote(b, screen, "Years assumed: %s. Lines without a year are dated near the other files.", output.Count(p.YearsAssumed, "attempt"))
	}
	if p.FirstNoEvent != "" {
		printNote(b, screen, "The first line without an event is %s.", p.FirstNoEvent)
	}
	if p.Unreadable > 0 {
		printNote(b, screen, "Unreadable lines: %d. The first is %s.", p.Unreadable, p.FirstUnreadable)
	}
}

// printable formats an event so that it fits on one line of a terminal, whatever bytes it contains.
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

// about formats a wait. It rounds up, because the wait is accurate only to about 4 %.
func (w *waitReport) about(ms int64) string {
	unit := int64(100)
	for _, u := range []int64{1000, 10_000, 60_000, 600_000, 3_600_000} {
		if ms >= 100*unit {
			unit = u
		}
	}
	return output.Duration(min((ms+unit-1)/unit*unit, w.LongestWait))
}
