package webaudit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/audit"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

// A row is a fact of a report.
type row struct{ name, value string }

// rows returns the facts of a report.
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
		{"requests", fmt.Sprintf("%d in %s, status %s", r.Requests, brief(r.Took), r.statuses())},
		{"attempts", fmt.Sprintf("%d admitted, %d denied, %d without an answer; ways not counted", r.Allowed, r.Denied, r.Unknown)},
		{"most admitted", strings.Join(most, ", ")},
		{"denied without need", fmt.Sprint(r.Needless)},
		{"waits", fmt.Sprintf("%d reported: %d too short, %d too long", r.Waits.Reported, r.Waits.Short, r.Waits.Long)},
		{"ways around", fmt.Sprintf("%d open of %d, %d not tested", open, len(r.Ways), untested)},
	}
	return rows
}

// statuses returns which status codes came, and how often.
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

// verdict returns the report in a sentence.
func (r *Report) verdict() string {
	if len(r.Findings) == 0 {
		return "nothing found: no answer proves that a claim is not kept"
	}
	var kinds []string
	for _, f := range r.Findings {
		if !slices.Contains(kinds, string(f.Kind)) {
			kinds = append(kinds, string(f.Kind))
		}
	}
	return output.Count(len(r.Findings), "finding") + ": " + strings.Join(kinds, ", ")
}

// claimed returns the claims as they are written.
func (r *Report) claimed() string {
	var all []string
	for _, c := range r.Claims {
		all = append(all, c.Limit.String())
	}
	return strings.Join(all, ", ")
}

// text returns the report for a screen, with the words of a command to try next.
func (r *Report) text(screen output.Screen, next []string) string {
	b := folded{width: screen.Width}
	b.fold("", "", fmt.Sprintf("Audit of %s under %s", r.URL, r.claimed()))
	b.WriteString("\n")
	for _, row := range r.rows() {
		b.fold(fmt.Sprintf("%-21s", row.name), strings.Repeat(" ", 21), row.value)
	}
	for _, f := range r.Findings {
		b.WriteString("\n")
		b.fold("* ", "  ", f.Title+" ["+string(f.Kind)+"]")
		for _, part := range parts(f) {
			b.fold(fmt.Sprintf("  %-8s", part.name), strings.Repeat(" ", 10), part.value)
		}
	}
	if len(r.NotTested) > 0 {
		b.WriteString("\nNot tested:\n\n")
	}
	for _, text := range r.NotTested {
		b.fold("- ", "  ", text)
	}
	screen.End(&b.Builder, r.verdict(), next...)
	return b.String()
}

// parts returns what a finding says.
func parts(f audit.Finding) []row {
	return []row{{"seen", f.Seen}, {"means", f.Means}, {"repair", f.Repair}}
}

// A folded text has lines of a width at most.
type folded struct {
	strings.Builder
	width int
}

// fold writes a text. Its first line begins in another way than the rest. A word that is too long is
// broken.
func (b *folded) fold(first, rest, text string) {
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

// markdown returns the report as a page.
func (r *Report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Audit of %s under %s\n\n| | |\n|---|---|\n", cell(r.URL), r.claimed())
	for _, row := range r.rows() {
		fmt.Fprintf(&b, "| %s | %s |\n", row.name, cell(row.value))
	}
	fmt.Fprintf(&b, "\n%s\n", sentence(r.verdict()))
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

// sentence returns a verdict as it stands in prose.
func sentence(verdict string) string { return strings.ToUpper(verdict[:1]) + verdict[1:] + "." }

// cell makes a text fit a table.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;").Replace(text)
}

// brief writes a duration in whole seconds, and no seconds of zero.
func brief(d time.Duration) string {
	s := d.Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	return s
}
