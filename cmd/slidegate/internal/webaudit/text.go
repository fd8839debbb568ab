package webaudit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/audit"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/internal/clock"
)

// row is a row of a report's table.
type row struct{ name, value string }

// rows returns the report's table.
func (r *Report) rows() []row {
	var most []string
	for _, c := range r.Claims {
		most = append(most, fmt.Sprintf("%d in %v (%.2f × the claim)", c.Most, c.Limit.Per, float64(c.Most)/float64(c.Limit.Max)))
	}
	open, untested := 0, 0
	for _, w := range r.Ways {
		switch {
		case w.Open:
			open++
		case strings.HasPrefix(w.Outcome, "not tested"):
			untested++
		}
	}
	rows := []row{
		{"requests", fmt.Sprintf("%d in %s, status %s", r.Requests, formatSeconds(r.Took), r.statuses())},
		{"attempts", fmt.Sprintf("%d allowed, %d denied, %d without a response; not counting ways around the limit", r.Allowed, r.Denied, r.Unknown)},
		{"most allowed", strings.Join(most, ", ")},
		{"denied without need", fmt.Sprint(r.Needless)},
		{"waits", fmt.Sprintf("%d reported: %d too short, %d too long", r.Waits.Reported, r.Waits.TooShort, r.Waits.TooLong)},
		{"ways around", fmt.Sprintf("%d open of %d, %d not tested", open, len(r.Ways), untested)},
	}
	return rows
}

// statuses lists the status codes of the responses, with their numbers.
func (r *Report) statuses() string {
	var codes []int
	for code := range r.Status {
		codes = append(codes, code)
	}
	slices.Sort(codes)
	var texts []string
	for _, code := range codes {
		texts = append(texts, fmt.Sprintf("%d (%d×)", code, r.Status[code]))
	}
	return strings.Join(texts, ", ")
}

// headline summarizes the report in a sentence.
func (r *Report) headline() string {
	if len(r.Findings) == 0 {
		return "nothing found: no answer proves that a claim is broken"
	}
	var kinds []string
	for _, f := range r.Findings {
		if !slices.Contains(kinds, string(f.Kind)) {
			kinds = append(kinds, string(f.Kind))
		}
	}
	return output.Count(len(r.Findings), "finding") + ": " + strings.Join(kinds, ", ")
}

// claimed formats the claims as text.
func (r *Report) claimed() string {
	var all []string
	for _, c := range r.Claims {
		all = append(all, c.Limit.String())
	}
	return strings.Join(all, ", ")
}

// text returns the report for a terminal. It ends in a command to try next, with the given
// arguments.
func (r *Report) text(screen output.Screen, next []string) string {
	b := wrappedText{width: screen.Width}
	b.wrap("", "", fmt.Sprintf("Audit of %s under %s", r.URL, r.claimed()))
	b.WriteString("\n")
	for _, row := range r.rows() {
		b.wrap(fmt.Sprintf("%-21s", row.name), strings.Repeat(" ", 21), row.value)
	}
	for _, f := range r.Findings {
		b.WriteString("\n")
		b.wrap("* ", "  ", f.Title+" ["+string(f.Kind)+"]")
		for _, part := range parts(f) {
			b.wrap(fmt.Sprintf("  %-8s", part.name), strings.Repeat(" ", 10), part.value)
		}
	}
	if len(r.NotTested) > 0 {
		b.WriteString("\nNot tested:\n\n")
	}
	for _, text := range r.NotTested {
		b.wrap("- ", "  ", text)
	}
	screen.End(&b.Builder, r.headline(), next...)
	return b.String()
}

// parts returns the parts of a finding as table rows.
func parts(f audit.Finding) []row {
	return []row{{"seen", f.Seen}, {"means", f.Means}, {"repair", f.Repair}}
}

// wrappedText builds text whose lines have at most width columns.
type wrappedText struct {
	strings.Builder
	width int
}

// wrap appends text. It indents the first line by first, and the others by rest. It breaks words
// that are too long.
func (b *wrappedText) wrap(first, rest, text string) {
	line, begin := first, len([]rune(first))
	for _, word := range strings.Fields(text) {
		runes := []rune(word)
		if room := b.width - len([]rune(line)) - 1; len([]rune(line)) > begin && len(runes) > room {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, begin = rest, len([]rune(rest))
		}
		if len([]rune(line)) > begin {
			line += " "
		}
		for room := b.width - len([]rune(line)); len(runes) > room; room = b.width - len([]rune(line)) {
			b.WriteString(line + string(runes[:room]) + "\n")
			runes, line, begin = runes[room:], rest, len([]rune(rest))
		}
		line += string(runes)
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// markdown returns the report as a Markdown page.
func (r *Report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Audit of %s under %s\n\n| | |\n|---|---|\n", cell(r.URL), r.claimed())
	for _, row := range r.rows() {
		fmt.Fprintf(&b, "| %s | %s |\n", row.name, cell(row.value))
	}
	fmt.Fprintf(&b, "\n%s\n", sentence(r.headline()))
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "\n## %s\n\n", f.Title)
		for _, part := range parts(f) {
			fmt.Fprintf(&b, "- **%s:** %s\n", part.name, cell(part.value))
		}
	}
	b.WriteString("\n## Ways around the limit\n\n| | way | outcome |\n|---|---|---|\n")
	for _, way := range r.Ways {
		fmt.Fprintf(&b, "| %s | `%s` | %s |\n", way.Kind, strings.ReplaceAll(cell(way.Name), "`", "'"), way.Outcome)
	}
	b.WriteString("\n## Not tested\n\n")
	for _, text := range r.NotTested {
		fmt.Fprintf(&b, "- %s\n", cell(text))
	}
	return b.String()
}

// sentence returns a headline as a sentence.
func sentence(headline string) string { return strings.ToUpper(headline[:1]) + headline[1:] + "." }

// cell returns a text escaped for a table.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;").Replace(text)
}

// formatSeconds returns a duration in whole seconds.
func formatSeconds(d time.Duration) string { return clock.Format(d.Round(time.Second)) }
