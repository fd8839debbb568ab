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

// head returns a table that shows the guard, the account and the time.
func (a *accountState) head() string {
	var b strings.Builder
	account := logs.Shown(a.Account)
	if a.Address != "" {
		account += " from " + a.Address
	}
	output.Table(&b, 0, [][]string{
		{"guard", a.Guard + " on " + a.Redis},
		{"account", account},
		{"time", a.At.Format(time.DateTime) + " UTC, by the clock of Redis"},
	})
	return b.String()
}

// body returns the budgets of the account and, if it is denied, the reasons. If the guard has
// challenges, there are many limits, so a brief body shows only the tightest one of each budget.
func (a *accountState) body(screen output.Screen, brief bool) string {
	var b strings.Builder
	a.writeBudgets(&b, screen, brief && a.Challenge != nil)
	a.writeWhy(&b, screen)
	a.writeNotes(&b)
	return b.String()
}

// headline returns a sentence that states the decision. It ends a report.
func (a *accountState) headline() string {
	if !a.Allowed {
		return "DENIED; the next attempt is allowed " + formatIn(a.RetryAfter, a.At)
	}
	if !a.Known {
		return "ALLOWED; no failure is counted on the account"
	}
	free := a.Budgets[0].free()
	for _, b := range a.Budgets {
		if !challenged(b.Budget) {
			free = min(free, b.free())
		}
	}
	return "ALLOWED; denied after " + strings.Replace(output.Count(int(free), "more failure"), "1 more", "one more", 1)
}

// next returns the arguments of the command to try next.
func (a *accountState) next() []string {
	flags := a.Budgets[0].flags
	if !a.Allowed {
		if resets := a.resets(); len(resets) > 0 {
			return resets[0]
		}
	}
	account, ok := shellWord(a.Account)
	guard, named := shellWord(a.Guard)
	words := []string{"inspect", "--login"}
	if a.Challenge != nil {
		words = append(words, "--challenged")
	}
	words = append(words, flags...)
	switch {
	case !ok || !named || !a.Known || !a.Default:
		return []string{"help", "inspect"}
	case a.Address == "":
		return append(words, guard, account, "ADDRESS")
	}
	return append(words, guard, account, a.Address, "--web")
}

// resets returns the commands that reset those budgets that deny.
func (a *accountState) resets() (commands [][]string) {
	for _, b := range a.Budgets {
		event, ok := shellWord(b.Event)
		name, named := shellWord(b.Limiter)
		if !b.Allowed && ok && named {
			commands = append(commands, slices.Concat([]string{"reset"}, b.flags, []string{name, event}))
		}
	}
	return commands
}

// writeWhy writes why an attempt is denied, whether a challenge would help, and which commands end
// the denial.
func (a *accountState) writeWhy(b *strings.Builder, screen output.Screen) {
	if !a.Allowed || a.Challenge != nil {
		b.WriteString("\n")
	}
	for _, r := range a.Why {
		b.WriteString(screen.Bad("denied by "+string(r.Budget)) + ": " + r.Text + "\n")
	}
	if a.Challenge != nil {
		b.WriteString(screen.Wrap(a.challengeText()) + "\n")
	}
	if a.Allowed {
		return
	}
	if resets := a.resets(); len(resets) > 1 {
		b.WriteString("to forget all of these failures, also:\n")
		for _, words := range resets[1:] {
			b.WriteString(screen.Command("  slidegate", words) + "\n")
		}
	}
}

// challengeText returns a sentence that says whether the user could log in now after solving a
// challenge. For a guard without challenges, it returns "".
func (a *accountState) challengeText() string {
	switch {
	case a.Challenge == nil:
		return ""
	case *a.Challenge:
		return "A challenge would let the user in now."
	}
	var names []string
	var longest int64
	for _, b := range a.denyChallenged() {
		names, longest = append(names, string(b.Budget)), max(longest, b.RetryAfter)
	}
	return fmt.Sprintf("A challenge would not let the user in: denied by %s for %s.", strings.Join(names, " and "), formatWait(longest))
}

// shellWord quotes a string as a single shell word. ok is false if a terminal cannot display it, or
// if a command would mistake it for a flag.
func shellWord(text string) (word string, ok bool) {
	return logs.ShellQuoted(text), logs.Shown(text) == text && text[0] != '-'
}

// writeBudgets writes a table of the limits. If tightest is set, the table shows only the tightest
// limit of each budget.
func (a *accountState) writeBudgets(b *strings.Builder, screen output.Screen, tightest bool) {
	gaugeWidth := a.gaugeWidth()
	limit := "limit"
	if tightest {
		limit = "tightest"
	}
	rows := [][]string{{"budget", limit, "used", strings.Repeat(" ", gaugeWidth), "free", "back"}}
	var gauges []string
	for _, budget := range a.Budgets {
		name := string(budget.Budget)
		limits := budget.Limits
		if tightest {
			limits = []*section{budget.tightest()}
		}
		for _, sec := range limits {
			rows = append(rows, append([]string{name}, sec.row(gaugeWidth)...))
			gauges = append(gauges, sec.gauge(screen, gaugeWidth))
			name = ""
		}
	}
	var table strings.Builder
	output.Table(&table, 0, rows)
	header, body, _ := strings.Cut(table.String(), "\n")
	b.WriteString(screen.Faint(header) + "\n")
	for i, line := range slices.Collect(strings.Lines(body)) { // the table would count colours as text
		plain := rows[i+1][3]
		b.WriteString(strings.TrimRight(strings.Replace(line, plain, gauges[i], 1), " \n") + "\n")
	}
}

// gaugeWidth returns the width of a gauge in columns. It is narrower if the guard has
// challenges, because the names of challenged budgets need more room.
func (a *accountState) gaugeWidth() int {
	if a.Challenge != nil {
		return 8
	}
	return 16
}

// row returns the table row of a limit: the limit, the units used, a gauge, the free units, and
// when the next units come back.
func (sec *section) row(gaugeWidth int) []string {
	back := ""
	if sec.Used > 0 {
		back = fmt.Sprintf("%d in %s", sec.NextUnits, formatWait(sec.NextAfter))
	}
	used := strconv.FormatInt(sec.Used, 10)
	if sec.Bound == nil {
		return []string{"MAX/" + formatDuration(sec.per), used, "", "?", back}
	}
	return []string{sec.Limit, used, sec.gauge(output.Screen{}, gaugeWidth), orNone(sec.Remaining), back}
}

// writeNotes writes hints about wrong arguments, and says what the report omits.
func (a *accountState) writeNotes(b *strings.Builder) {
	if !a.Known {
		b.WriteString("\nNo failures are counted for this account: nobody has failed to log in to it\nrecently, or the service spells it differently (Alice and alice are two\naccounts). Check NAME and --secret-file too.\n")
	}
	for _, budget := range a.Budgets {
		if more := budget.unnamedLimits(); len(more) > 0 {
			fmt.Fprintf(b, "\nMore limits are stored for %s, and may deny too; add\n--budget %s=%s.\n", budget.Budget, budget.Budget, strings.Join(more, ","))
		}
	}
	if a.Address == "" {
		b.WriteString("\nAn address can be denied too; add it to see its failures.\n")
	}
	if a.Default {
		b.WriteString("\nThe limits are the defaults of login; name others as in --budget pair=5/1m.\n")
	}
	if a.Challenge != nil {
		b.WriteString("\nNot shown: known devices, and the alarm (while on, an address may fail twice).\n")
		return
	}
	b.WriteString("\nA known device is denied only by total, or by its own budget and another.\n")
}
