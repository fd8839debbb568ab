package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/window"
)

// end returns the verdict, and the words of a command to try next.
func (p *Report) end() (verdict string, next []string) {
	if len(p.Sets) > 1 {
		best := p.best()
		return p.verdict(best), p.more(best)
	}
	s := p.Sets[0]
	given := strings.Join(s.limitTexts(), ",")
	if p.Estimator == "window" {
		return p.denied(s), p.again("--compare "+given, "--compare "+twice(s.set))
	}
	return p.denied(s), p.again("--limit " + given)
}

// twice returns limits with twice the Max, as a value of --compare.
func twice(limits flags.Limits) string {
	const most = 1 << 53 // the largest Max
	var doubled []string
	for _, l := range limits {
		doubled = append(doubled, window.Limit{Max: min(2*l.Max, most), Per: l.Per}.Label())
	}
	return strings.Join(doubled, ",")
}

// denied returns how many attempts a set denies and, if the log has results, how many users it
// denies by mistake.
func (p *Report) denied(s *result) string {
	return fmt.Sprintf("%d of %d denied", s.Denied, p.Attempts) + p.byMistake(s.ByMistake, s.MoreByMistake)
}

// byMistake returns how many users were denied by mistake. It returns "" if the log has no results.
func (p *logReport) byMistake(events []Event, more int) string {
	switch n := len(events) + more; {
	case p.WithResult == 0:
		return ""
	case n == 0:
		return "; none by mistake"
	case n == 1:
		return "; 1 user by mistake"
	default:
		return fmt.Sprintf("; %d users by mistake", n)
	}
}

// best returns the set that denies the most attempts among those that deny the fewest by mistake.
func (p *Report) best() *result {
	return slices.MaxFunc(p.Sets, func(a, b *result) int {
		return cmp.Or(cmp.Compare(b.DeniedSucceeded, a.DeniedSucceeded), cmp.Compare(a.Denied, b.Denied))
	})
}

// verdict returns what the best of several sets denies.
func (p *Report) verdict(best *result) string {
	which := "most denied"
	if p.WithResult > 0 {
		which = "fewest mistakes"
	}
	return fmt.Sprintf("%s under %s: %s", which, best.limits(), p.denied(best))
}

// more returns the words of a command: the same comparison with a chart or, if it already had one,
// a replay under the best set, which shows who is denied.
func (p *Report) more(best *result) []string {
	var words []string
	if p.Estimator != "window" {
		words = []string{"--estimator " + p.Estimator}
	}
	if p.Picture != "" {
		return p.again(append(words, "--limit "+strings.Join(best.limitTexts(), ","))...)
	}
	for _, s := range p.Sets {
		words = append(words, "--compare "+strings.Join(s.limitTexts(), ","))
	}
	return p.again(append(words, p.picture("limits.svg"))...)
}

// picture returns the words that draw a chart, to a new file if the given one is a log.
func (p *logReport) picture(file string) string {
	for slices.ContainsFunc(p.reading, func(word string) bool { return strings.Contains(word, file) }) {
		file = "new-" + file
	}
	return "--picture " + file
}

// again returns the words of a command that replays the same log with other flags, or of one for
// help if a shell cannot repeat the name of the log.
func (p *logReport) again(words ...string) []string {
	if slices.ContainsFunc(p.Files, func(name string) bool { return logs.Shown(name) != name }) {
		return []string{"help", "replay"}
	}
	return slices.Concat([]string{"replay"}, words, p.reading)
}

// reading returns the flags and files that determine what is read, quoted for a shell.
func (c *Command) reading() (words []string) {
	flag := func(name string, value flags.Text) {
		if value != "" {
			words = append(words, name+" "+logs.ShellQuoted(string(value)))
		}
	}
	flag("--by", flags.Text(c.By.Text))
	flag("--time-field", c.TimeField)
	if c.TimeRegex.Regexp != nil {
		flag("--time-regex", flags.Text(c.TimeRegex.String()))
	}
	flag("--time-format", c.TimeFormat)
	if c.Sort {
		words = append(words, "--sort")
	}
	for _, name := range c.files() {
		if name != "-" && strings.HasPrefix(name, "-") {
			name = "./" + name
		}
		words = append(words, logs.ShellQuoted(name))
	}
	return words
}

// next returns the words of a command: the same replay with a chart or, if it already had one, one
// under limits.
func (p *LoginReport) next() []string {
	if p.Picture != "" {
		return p.again()
	}
	return p.again("--login", p.picture("logins.svg"))
}

// verdict returns how many attempts the guard delays, and how many users it delays by mistake.
func (p *LoginReport) verdict() string {
	return fmt.Sprintf("%d of %d delayed", p.Denied, p.Allowed+p.Denied) + p.byMistake(p.ByMistake, p.MoreByMistake)
}
