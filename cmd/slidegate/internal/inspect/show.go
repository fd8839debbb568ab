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

// head names what is looked at.
func (st *State) head() string {
	var b strings.Builder
	output.Table(&b, 0, [][]string{
		{"limiter", st.Limiter + " on " + st.Redis},
		{"event", logs.Shown(st.Event)},
		{"key", st.Key},
		{"time", st.At.Format(time.DateTime) + " UTC, by the clock of Redis"},
	})
	return b.String()
}

// body shows the limits. Where they are to be brief, they are without their strips.
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
	st.writeNotes(&b)
	return b.String()
}

// verdict is what somebody wants to know first.
func (st *State) verdict() string {
	switch {
	case st.Verdict == nil && !st.Stored:
		return "nothing is counted"
	case st.Verdict == nil:
		return "unknown, as Redis does not store how much a limit holds"
	case st.Allowed && !st.Stored:
		return "ADMITTED, as nothing is stored under this key"
	case st.Allowed && st.missing() != "":
		return "ADMITTED by the limits given, up to " + units(st.free()) + " at once"
	case st.Allowed:
		return "ADMITTED, up to " + units(st.free()) + " at once"
	}
	return fmt.Sprintf("DENIED by %s; 1 unit is admitted %s", st.full(), in(st.RetryAfter, st.Limits[0].now))
}

// next returns the words of a command to try.
func (st *State) next() []string {
	event, ok := shellWord(st.Event)
	name, named := shellWord(st.Limiter)
	subject := slices.Concat(st.flags, []string{name, event})
	switch {
	case !ok || !named:
		return []string{"help", "inspect"}
	case st.status() == statusDenied:
		return append([]string{"reset"}, subject...)
	case !st.Stored && st.Estimator == "window":
		return append([]string{"inspect", "--ar1"}, subject...)
	case !st.Stored:
		return []string{"help", "inspect"}
	}
	words := []string{"inspect"}
	for _, sec := range st.given() {
		words = append(words, "--limit "+sec.Limit)
	}
	if missing := st.missing(); missing != "" {
		return append(append(words, missing), subject...)
	}
	return append(append(words, "--watch"), subject...)
}

// missing returns the flags that name what is stored under none of the limits given, or nothing.
func (st *State) missing() string {
	var flags []string
	for _, limit := range st.unnamed() {
		flags = append(flags, "--limit "+limit)
	}
	return strings.Join(flags, " ")
}

// unnamed returns the limits that are stored and not given, as far as they are known.
func (st *State) unnamed() (limits []string) {
	for _, sec := range st.Limits {
		if sec.Bound == nil {
			limits = append(limits, "MAX/"+span(sec.per))
		}
	}
	return limits
}

// free is how many units all limits admit.
func (st *State) free() int64 {
	free := st.Limits[0].Remaining
	for _, sec := range st.given() {
		free = min(free, sec.Remaining)
	}
	return free
}

// full are the limits that deny one unit.
func (st *State) full() string {
	var limits []string
	for _, sec := range st.given() {
		if sec.RetryAfter > 0 {
			limits = append(limits, sec.Limit)
		}
	}
	return strings.Join(limits, " and ")
}

// given are the sections of the limits given.
func (st *State) given() (given []*section) {
	for _, sec := range st.Limits {
		if sec.Bound != nil {
			given = append(given, sec)
		}
	}
	return given
}

// writeNotes tells what may be wrong.
func (st *State) writeNotes(b *strings.Builder) {
	var absent []string
	for _, sec := range st.given() {
		if !sec.Stored {
			absent = append(absent, sec.Limit)
		}
	}
	if !st.Stored {
		b.WriteString("\nRedis has no such key: the event was never counted there, or all is forgotten.\nIf the service denies it all the same, NAME, EVENT, --ar1 or --secret-file are\nothers there, or its Fallback decides.\n")
	} else if len(absent) > 0 {
		fmt.Fprintf(b, "\nNothing is stored for %s; correct --limit if the service has other windows.\n", strings.Join(absent, ", "))
	}
	if st.Verdict != nil && st.missing() != "" {
		fmt.Fprintf(b, "\nMore is stored, and may deny, too; add %s.\n", st.missing())
	}
	if behind := st.behind(); behind > 0 {
		fmt.Fprintf(b, "\nThe clock of Redis stepped back: it reads %s earlier than the last event.\nUntil it has caught up, the time is taken to be that of the event.\n", span(behind))
	}
}

