package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/charts"
)

// tables returns the output of the program: what the attackers achieved, and what it cost the
// users.
func tables(weeks []week) string {
	var b strings.Builder
	b.WriteString("| passwords tried | guard | an hour, mean | worst hour | on one account, worst hour | on one account, in the week |\n|---|---|---:|---:|---:|---:|\n")
	for _, k := range weeks {
		switch {
		case k.only:
			fmt.Fprintf(&b, "| %s | with challenges | %s |\n", k.name, k.challenged.gainCells())
		case len(k.with.attackers) > 0:
			fmt.Fprintf(&b, "| %s | no | %s |\n| | yes | %s |\n| | with challenges | %s |\n",
				k.name, k.without.gainCells(), k.with.gainCells(), k.challenged.gainCells())
		}
	}
	writeHead(&b, "users who had to wait (and who gave up), with the guard", "median wait", "longest")
	for _, k := range weeks {
		if !k.only {
			fmt.Fprintf(&b, "| %s | %s |\n", k.name, k.with.costCells())
		}
	}
	writeHead(&b, "the same, with challenges", "median wait", "longest")
	for _, k := range weeks {
		fmt.Fprintf(&b, "| %s | %s |\n", k.name, k.challenged.costCells())
	}
	writeHead(&b, "users who solved a challenge", "challenges solved by attackers", "alarm on (how often)")
	for _, k := range weeks {
		fmt.Fprintf(&b, "| %s | %s |\n", k.name, k.challenged.challengeCells())
	}
	return b.String()
}

// writeHead writes the head of a table, with a column for each group, followed by the columns in
// last.
func writeHead(b *strings.Builder, first string, last ...string) {
	all := slices.Concat([]string{first}, who[:], last)
	fmt.Fprintf(b, "\n| %s |\n|---|%s\n", strings.Join(all, " | "), strings.Repeat("---:|", len(all)-1))
}

// gainCells returns table cells with the number of passwords that the attackers of a run tried.
func (w *world) gainCells() string {
	all := w.gains()
	mean := float64(all.total) / float64(hours)
	return strings.Join([]string{number(mean), number(float64(all.worst)), number(float64(all.hourly)), number(float64(all.account))}, " | ")
}

// gains holds numbers of passwords tried: in total, in the worst hour, on one account in its worst
// hour, and on one account in total.
type gains struct{ total, worst, hourly, account int }

func (w *world) gains() (g gains) {
	for hour := range hours {
		n := w.triedIn(hour)
		g.total, g.worst = g.total+n, max(g.worst, n)
	}
	for _, a := range w.attackers {
		for _, on := range a.accounts.all {
			g.hourly, g.account = max(g.hourly, on.worst), max(g.account, on.tried)
		}
	}
	return g
}

// triedIn returns how many passwords the attackers tried in total during the given hour.
func (w *world) triedIn(hour int) (n int) {
	for _, a := range w.attackers {
		n += a.tried[hour]
	}
	return n
}

var who = [groups]string{
	own: "unknown device", shared: "unknown device, in the office", known: "known device",
	ownerUnknown: "owner of the one account, unknown device", ownerKnown: "the same, known device",
}

// costCells returns table cells with the share of each group that had to wait, and the median and
// the maximum wait of users who got in later.
func (w *world) costCells() string {
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

// challengeCells returns table cells that say who had to solve challenges, how many challenges the
// attackers solved, and for how long the alarm was on.
func (w *world) challengeCells() string {
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

// alarm returns the share of the week during which the alarm was on, and how often it switched on.
func (w *world) alarm() string {
	if len(w.alarms) == 0 {
		return "0"
	}
	return fmt.Sprintf("%.1f %% (%d)", 100*w.alarmed().Hours()/length.Hours(), (len(w.alarms)+1)/2)
}

// String returns the share of logins that had to wait, and the share of all logins that gave up.
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

// brief formats a wait, rounded to seconds or minutes.
func brief(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}

// number formats x with commas between thousands. Only small numbers have a decimal place.
func number(x float64) string {
	if x < 10 && x != float64(int(x)) {
		return fmt.Sprintf("%.1f", x)
	}
	return charts.Thousands(int(math.Round(x)))
}
