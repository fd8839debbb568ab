package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

// end returns the verdict, and the words of a command to try next.
func (p *Report) end() (verdict string, next []string) {
	if len(p.Sets) > 1 {
		return p.best(), p.more()
	}
	verdict = p.denied(p.Sets[0])
	if p.Estimator == "window" {
		return verdict, p.again("--suggest")
	}
	return verdict, p.again("--limit " + strings.Join(p.Sets[0].limitTexts(), ","))
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
func (p *Report) best() string {
	s := slices.MaxFunc(p.Sets, func(a, b *result) int {
		return cmp.Or(cmp.Compare(b.DeniedSucceeded, a.DeniedSucceeded), cmp.Compare(a.Denied, b.Denied))
	})
	which := "most denied"
	if p.WithResult > 0 {
		which = "fewest mistakes"
	}
	return fmt.Sprintf("%s under %s: %s", which, s.limits(), p.denied(s))
}

// more returns the words of a command: the same comparison with a chart or, if it already had one,
// a search for limits.
func (p *Report) more() []string {
	if p.Picture != "" {
		return p.again("--suggest")
	}
	var words []string
	for _, s := range p.Sets {
		words = append(words, "--compare "+strings.Join(s.limitTexts(), ","))
	}
	return p.again(append(words, "--picture limits.svg")...)
}

// again returns the words of a command that replays the same log with other flags.
func (p *logReport) again(words ...string) []string {
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
		words = append(words, logs.ShellQuoted(name))
	}
	return words
}

// verdict returns how many attempts the guard delays, and how many users it delays by mistake.
func (p *LoginReport) verdict() string {
	return fmt.Sprintf("%d of %d delayed", p.Denied, p.Allowed+p.Denied) + p.byMistake(p.ByMistake, p.MoreByMistake)
}

// end returns the verdict on the tightest proposal, and the words of a command that compares all
// proposals.
func (p *SuggestReport) end() (verdict string, next []string) {
	if len(p.Sets) == 0 {
		return "no limits are proposed: " + p.nothing(), p.again()
	}
	for _, s := range p.Sets {
		next = append(next, "--compare "+strings.Join(s.Limits.Texts(), ","))
	}
	s := p.Sets[len(p.Sets)-1]
	return fmt.Sprintf("%d of %s stopped by %s; %d of %d honest delayed",
		s.Stopped, output.Count(p.Attempts, "attempt"), strings.Join(s.Limits.Texts(), ", "), s.Delayed, p.Honest), p.again(next...)
}

// nothing explains why no limits are proposed.
func (p *SuggestReport) nothing() string {
	switch {
	case p.isShort():
		return "the log is too short; the shortest window that is tried is 1s"
	case !p.Attack:
		return "no attack is visible in this log"
	}
	return "none stops the attack without delaying more honest attempts"
}

// isShort reports whether the log is too short for any window.
func (p *SuggestReport) isShort() bool { return p.Period <= time.Second.Milliseconds() }
