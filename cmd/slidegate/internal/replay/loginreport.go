package replay

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/slidegate/slidegate/cmd/slidegate/charts"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/login"
)

// LoginReport represents the outcome of a replay with the login guard. --json prints it. As in
// Report, delayed attempts are called denied.
type LoginReport struct {
	logReport
	NoAccount       int            `json:"skipped_without_account"` // attempts on which a guard cannot decide
	NoAddress       int            `json:"skipped_without_address"`
	Allowed         int            `json:"allowed"` // attempts whose password was checked
	Denied          int            `json:"denied"`
	DeniedSucceeded int            `json:"denied_succeeded"` // denied attempts that succeeded according to the log
	waitReport                     // the waits of denied attempts
	Budgets         []budgetReport `json:"budgets"` // in the order in which the guard checks them
	Addresses       subjectReport  `json:"addresses"`
	Accounts        subjectReport  `json:"accounts"`
	Pairs           subjectReport  `json:"pairs"`
	ByMistake       []Event        `json:"denied_though_succeeded"` // the pairs with the most denied successes
	MoreByMistake   int            `json:"denied_though_succeeded_more"`
	Picture         string         `json:"picture,omitempty"`

	timeline *charts.Timeline
	waits    *charts.Waits
}

type budgetReport struct {
	Budget    login.Budget `json:"budget"`
	Limits    []string     `json:"limits"`
	Denied    int          `json:"denied"` // denied by this budget and by none before it
	Succeeded int          `json:"denied_succeeded"`
	Longest   int64        `json:"longest_wait_ms"`
}

// subjectReport covers the addresses, the accounts or the pairs. A pair is an address and an
// account, separated by a space.
type subjectReport struct {
	Count     int     `json:"count"`
	Denied    int     `json:"denied"`    // subjects with at least one denied attempt
	Estimated bool    `json:"estimated"` // there were too many subjects to keep, so their numbers are accurate to about 2 %
	Top       []Event `json:"denied_most"`
	More      int     `json:"denied_more"`            // denied subjects that denied_most does not list
	Lost      int     `json:"denials_lost,omitempty"` // if Estimated is set, how many further denials a subject may have had, long before or after those counted
}

func (r *guardReplay) report(log logReport) *LoginReport {
	total := r.total()
	p := &LoginReport{
		logReport: log, NoAccount: r.noAccount, NoAddress: r.noAddress,
		Allowed: r.allowed, Denied: total.denied, DeniedSucceeded: total.succeeded, waitReport: waited(r.waits),
		Addresses: r.subjects[byAddress].report(), Accounts: r.subjects[byAccount].report(), Pairs: r.subjects[byPair].report(),
		timeline: r.timeline, waits: r.waits,
	}
	for _, b := range r.budgets {
		p.Budgets = append(p.Budgets, budgetReport{b.budget, b.limits.Texts(), b.denied, b.succeeded, b.longest.Milliseconds()})
	}
	p.ByMistake, p.MoreByMistake = deniedByMistake(r.subjects[byPair].deniedBy(0))
	return p
}

func (s *subjects) report() (p subjectReport) {
	all, denied := s.count()
	p.Count, p.Denied = all, denied[0]
	if s.lost >= 0 {
		p.Estimated, p.Lost = true, s.lost
	}
	p.Top, p.More = topBy(s.deniedBy(0), func(e Event) int { return e.Denied })
	return p
}

// print writes the report as text, or as one JSON object.
func (p *LoginReport) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return output.JSON(out, p)
	}
	screen := output.ScreenOf(out)
	_, err := io.WriteString(out, screen.Fit(topEvents, func(rows int) string { return p.text(screen, rows) }))
	return err
}

// text returns the report. Each of its lists has at most rows rows.
func (p *LoginReport) text(screen output.Screen, rows int) string {
	var b strings.Builder
	p.printHead(&b)
	p.printBudgets(&b, screen)
	var lists []eventList
	for _, s := range p.kinds() {
		lists = append(lists, eventList{func(name string) string { return fmt.Sprintf("%-7s  %s", s.one, s.show(name)) }, s.Top})
	}
	p.printEvents(&b, screen, "delayed", rows, lists, eventList{printablePair, p.ByMistake})
	p.printNotes(&b, screen)
	for _, s := range p.kinds() {
		if s.Estimated {
			printTooMany(&b, screen, s.many, s.one, s.Lost)
		}
	}
	printPicture(&b, screen, p.Picture)
	screen.End(&b, p.verdict(), p.next()...)
	return b.String()
}

// kind is a list of subjects, with the words for their kind.
type kind struct {
	one, many string
	show      func(string) string
	*subjectReport
}

func (p *LoginReport) kinds() []kind {
	return []kind{
		{"address", "addresses", printable, &p.Addresses},
		{"account", "accounts", printable, &p.Accounts},
		{"pair", "pairs", printablePair, &p.Pairs},
	}
}

// printablePair makes the address and the account printable separately. The address contains no
// space.
func printablePair(pair string) string {
	address, account, _ := strings.Cut(pair, " ")
	return printable(address) + " " + printable(account)
}

func (p *LoginReport) printHead(b *strings.Builder) {
	p.printSample(b, "slidegate replay --login")
	rows := [][]string{{"log", p.source() + ", " + p.lines()}, {"period", p.period()}, {"attempts", p.attempts()}}
	output.Table(b, 0, append(rows, p.outcomeRows()...))
}

// outcomeRows returns table rows that say what the guard did.
func (p *LoginReport) outcomeRows() (rows [][]string) {
	decided := p.Allowed + p.Denied
	if p.NoAccount+p.NoAddress > 0 {
		rows = append(rows, []string{"skipped", fmt.Sprintf("%d without an account, %d without an address", p.NoAccount, p.NoAddress)})
	}
	rows = append(rows, []string{"checked", share(p.Allowed, decided)},
		[]string{"delayed", share(p.Denied, decided) + "; by mistake " + p.mistakes(p.DeniedSucceeded)},
		[]string{"affected", p.affected()})
	if p.Denied > 0 {
		rows = append(rows, []string{"waits", p.spans()})
	}
	return rows
}

// affected says how many subjects of each kind there are, and how many of them are delayed.
func (p *LoginReport) affected() string {
	var counts []string
	for _, k := range p.kinds() {
		counts = append(counts, fmt.Sprintf("%s of %s %s", about(k.Estimated, strconv.Itoa(k.Denied)), about(k.Estimated, strconv.Itoa(k.Count)), k.many))
	}
	return strings.Join(counts, ", ")
}

func (l budgetReport) longest() string {
	if l.Denied == 0 {
		return "-"
	}
	return output.Duration(l.Longest)
}

// printBudgets prints how many attempts each budget delayed. An attempt counts for the first
// budget, from the top, that denies it.
func (p *LoginReport) printBudgets(b *strings.Builder, screen output.Screen) {
	rows := [][]string{{"delayed", "by mistake", "longest wait", "  by budget, with its limits"}}
	for _, l := range p.Budgets {
		rows = append(rows, []string{
			strconv.Itoa(l.Denied), strconv.Itoa(l.Succeeded), l.longest(), fmt.Sprintf("  %-7s  %s", l.Budget, strings.Join(l.Limits, ", ")),
		})
	}
	var table strings.Builder
	output.Table(&table, tabwriter.AlignRight, rows)
	header, body, _ := strings.Cut(table.String(), "\n")
	b.WriteString("\n" + screen.Faint(header) + "\n" + body)
}
