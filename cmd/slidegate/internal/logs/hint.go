package logs

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// unusualTimes are forms of times that are not recognised by themselves, most of them because they
// do not show which number is the month. Each has an expression that finds such a time, and its
// layout.
var unusualTimes = []struct {
	where  *regexp.Regexp
	layout string
}{
	{regexp.MustCompile(`(\d\d\.\d\d\.\d{4} \d\d:\d\d:\d\d)`), "02.01.2006 15:04:05"},
	{regexp.MustCompile(`(\d{4}-\d\d-\d\d \d+:\d\d:\d\d [AP]M)`), "2006-01-02 3:04:05 PM"},
	{regexp.MustCompile(`(\d+/\d+/\d{4} \d+:\d\d:\d\d [AP]M)`), "1/2/2006 3:04:05 PM"},
	{regexp.MustCompile(`(\d+/\d+/\d{4}, \d+:\d\d:\d\d [AP]M)`), "1/2/2006, 3:04:05 PM"},
	{regexp.MustCompile(`(\d\d/\d\d/\d{4} \d\d:\d\d:\d\d)`), "01/02/2006 15:04:05"},
	{regexp.MustCompile(`(\d\d-[A-Z][a-z]{2}-\d{4} \d\d:\d\d:\d\d)`), "02-Jan-2006 15:04:05"},
	{regexp.MustCompile(`(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d\.?\d*)`), "02/Jan/2006:15:04:05"},
	{regexp.MustCompile(`(\d{4}\.\d\d\.\d\d \d\d:\d\d:\d\d)`), "2006.01.02 15:04:05"},
	{regexp.MustCompile(`(\d{4}/\d\d/\d\d - \d\d:\d\d:\d\d)`), "2006/01/02 - 15:04:05"},
	{regexp.MustCompile(`(\d{8}T\d{6})`), "20060102T150405"},
	{regexp.MustCompile(`^[DIWEF](\d{4} \d\d:\d\d:\d\d\.\d+)`), "0102 15:04:05"},
}

// A hint proposes flags that would read a file of unknown format.
type hint struct {
	lines []string
	dated bool           // an envelope has their times
	given *regexp.Regexp // the expression of --by; nil: it is a field, or missing
}

// flags returns flags that would read the lines, as part of a sentence. It goes by the first line.
func (h hint) flags() string {
	if flags := h.columns(); flags != "" {
		return "name its columns: " + flags
	}
	by := "--by " + ShellQuoted(h.by())
	if h.found() {
		return "say what is limited: " + by
	}
	if i := unusualTime(h.lines[0]); i >= 0 {
		unusual := unusualTimes[i]
		return fmt.Sprintf("say where its time is, how that is written, and what is limited: --time-regex %s --time-format %s %s",
			ShellQuoted(unusual.where.String()), ShellQuoted(unusual.layout), by)
	}
	return "no time is found in it; if it has one, write --time-regex with a group around it, as in '^\\[(.*?)\\]', " +
		"--time-format as 2006-01-02 15:04:05 would stand there, and " + by
}

// hasTime reports whether the time of the first line can be read, with flags if needed.
func (h hint) hasTime() bool { return h.found() || unusualTime(h.lines[0]) >= 0 }

// found reports whether the time of the first line is found without flags.
func (h hint) found() bool {
	return asText(h.lines[0], Options{}, h.dated) != nil || asUnixText(h.lines[0], Options{}, h.dated) != nil
}

// columns returns flags that name the columns of CSV whose header has unknown names.
func (h hint) columns() string {
	if len(h.lines) < 2 || h.given != nil || !isHeader(h.lines[1]) {
		return ""
	}
	names, err := splitFields(h.lines[1])
	values, errValues := splitFields(h.lines[0])
	if err != nil || errValues != nil || len(names) != len(values) {
		return ""
	}
	at, by := -1, -1
	for i, value := range values {
		if _, err := parseAnyTime(strings.TrimSpace(value)); err == nil && at < 0 {
			at = i
		} else if _, err := netip.ParseAddr(withoutPort(strings.TrimSpace(value))); err == nil && by < 0 {
			by = i
		}
	}
	if at < 0 || by < 0 {
		return ""
	}
	return "--time-field " + ShellQuoted(strings.TrimSpace(names[at])) + " --by " + ShellQuoted(strings.TrimSpace(names[by]))
}

// unusualTime returns the index of the unusual form of time that a line has, or -1.
func unusualTime(line string) int {
	for i, unusual := range unusualTimes {
		if unusual.where.MatchString(line) {
			return i
		}
	}
	return -1
}

