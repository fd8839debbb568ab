package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

// head returns a table that shows the limiter, the event, its key and the time.
func (st *State) head() string {
	var b strings.Builder
	rows := [][]string{
		{"limiter", st.Limiter + " on " + st.Redis},
		{"event", logs.Shown(st.Event)},
		{"key", st.Key},
		{"time", st.At.Format(time.DateTime) + " UTC, by the clock of Redis"},
	}
	if text := st.overrideText(); text != "" {
		rows = append(rows, []string{"override", text})
	}
	if st.Turns != nil {
		rows = append(rows, st.rows(st.At)...)
	}
	if st.Places != nil && st.Token > 0 {
		rows = append(rows, []string{"token", fmt.Sprintf("%d, the last one", st.Token)})
	}
	output.Table(&b, 0, rows)
	return b.String()
}

// rows returns table rows for the time of the newest turn and the end of the last pause, as far as
// Redis stores them.
func (t *Turns) rows(now time.Time) (rows [][]string) {
	switch {
	case t.NewestAfter > 0:
		rows = append(rows, []string{"turns", "the newest comes " + formatIn(t.NewestAfter, now)})
	case !t.Newest.IsZero():
		rows = append(rows, []string{"turns", "the newest came at " + formatTime(t.Newest, now)})
	}
	switch {
	case t.PausedFor > 0:
		rows = append(rows, []string{"pause", "ends " + formatIn(t.PausedFor, now)})
	case !t.PausedUntil.IsZero():
		rows = append(rows, []string{"pause", "ended at " + formatTime(t.PausedUntil, now)})
	}
	return rows
}

// body returns the limits and the leases. A brief body leaves out the bars and the leases.
func (st *State) body(screen output.Screen, brief bool) string {
	name := 0
	for _, sec := range st.Limits {
		name = max(name, len(sec.name()))
	}
	var b strings.Builder
	for i, sec := range st.Limits {
		if i > 0 && !brief {
			b.WriteString("\n")
		}
		b.WriteString(sec.text(screen, name, brief))
	}
	if st.Places != nil && len(st.Leases) > 0 && !brief {
		b.WriteString("\n")
		output.Table(&b, 0, st.table(st.At))
	}
	st.writeNotes(&b)
	return b.String()
}

// table returns the leases as table rows.
func (p *Places) table(now time.Time) [][]string {
	rows := [][]string{{"units", "holder", "since", "until, unless renewed"}}
	for _, l := range p.Leases {
		holder := "none"
		if l.Holder != "" {
			holder = logs.Shown(l.Holder)
		}
		rows = append(rows, []string{strconv.FormatInt(l.Units, 10), holder, formatTime(l.Since, now), formatIn(l.Until.Sub(now).Milliseconds(), now)})
	}
	return rows
}

// headline returns a sentence that states the decision. It ends a report.
func (st *State) headline() string {
	switch {
	case st.isFixed():
		return st.overruled()
	case st.Decision == nil && !st.Stored:
		return "nothing is counted"
	case st.Decision == nil:
		return "unknown, because Redis does not store Max"
	case st.Allowed && !st.Stored:
		return "ALLOWED, because nothing is stored under this key"
	case st.Allowed && st.missingFlags() != "":
		return "ALLOWED by the limits given, up to " + units(st.free()) + " at once"
	case st.Allowed:
		return "ALLOWED, up to " + units(st.free()) + " at once"
	}
	in := formatIn(st.RetryAfter, st.Limits[0].now)
	switch {
	case st.Turns != nil && st.missingFlags() != "":
		return "by the limits given, the next turn comes " + in
	case st.Turns != nil:
		return "the next turn comes " + in
	case st.Places != nil:
		return fmt.Sprintf("DENIED: %d of %d held; 1 is free %s, unless renewed", st.Limits[0].Used, st.Limits[0].Max, in)
	}
	return fmt.Sprintf("DENIED by %s; 1 unit is allowed %s", st.denyingLimits(), in)
}