// behind is how much earlier than the last event the clock reads.
func (st *State) behind() (behind time.Duration) {
	for _, sec := range st.Limits {
		behind = max(behind, st.At.Sub(sec.now))
	}
	return behind
}

// text shows the section, whose name is padded to a width.
func (sec *section) text(screen output.Screen, name int, brief bool) string {
	title := fmt.Sprintf("%-*s  ", name, sec.name())
	if sec.Bound != nil {
		title += sec.gauge(screen, 20) + "  "
	}
	switch {
	case sec.Counts == nil:
		return title + sec.levelText()
	case sec.Used == 0:
		return title + sec.counted() + "\n"
	case brief:
		return title + sec.counted() + "\n  " + sec.back() + "\n"
	}
	bars, highest := sec.bars(screen.Width)
	title += sec.counted()
	if highest > 1 {
		title += fmt.Sprintf("; highest bar %d", highest)
	}
	return title + "\n  " + sec.back() + "\n" + bars
}

// name is the limit, or its Per where it is not known.
func (sec *section) name() string {
	if sec.Bound == nil {
		return span(sec.per)
	}
	return sec.Limit
}

// counted says how much is used and free.
func (sec *section) counted() string {
	if sec.Bound == nil {
		return units(sec.Used) + " counted"
	}
	return fmt.Sprintf("%d of %d used, %s free", sec.Used, sec.Max, orNone(sec.Remaining))
}

// back says when units come back, first and last.
func (sec *section) back() string {
	all := fmt.Sprintf("all %d %s", sec.Used, in(sec.ResetAfter, sec.now))
	switch {
	case sec.NextAfter < sec.ResetAfter:
		return fmt.Sprintf("back: %d %s; %s", sec.NextUnits, in(sec.NextAfter, sec.now), all)
	case sec.Used == 1:
		return "back: 1 " + in(sec.ResetAfter, sec.now)
	}
	return "back: " + all
}

// levelText is what comes behind the title of a section of ar1, and below.
func (sec *section) levelText() string {
	level := fmt.Sprintf("level %.2f, %s a second, half-life %s\n", sec.Level.Level, decimal(sec.Rate), span(time.Duration(sec.HalfLife)*time.Millisecond))
	if sec.ResetAfter > 0 {
		level += "  at rest " + in(sec.ResetAfter, sec.now) + "\n"
	}
	if sec.Bound == nil {
		return level
	}
	free := fmt.Sprintf("%s of %d free", orNone(sec.Remaining), sec.Max)
	if sec.RetryAfter > 0 {
		free += "; 1 comes back " + in(sec.RetryAfter, sec.now)
	}
	return free + "\n  " + level
}

// decimal is a number to three digits, however small.
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

// span is a time as flags.Limits write theirs.
func span(d time.Duration) string { return output.Duration(d.Milliseconds()) }

// in is when a wait from now ends, rounded up, so that it is over then.
func in(ms int64, now time.Time) string {
	end, layout := now.Add(time.Duration(ms)*time.Millisecond+time.Second-1).Truncate(time.Second), time.TimeOnly
	if !end.Truncate(24 * time.Hour).Equal(now.Truncate(24 * time.Hour)) {
		layout = time.DateTime
	}
	return fmt.Sprintf("in %s, at %s", wait(ms), end.Format(layout))
}

// wait is a wait, from a minute on rounded up to a second.
func wait(ms int64) string {
	if ms >= time.Minute.Milliseconds() {
		ms = (ms + 999) / 1000 * 1000
	}
	return output.Duration(ms)
}
