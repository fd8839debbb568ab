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

// body shows the budgets of the account, and why it is denied if it is. With challenges there are so
// many that a brief one shows a single limit of each.
func (a *accountState) body(screen output.Screen, brief bool) string {
	var b strings.Builder
	a.writeBudgets(&b, screen, brief && a.Challenge != nil)
	a.writeWhy(&b, screen)
	a.writeNotes(&b)
	return b.String()
}

// verdict returns what somebody wants to know first.
func (a *accountState) verdict() string {
	if !a.Allowed {
		return "DENIED; the next attempt is allowed " + in(a.RetryAfter, a.At)
	}
	if !a.Known {
		return "ALLOWED, as nothing is known of the account"
	}
	free := a.Budgets[0].free()
	for _, b := range a.Budgets {
		if !challenged(b.Budget) {
			free = min(free, b.free())
		}
	}
	return "ALLOWED; denied after " + strings.Replace(output.Count(int(free), "more failure"), "1 more", "one more", 1)
}

// next returns the words of a command to try.
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
	return append(words, "--watch", guard, account, a.Address)
}

// resets returns the commands that forget the failures for which budgets deny.
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

// writeWhy explains a denial, says whether a challenge would help, and how to end the denial.
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

// challengeText says whether a challenge would let the user in now, or nothing without challenges.
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
	return fmt.Sprintf("A challenge would not let the user in: denied by %s for %s.", strings.Join(names, " and "), wait(longest))
}

// shellWord returns a text as one word of a shell, unless a terminal cannot show it.
func shellWord(text string) (word string, ok bool) {
	if logs.Shown(text) != text {
		return "", false
	}
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:/@_+-") == "" && text[0] != '-' {
		return text, true
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'", text[0] != '-'
}

// writeBudgets writes a table of the limits, or of the tightest one of each budget.
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
	for i, line := range slices.Collect(strings.Lines(body)) { // colours would be columns of the table
		plain := rows[i+1][3]
		b.WriteString(strings.TrimRight(strings.Replace(line, plain, gauges[i], 1), " \n") + "\n")
	}
}

// gaugeWidth returns how many columns a gauge has. The names of challenged budgets need more room.
func (a *accountState) gaugeWidth() int {
	if a.Challenge != nil {
		return 8
	}
	return 16
}

// row returns the limit, the units used, how full it is, the units free, and when the next come back.
func (sec *section) row(gaugeWidth int) []string {
	back := ""
	if sec.Used > 0 {
		back = fmt.Sprintf("%d in %s", sec.NextUnits, wait(sec.NextAfter))
	}
	used := strconv.FormatInt(sec.Used, 10)
	if sec.Bound == nil {
		return []string{"MAX/" + span(sec.per), used, "", "?", back}
	}
	return []string{sec.Limit, used, sec.gauge(output.Screen{}, gaugeWidth), orNone(sec.Remaining), back}
}

// writeNotes says what may be wrong, and what was not looked at.
func (a *accountState) writeNotes(b *strings.Builder) {
	if !a.Known {
		b.WriteString("\nNo failure is counted on this account. Nobody failed on it lately, or the\nservice spells it in another way (Alice and alice are two accounts), or NAME or\n--secret-file are others there.\n")
	}
	for _, budget := range a.Budgets {
		if more := budget.unnamed(); len(more) > 0 {
			fmt.Fprintf(b, "\nMore is stored for %s, and may deny, too; add\n--budget %s=%s.\n", budget.Budget, budget.Budget, strings.Join(more, ","))
		}
	}
	if a.Address == "" {
		b.WriteString("\nAn address can be denied, too; add it to see its failures.\n")
	}
	if a.Default {
		b.WriteString("\nThe limits are the defaults of login; others are named by --budget pair=5/1m.\n")
	}
	if a.Challenge != nil {
		b.WriteString("\nNot shown: known devices, and the alarm (while on, an address may fail twice).\n")
		return
	}
	b.WriteString("\nA known device is denied only by total, or by its own budget and another.\n")
}