// next returns the arguments of a command to try next.
func (st *State) next() []string {
	event, ok := shellWord(st.Event)
	name, named := shellWord(st.Limiter)
	subject := slices.Concat(st.flags, []string{name, event})
	switch {
	case !ok || !named:
		return []string{"help", "inspect"}
	case st.Override != nil:
		return append([]string{"override", "--end"}, subject...)
	case st.status() == statusDenied && st.Places == nil: // a reset would take the places away from their holders
		return append([]string{"reset"}, subject...)
	case !st.Stored: // it lists the limiter's events, of all packages
		return slices.Concat([]string{"top"}, st.server, []string{name})
	}
	words := []string{"inspect"}
	for _, sec := range st.given() {
		words = append(words, "--limit "+sec.Limit)
	}
	if missing := st.missingFlags(); missing != "" {
		return append(append(words, missing), subject...)
	}
	return append(append(words, subject...), "--web")
}

// missingFlags returns flags for the limits that Redis stores but the command line does not name.
func (st *State) missingFlags() string {
	var flags []string
	for _, limit := range st.unnamedLimits() {
		flags = append(flags, "--limit "+limit)
	}
	return strings.Join(flags, " ")
}

// unnamedLimits returns the limits that Redis stores but the command line does not name. Redis
// stores their Per, but not their Max.
func (st *State) unnamedLimits() (limits []string) {
	if st.Override != nil { // other limits do not apply
		return nil
	}
	for _, sec := range st.Limits {
		switch {
		case sec.Bound == nil && sec.per == 0:
			limits = append(limits, "MAX")
		case sec.Bound == nil:
			limits = append(limits, "MAX/"+formatDuration(sec.per))
		}
	}
	return limits
}

// free returns the number of units that are free under all limits.
func (st *State) free() int64 {
	free := st.Limits[0].Remaining
	for _, sec := range st.given() {
		free = min(free, sec.Remaining)
	}
	return free
}

// denyingLimits returns the limits that would deny another unit.
func (st *State) denyingLimits() string {
	var limits []string
	for _, sec := range st.given() {
		if sec.RetryAfter > 0 {
			limits = append(limits, sec.Limit)
		}
	}
	return strings.Join(limits, " and ")
}

// given returns the sections of the limits that the command line names.
func (st *State) given() (given []*section) {
	for _, sec := range st.Limits {
		if sec.Bound != nil {
			given = append(given, sec)
		}
	}
	return given
}

// writeNotes writes hints about wrong arguments or a wrong clock.
func (st *State) writeNotes(b *strings.Builder) {
	if st.Override == nil { // the limits of an override need not be stored
		st.writeHints(b)
	}
	if lag := st.clockLag(); lag > 0 {
		fmt.Fprintf(b, "\nThe clock of Redis stepped back: it reads %s earlier than the last event.\nUntil it has caught up, the limiter uses the time of the last event.\n", formatDuration(lag))
	}
}

// writeHints writes hints about wrong arguments.
func (st *State) writeHints(b *strings.Builder) {
	var absent []string
	for _, sec := range st.given() {
		if !sec.Stored {
			absent = append(absent, sec.Limit)
		}
	}
	if !st.Stored {
		b.WriteString("\nRedis has no such key: the event was never counted, or its counts are gone.\nIf the service still denies it, check NAME, EVENT, --ar1, --pace, --inflight and\n--secret-file; or its in-memory fallback is deciding.\n")
		if hint := networkHint(st.Event); hint != "" {
			b.WriteString(hint + "\n")
		}
	} else if len(absent) > 0 && st.Turns == nil { // pace does not store limits whose turns no longer count
		fmt.Fprintf(b, "\nNothing is stored for %s; correct --limit if the service has other windows.\n", strings.Join(absent, ", "))
	}
	if st.Decision != nil && st.missingFlags() != "" {
		fmt.Fprintf(b, "\nMore limits are stored, and may %s too; add %s.\n", st.verb(), st.missingFlags())
	}
}

// verb returns the verb that describes what a full limit does.
func (st *State) verb() string {
	if st.Turns != nil {
		return "delay turns"
	}
	return "deny"
}

// clockLag returns how far the clock is behind the time of the last event.
func (st *State) clockLag() (lag time.Duration) {
	for _, sec := range st.Limits {
		lag = max(lag, st.At.Sub(sec.now))
	}
	return lag
}

