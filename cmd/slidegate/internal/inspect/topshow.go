package inspect

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/records"
)

// head returns a table that shows the Redis server, the time and the number of keys seen.
func (o *overview) head() string {
	var b strings.Builder
	where := o.Redis
	if o.Masters > 1 {
		where += fmt.Sprintf(", %d masters", o.Masters)
	}
	rows := [][]string{{"redis", where}, {"time", o.At.Format(time.DateTime) + " UTC, by the clock of Redis"}}
	rows = append(rows, []string{"keys", o.seenText()})
	if o.Failed != "" {
		rows = append(rows, []string{"failed", logs.Shown(o.Failed)})
	}
	output.Table(&b, 0, rows)
	return b.String()
}

// seenText says how many keys were seen.
func (o *overview) seenText() string {
	switch {
	case o.ended && o.Failed != "":
		return "all seen, about " + grouped(o.Keys) + ", except on nodes that failed"
	case o.ended:
		return "all seen, about " + grouped(o.Keys)
	}
	return fmt.Sprintf("%s of about %s seen (%s); event counts and bytes are estimated", grouped(o.Seen), grouped(o.Keys), percent(o.Share))
}

// body returns the table of limiters or, if there is only one limiter, its fullest events. A brief
// body shows fewer of them.
func (o *overview) body(screen output.Screen, brief bool) string {
	var b strings.Builder
	if o.Name == "" {
		o.writeLimiters(&b, screen, brief)
	}
	for i, l := range o.Limiters {
		if i > 0 && o.Name != "" {
			b.WriteString("\n")
		}
		if o.Name != "" {
			o.writeLimiter(&b, screen, l, brief)
		}
	}
	o.writeNotes(&b, screen)
	return b.String()
}

// writeLimiters writes a table of all limiters.
func (o *overview) writeLimiters(b *strings.Builder, screen output.Screen, brief bool) {
	shown := o.Limiters
	if most := 10; brief && len(shown) > most {
		shown = shown[:most]
	}
	rows := [][]string{{"limiter", "package", "events", "bytes", "fullest event"}}
	for _, l := range shown {
		fullest := "none counts"
		if len(l.Fullest) > 0 {
			fullest = l.Fullest[0].name() + ": " + l.Fullest[0].text()
		}
		rows = append(rows, []string{l.Limiter, l.Estimator, o.estimated(l.Events), l.bytesText(), fullest})
	}
	if len(shown) > 0 {
		writeTable(b, screen, rows)
	}
	if more := len(o.Limiters) - len(shown); more > 0 {
		b.WriteString("and " + output.Count(more, "more limiter") + "\n")
	}
}

// estimated formats a number of events, and marks it if it is an estimate.
func (o *overview) estimated(n int64) string {
	if o.ended {
		return grouped(n)
	}
	return "~" + grouped(n)
}

// bytesText formats the size of a limiter's keys, and marks it if not all were measured.
func (l *limited) bytesText() string {
	switch {
	case l.Measured == 0:
		return "?"
	case l.Measured < l.Events:
		return "~" + byteSize(l.Bytes)
	}
	return byteSize(l.Bytes)
}

// text briefly says what the event has used.
func (u *usage) text() string {
	var parts []string
	for _, w := range u.Windows {
		switch {
		case w.Used == 0:
		case w.per == 0:
			parts = append(parts, amount(w.Used)+" held")
		default:
			parts = append(parts, amount(w.Used)+" in "+formatDuration(w.per))
		}
	}
	return strings.Join(parts, ", ")
}

// name returns the event in a form that a terminal can display. It shortens hashes, because nobody
// types them.
func (u *usage) name() string {
	if u.Hashed {
		return u.Event[:12] + "…"
	}
	return eventText(u.Event)
}

// eventText returns an event in a form that a terminal can display. It quotes an event that begins
// with ~, because a hash does so too.
func eventText(event string) string {
	if strings.HasPrefix(event, "~") {
		return strconv.Quote(event)
	}
	return logs.Shown(event)
}

