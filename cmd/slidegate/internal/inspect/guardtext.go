package inspect

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

// text returns the state for a terminal. Each of its lines fits into 80 columns, unless a name is
// long.
func (a *accountState) text(int) string {
	var b strings.Builder
	a.writeHead(&b)
	a.writeWhy(&b)
	a.writeBudgets(&b)
	a.writeNotes(&b)
	return b.String()
}

func (a *accountState) writeHead(b *strings.Builder) {
	rows := [][]string{{"guard", a.Guard + " on " + a.Redis}, {"account", logs.Shown(a.Account)}}
	if a.Address != "" {
		rows = append(rows, []string{"address", a.Address})
	}
	output.Table(b, 0, append(rows,
		[]string{"time", a.At.Format(time.DateTime) + " UTC, by the clock of Redis"},
		[]string{"now", a.verdict()}))
}

// verdict returns what somebody wants to know first.
func (a *accountState) verdict() string {
	if !a.Allowed {
		return "DENIED; the next attempt is allowed " + in(a.RetryAfter, a.At)
	}
	if !a.Known {
		return "ALLOWED, as nothing is known of the account: see below"
	}
	free := a.Budgets[0].free()
	for _, b := range a.Budgets {
		free = min(free, b.free())
	}
	return "ALLOWED; denied after " + strings.Replace(output.Count(int(free), "more failure"), "1 more", "one more", 1)
}

// writeWhy explains a denial, and how to end it.
func (a *accountState) writeWhy(b *strings.Builder) {
	if a.Allowed {
		return
	}
	b.WriteString("\nWhy the account is kept out, as each of these denies:\n")
	var reset []string
	for _, r := range a.Why {
		fmt.Fprintf(b, "  %s: %s.\n    %s allows the next %s.\n", r.Budget, r.Text, r.Limit, in(r.RetryAfter, r.section.now))
		if word, ok := shellWord(r.event); ok {
			reset = append(reset, fmt.Sprintf("  slidegate reset --secret-file FILE %s.%s %s\n", a.Guard, r.Budget, word))
		}
	}
	if len(reset) > 0 {
		b.WriteString("To forget these failures now:\n" + strings.Join(reset, ""))
	}
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

func (a *accountState) writeBudgets(b *strings.Builder) {
	rows := [][]string{{"budget", "limit", "used", "free", "back"}}
	for _, budget := range a.Budgets {
		name := string(budget.Budget)
		for _, sec := range budget.Limits {
			rows = append(rows, append([]string{name}, sec.row()...))
			name = ""
		}
	}
	var table strings.Builder
	output.Table(&table, 0, rows)
	b.WriteString("\n")
	for line := range strings.Lines(table.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

// row returns the limit, the units used and free, and when the next come back.
func (sec *section) row() []string {
	back := ""
	if sec.Used > 0 {
		back = fmt.Sprintf("%d %s", sec.NextUnits, in(sec.NextAfter, sec.now))
	}
	if sec.Bound == nil {
		return []string{"MAX/" + span(sec.per), strconv.FormatInt(sec.Used, 10), "?", back}
	}
	return []string{sec.Limit, strconv.FormatInt(sec.Used, 10), orNone(sec.Remaining), back}
}

// writeNotes says what may be wrong, and what was not looked at.
func (a *accountState) writeNotes(b *strings.Builder) {
	if !a.Known {
		b.WriteString("\nNo failure is counted on this account. Nobody failed on it lately, or the service\nspells it in another way (Alice and alice are two accounts), or NAME or\n--secret-file are others there.\n")
	}
	for _, budget := range a.Budgets {
		if more := budget.unnamed(); len(more) > 0 {
			fmt.Fprintf(b, "\nMore is stored for %s, and may deny, too; add --budget %s=%s.\n", budget.Budget, budget.Budget, strings.Join(more, ","))
		}
	}
	if a.Address == "" {
		b.WriteString("\nAn address can be denied, too; add it to see its failures.\n")
	}
	if a.Default {
		b.WriteString("\nThe limits are the defaults of login. If the service has others, name them by\n--budget, as in --budget account=10/10m,20/1h.\n")
	}
	b.WriteString("\nA known device is kept out only if total denies, or if the budget of the device\nand one of the others do.\n")
}
