package attack

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// tables are what the program prints: what attackers got, and what it cost the users.
func tables(weeks []week) string {
	var b strings.Builder
	b.WriteString("| passwords tried | guard | an hour, mean | worst hour | on one account, worst hour | on one account, in the week |\n|---|---|---:|---:|---:|---:|\n")
	for _, k := range weeks {
		switch {
		case k.only:
			fmt.Fprintf(&b, "| %s | with challenges | %s |\n", k.name, k.challenged.got())
		case len(k.with.attackers) > 0:
			fmt.Fprintf(&b, "| %s | no | %s |\n| | yes | %s |\n| | with challenges | %s |\n", k.name, k.without.got(), k.with.got(), k.challenged.got())
		}
	}
	heads(&b, "users told to wait (and who gave up), with the guard", "median wait", "longest")
	for _, k := range weeks {
		if !k.only {
			fmt.Fprintf(&b, "| %s | %s |\n", k.name, k.with.costs())
		}
	}
	heads(&b, "the same, with challenges", "median wait", "longest")
	for _, k := range weeks {
		fmt.Fprintf(&b, "| %s | %s |\n", k.name, k.challenged.costs())
	}
	heads(&b, "users who solved a challenge", "challenges solved by attackers", "alarm on (how often)")
	for _, k := range weeks {
		fmt.Fprintf(&b, "| %s | %s |\n", k.name, k.challenged.solved())
	}
	return b.String()
}

// heads begins a table with a column for each group, and others after these.
func heads(b *strings.Builder, first string, last ...string) {
	all := slices.Concat([]string{first}, who[:], last)
	fmt.Fprintf(b, "\n| %s |\n|---|%s\n", strings.Join(all, " | "), strings.Repeat("---:|", len(all)-1))
}

// got is what the attackers of a run got, together.
func (w *world) got() string {
	all := w.gains()
	return strings.Join([]string{number(float64(all.total) / float64(hours)), number(float64(all.worst)), number(float64(all.hourly)), number(float64(all.account))}, " | ")
}

// gains are the passwords tried: in all, in the worst hour, and on one account in its worst hour and in all.
type gains struct{ total, worst, hourly, account int }

func (w *world) gains() (g gains) {
	for hour := range hours {
		n := 0
		for _, a := range w.attackers {
			n += a.tried[hour]
		}
		g.total, g.worst = g.total+n, max(g.worst, n)
	}
	for _, a := range w.attackers {
		for _, on := range a.accounts.all {
			g.hourly, g.account = max(g.hourly, on.worst), max(g.account, on.tried)
		}
	}
	return g
}

var who = [groups]string{
	own: "unknown device", shared: "unknown device, in the office", known: "known device",
	ownerUnknown: "owner of the one account, unknown device", ownerKnown: "the same, known device",
}

// costs is what became of the logins of each group, and how long those took that had to wait and got in.
func (w *world) costs() string {
	var cells []string
	var waits []time.Duration
	for _, t := range w.tallies {
		cells, waits = append(cells, t.String()), append(waits, t.waits...)
	}
	if len(waits) == 0 {
		return strings.Join(append(cells, "–", "–"), " | ")
	}
	slices.Sort(waits)
	return strings.Join(append(cells, brief(waits[len(waits)/2]), brief(waits[len(waits)-1])), " | ")
}

// solved is who had to solve challenges, how many attackers solved, and what became of the alarm.
func (w *world) solved() string {
	var cells []string
	for _, t := range w.tallies {
		cells = append(cells, t.percent(t.solved))
	}
	n := 0
	for _, a := range w.attackers {
		n += a.solutions
	}
	return strings.Join(append(cells, number(float64(n)), w.alarm()), " | ")
}

// alarm is how much of the week the alarm was on, and how often it went on.
func (w *world) alarm() string {
	if len(w.alarms) == 0 {
		return "0"
	}
	return fmt.Sprintf("%.1f %% (%d)", 100*w.alarmed().Hours()/length.Hours(), (len(w.alarms)+1)/2)
}

// String is how many were told to wait, and of all how many gave up.
func (t tally) String() string {
	if t.gaveUp == 0 {
		return t.percent(len(t.waits))
	}
	return fmt.Sprintf("%s (%s)", t.percent(len(t.waits)+t.gaveUp), t.percent(t.gaveUp))
}

func (t tally) percent(n int) string {
	switch n {
	case 0:
		return "0"
	case t.logins:
		return "all"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(t.logins))
}

// brief is a wait as people say it.
func brief(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}

// number has commas between thousands, and a decimal only if it is small.
func number(x float64) string {
	if x < 10 && x != float64(int(x)) {
		return fmt.Sprintf("%.1f", x)
	}
	s := fmt.Sprintf("%.0f", x)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