// text returns the section as text. It pads the limit's name to the given width.
func (sec *section) text(screen output.Screen, name int, brief bool) string {
	title := fmt.Sprintf("%-*s  ", name, sec.name())
	if sec.Bound != nil {
		title += sec.gauge(screen, 20) + "  "
	}
	switch {
	case sec.Counts == nil:
		return title + sec.levelText()
	case sec.Used == 0, sec.per == 0:
		return title + sec.usageText() + "\n"
	case brief || sec.Ahead != nil: // turns ahead would be to the right of the bars
		return title + sec.usageText() + "\n  " + sec.recoveryText() + "\n"
	}
	bars, highest := sec.bars(screen.Width)
	title += sec.usageText()
	if highest > 1 {
		title += fmt.Sprintf("; highest bar %d", highest)
	}
	return title + "\n  " + sec.recoveryText() + "\n" + bars
}

// name returns the limit, or its Per alone if Max is unknown.
func (sec *section) name() string {
	switch {
	case sec.Bound != nil:
		return sec.Limit
	case sec.per == 0:
		return "now"
	}
	return formatDuration(sec.per)
}

// usageText returns how many units are used and free.
func (sec *section) usageText() string {
	ahead, counted, used := "", " counted", "used"
	if sec.per == 0 {
		counted, used = " held", "held"
	}
	if sec.Ahead != nil && *sec.Ahead > 0 {
		ahead = fmt.Sprintf("; %d ahead", *sec.Ahead)
	}
	if sec.Bound == nil {
		return units(sec.Used) + counted + ahead
	}
	return fmt.Sprintf("%d of %d %s, %s free", sec.Used, sec.Max, used, orNone(sec.Remaining)) + ahead
}

// recoveryText returns when the first units come back, and when all units are back.
func (sec *section) recoveryText() string {
	all := fmt.Sprintf("all %d %s", sec.Used, formatIn(sec.ResetAfter, sec.now))
	switch {
	case sec.NextAfter < sec.ResetAfter:
		return fmt.Sprintf("back: %d %s; %s", sec.NextUnits, formatIn(sec.NextAfter, sec.now), all)
	case sec.Used == 1:
		return "back: 1 " + formatIn(sec.ResetAfter, sec.now)
	}
	return "back: " + all
}

// levelText returns an ar1 section as text, without its title.
func (sec *section) levelText() string {
	level := fmt.Sprintf("level %.2f, %s a second, half-life %s\n", sec.Level.Level, decimal(sec.Rate), output.Duration(sec.HalfLife))
	if sec.ResetAfter > 0 {
		level += "  at rest " + formatIn(sec.ResetAfter, sec.now) + "\n"
	}
	if sec.Bound == nil {
		return level
	}
	free := fmt.Sprintf("%s of %d free", orNone(sec.Remaining), sec.Max)
	if sec.RetryAfter > 0 {
		free += "; 1 comes back " + formatIn(sec.RetryAfter, sec.now)
	}
	return free + "\n  " + level
}

// decimal formats x with three significant digits and without an exponent.
func decimal(x float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64)
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

func orNone(n int64) string {
	if n == 0 {
		return "NONE"
	}
	return strconv.FormatInt(n, 10)
}

func units(n int64) string { return output.Count(int(n), "unit") }

// formatDuration formats d in the notation of flags.Limits.
func formatDuration(d time.Duration) string { return output.Duration(d.Milliseconds()) }

// formatIn returns the time at which a wait that starts now ends.
func formatIn(ms int64, now time.Time) string {
	end := roundUp(now.Add(time.Duration(ms) * time.Millisecond))
	return fmt.Sprintf("in %s, at %s", formatWait(ms), formatTime(end, now))
}

// roundUp rounds an end up to a whole second, so that a wait is certainly over at the time shown.
func roundUp(end time.Time) time.Time { return end.Add(time.Second - 1).Truncate(time.Second) }

// formatTime formats a time of day, with the date if it differs from the date of now.
func formatTime(t, now time.Time) string {
	if t.Truncate(24 * time.Hour).Equal(now.Truncate(24 * time.Hour)) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// formatWait formats the length of a wait. It rounds waits of a minute or more up to whole seconds.
func formatWait(ms int64) string {
	if ms >= time.Minute.Milliseconds() {
		ms = (ms + 999) / 1000 * 1000
	}
	return output.Duration(ms)
}