// by returns an expression that finds the probable event. In W3C logs that is the client's address.
// Otherwise it is the first address in this line and in similar ones, or the value after the first
// =, or the last word.
func (h hint) by() string {
	if h.given != nil {
		return h.given.String()
	}
	if by := h.byColumn(); by != "" {
		return by
	}
	line := h.lines[0]
	if by := h.byAddress(line); by != "" {
		return by
	}
	for _, word := range strings.Fields(line) {
		if key, _, ok := strings.Cut(word, "="); ok && isWord(key) {
			return key + `=(\S+)`
		}
	}
	return `(\S+)$`
}

// byColumn returns an expression for the client's address, if a line such as "#Fields: date time
// s-ip c-ip" names the columns.
func (h hint) byColumn() string {
	for _, l := range h.lines {
		if names, ok := strings.CutPrefix(l, "#Fields: "); ok {
			if i := slices.Index(strings.Fields(names), "c-ip"); i > 0 {
				return fmt.Sprintf(`^\d(?:\S*\s+){%d}(\S+)`, i)
			}
		}
	}
	return ""
}

// byAddress returns an expression that finds the first address in a line, and addresses in most
// other lines.
func (h hint) byAddress(line string) (best string) {
	address, start, expression := findAddress(line)
	if address == "" {
		return ""
	}
	most := 0
	for _, before := range contexts(line[:start]) {
		by, err := regexp.Compile(before + expression)
		if m := by.FindStringSubmatch(line); err != nil || m == nil || strings.Trim(m[1], "[]") != address {
			continue
		}
		if n := h.addresses(by); n > most {
			best, most = by.String(), n
		}
	}
	return best
}

// addresses returns the number of lines in which an expression finds an address.
func (h hint) addresses(by *regexp.Regexp) (n int) {
	for _, l := range h.lines {
		if m := by.FindStringSubmatch(l); m != nil {
			if _, err := netip.ParseAddr(strings.Trim(m[1], "[]")); err == nil {
				n++
			}
		}
	}
	return n
}

var (
	maybeAddress = regexp.MustCompile(`\[?[0-9A-Fa-f.:]+\]?(?::\d+)?`)
	lastWords    = regexp.MustCompile(`(\S*)(\s*)(\S*)$`)
)

// findAddress returns the first address in a line, its position, and an expression that matches it
// without its port.
func findAddress(line string) (address string, start int, expression string) {
	for _, at := range maybeAddress.FindAllStringIndex(line, -1) {
		start, word := at[0], strings.TrimRight(line[at[0]:at[1]], ".:")
		if rest, cut := strings.CutPrefix(word, ":"); cut && !strings.HasPrefix(rest, ":") {
			start, word = start+1, rest
		}
		if start > 0 && (isWordByte(line[start-1]) || strings.IndexByte("/-", line[start-1]) >= 0) {
			continue // such as the version in a user agent
		}
		if !strings.HasPrefix(word, "[") {
			word = strings.TrimRight(word, "]")
		}
		if withPort, err := netip.ParseAddrPort(word); err == nil {
			return withPort.Addr().String(), start, `([0-9a-f.:\[\]]+):\d+`
		}
		bare := strings.TrimLeft(word, "[")
		if _, err := netip.ParseAddr(strings.TrimRight(bare, "]")); err == nil {
			return strings.TrimRight(bare, "]"), start + len(word) - len(bare), `([0-9a-f.:]+)`
		}
	}
	return "", 0, ""
}

// contexts returns expressions for the text before an address. One has the word before it, unless
// that word holds a number, which would differ from line to line. Another counts the words.
func contexts(before string) (all []string) {
	m := lastWords.FindStringSubmatch(before)
	word, space, attached := m[1], m[2], m[3]
	if space == "" {
		word, attached = "", word
	}
	if strings.ContainsAny(attached, "0123456789") {
		word, space, attached = "", "", attached[strings.LastIndexAny(attached, "0123456789")+1:]
	}
	near := regexp.QuoteMeta(attached)
	if hasLetter(attached) {
		all = append(all, near)
	}
	if space != "" && word != "" && !strings.ContainsAny(word, "0123456789") {
		all = append(all, regexp.QuoteMeta(word)+`\s+`+near)
	}
	if n := len(strings.Fields(before[:len(before)-len(attached)])); n == 0 {
		all = append(all, "^"+near)
	} else if space != "" {
		all = append(all, fmt.Sprintf(`^(?:\S+\s+){%d}%s`, n, near))
	}
	return append(all, near)
}

func hasLetter(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < 0x80 && isWordByte(byte(r)) && (r < '0' || r > '9') })
}

// ShellQuoted returns a text as a shell reads it. It is in single quotes unless it is plain, so
// that a regular expression appears as it was typed.
func ShellQuoted(text string) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.,:/@%+"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(Shown(text), "'", `'\''`) + "'"
}