// writeLimiter writes a table of a limiter's fullest events.
func (o *overview) writeLimiter(b *strings.Builder, screen output.Screen, l *limited, brief bool) {
	fmt.Fprintf(b, "%s of package %s: %s %s, %s\n", l.Limiter, l.Estimator, o.estimated(l.Events), eventWord(l.Events), l.bytesText())
	shown := l.Fullest
	if brief {
		shown = shown[:min(len(shown), 3)]
	}
	if len(shown) == 0 {
		b.WriteString("  none of those seen counts now" + o.underLimits() + "\n")
		return
	}
	windows := pers(shown)
	rows := [][]string{o.titles(l, windows)}
	for _, u := range shown {
		rows = append(rows, o.row(l, u, windows))
	}
	writeTable(b, screen, rows)
}

// writeTable writes a table. On a terminal, it truncates lines that do not fit.
func writeTable(b *strings.Builder, screen output.Screen, rows [][]string) {
	var table strings.Builder
	output.Table(&table, 0, rows)
	for line := range strings.SplitSeq(strings.TrimSuffix(table.String(), "\n"), "\n") {
		b.WriteString(screen.Crop(line) + "\n")
	}
}

// underLimits returns a remark that only windows with a given limit count. It returns "" if no
// limits were given.
func (o *overview) underLimits() string {
	if len(o.ranking.limits) == 0 && o.ranking.held == 0 {
		return ""
	}
	return " under the limits given"
}

// titles returns the column titles for a limiter.
func (o *overview) titles(l *limited, windows []time.Duration) []string {
	titles := []string{""}
	if l.Fullest[0].Share != nil {
		titles = append(titles, "used")
	}
	for _, per := range windows {
		titles = append(titles, o.title(per))
	}
	if l.Estimator != records.Inflight.String() {
		titles = append(titles, "last")
	}
	return append(titles, "event")
}

// title returns the column title for a window: its limit, if one was given.
func (o *overview) title(per time.Duration) string {
	for _, l := range o.ranking.limits {
		if l.Per == per {
			return l.Label()
		}
	}
	switch {
	case per > 0:
		return formatDuration(per)
	case o.ranking.held > 0:
		return "of " + strconv.FormatInt(o.ranking.held, 10)
	}
	return "held"
}

// row returns the table row of an event.
func (o *overview) row(l *limited, u *usage, windows []time.Duration) []string {
	row := []string{""}
	if u.Share != nil {
		row = append(row, percent(*u.Share))
	}
	for _, per := range windows {
		cell := "-"
		if i := slices.IndexFunc(u.Windows, func(w *used) bool { return w.per == per }); i >= 0 {
			cell = amount(u.Windows[i].Used)
		}
		row = append(row, cell)
	}
	if l.Estimator != records.Inflight.String() {
		row = append(row, formatTime(u.Last, o.At))
	}
	return append(row, u.name())
}

// writeNotes writes notes that explain the numbers.
func (o *overview) writeNotes(b *strings.Builder, screen output.Screen) {
	var notes []string
	if len(o.Limiters) == 0 {
		notes = append(notes, "Redis has no key of such a limiter, or it was not seen. Check --redis, and NAME if you gave one.")
	}
	hashed := slices.ContainsFunc(o.Limiters, func(l *limited) bool { return l.Hashed > 0 })
	if hashed {
		notes = append(notes, "An event that begins with ~ is a hash: of a Secret, or of more than 128 bytes.")
	}
	switch {
	case len(o.Limiters) == 0 || o.underLimits() != "":
	case o.Name == "":
		notes = append(notes, "The fullest event has the most units in one window, whatever the limit.")
	default:
		notes = append(notes, "The fullest have the most units in one window; --limit ranks them by share.")
	}
	if o.Unread > 0 {
		notes = append(notes, fmt.Sprintf("Events that could not be read, and are not ranked: %s (%s).", grouped(o.Unread), logs.Shown(o.cause)))
	}
	if o.Foreign > 0 {
		notes = append(notes, fmt.Sprintf("Keys that look like these, but hold no record, and are not counted: %s.", grouped(o.Foreign)))
	}
	for i, note := range notes {
		if i == 0 && len(o.Limiters) > 0 {
			b.WriteString("\n") // below a table
		}
		b.WriteString(screen.Wrap(note) + "\n")
	}
}

// eventWord returns "event" in the singular or plural, to follow n.
func eventWord(n int64) string {
	if n == 1 {
		return "event"
	}
	return "events"
}

// eventsText formats a number of events.
func eventsText(n int64) string { return grouped(n) + " " + eventWord(n) }

// headline returns the result as one sentence.
func (o *overview) headline() string {
	among := ""
	if !o.ended {
		among = fmt.Sprintf(" among the %s of the keys that were seen", percent(o.Share))
	}
	var events int64
	for _, l := range o.Limiters {
		events += l.Events
	}
	switch {
	case len(o.Limiters) == 0 && o.Name != "":
		return "no event of " + o.Name + among
	case len(o.Limiters) == 0:
		return "no limiter" + among
	case !o.ended && o.Name == "":
		return fmt.Sprintf("%s%s, with about %s in all", output.Count(len(o.Limiters), "limiter"), among, eventsText(events))
	case !o.ended:
		return fmt.Sprintf("about %s of %s, estimated from %s of the keys", eventsText(events), o.Name, percent(o.Share))
	case o.Name == "":
		return output.Count(len(o.Limiters), "limiter") + ", " + eventsText(events)
	}
	return eventsText(events) + " of " + o.Name
}

// next returns the arguments of the command to try next: it inspects the fullest event, or shows
// the limiter with the most events.
func (o *overview) next() []string {
	switch {
	case len(o.Limiters) == 0 && !o.ended:
		return append([]string{"top", "--max-time 1m"}, append(o.flags, words(o.Name)...)...)
	case len(o.Limiters) == 0:
		return []string{"help", "top"}
	case o.Name == "":
		return append(append([]string{"top"}, o.flags...), words(o.Limiters[0].Limiter)...)
	}
	for _, l := range o.Limiters {
		for _, u := range l.Fullest {
			if event, ok := shellWord(u.Event); ok && !u.Hashed {
				return slices.Concat([]string{"inspect"}, limitFlags(u), o.flags, flagOf(l.Estimator), words(o.Name), []string{event})
			}
		}
	}
	return []string{"help", "inspect"}
}

// limitFlags returns flags for the limits that were given for the event's windows.
func limitFlags(u *usage) (flags []string) {
	for _, w := range u.Windows {
		if w.Limit != "" {
			flags = append(flags, "--limit "+w.Limit)
		}
	}
	return flags
}

// words returns name as the last words of a command. If name is empty, it returns none.
func words(name string) []string {
	if name == "" {
		return nil
	}
	word, ok := shellWord(name)
	if !ok { // the name begins with a dash
		return []string{"--", name}
	}
	return []string{word}
}

// amount formats a number of units or a level. A level has two decimal places.
func amount(x float64) string {
	if x == math.Trunc(x) {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// percent formats a share as a percentage, rounded down, so that a limit with a free unit never
// shows as 100%.
func percent(share float64) string {
	if share > 0 && share < 0.01 {
		return "<1%"
	}
	return fmt.Sprintf("%d%%", int64(share*100+1e-9))
}

// byteSize formats a number of bytes with a suitable unit.
func byteSize(bytes int64) string {
	switch {
	case bytes < 1000:
		return fmt.Sprintf("%d B", bytes)
	case bytes < 1e6:
		return fmt.Sprintf("%.1f kB", float64(bytes)/1e3)
	case bytes < 1e9:
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(bytes)/1e9)
}

// grouped formats n with commas between groups of three digits.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
