package logs

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// strangeTimes are ways to write a time that are not recognised by themselves, most of them because they do not show which number is the
// month: what finds one, and its layout.
var strangeTimes = []struct {
	where  *regexp.Regexp
	layout string
}{
	{regexp.MustCompile(`(\d\d\.\d\d\.\d{4} \d\d:\d\d:\d\d)`), "02.01.2006 15:04:05"},
	{regexp.MustCompile(`(\d\d/\d\d/\d{4} \d\d:\d\d:\d\d)`), "01/02/2006 15:04:05"},
	{regexp.MustCompile(`(\d\d-[A-Z][a-z]{2}-\d{4} \d\d:\d\d:\d\d)`), "02-Jan-2006 15:04:05"},
	{regexp.MustCompile(`(\d{4}\.\d\d\.\d\d \d\d:\d\d:\d\d)`), "2006.01.02 15:04:05"},
	{regexp.MustCompile(`(\d{8}T\d{6})`), "20060102T150405"},
}

// flagsFor returns flags that would read a line of an unknown format, for a sentence.
func flagsFor(line string, dated bool) string {
	if asText(line, Options{}, dated) != nil || asUnixText(line, Options{}, dated) != nil {
		return "say what is limited: --by " + ShellQuoted(byFor(line))
	}
	where, layout := `^\[(.*?)\]`, "02.01.2006 15:04:05"
	for _, strange := range strangeTimes {
		if strange.where.MatchString(line) {
			where, layout = strange.where.String(), strange.layout
			break
		}
	}
	return fmt.Sprintf("say where its time is, how that is written, and what is limited: --time-regex %s --time-format %s --by %s",
		ShellQuoted(where), ShellQuoted(layout), ShellQuoted(byFor(line)))
}

// byFor returns an expression that finds the address in a line and in others like it; or else what follows the last =, or the last word.
func byFor(line string) string {
	const address = `([0-9a-f.:]+)`
	words := strings.Fields(line)
	for i, word := range words {
		_, err := netip.ParseAddr(strings.Trim(word, "[](),;"))
		switch {
		case err != nil:
		case i == 0:
			return `^\[?` + address
		case lastLetters(words[i-1]) == "":
			return fmt.Sprintf(`^(?:\S+\s+){%d}[\[(]?%s`, i, address)
		default:
			return regexp.QuoteMeta(lastLetters(words[i-1])) + ` +[\[(]?` + address
		}
	}
	for _, word := range words {
		if key, _, ok := strings.Cut(word, "="); ok && isWord(key) {
			return key + `=(\S+)`
		}
	}
	return `(\S+)$`
}

// lastLetters returns the end of a word from its last digit on, since numbers differ from line to line.
func lastLetters(word string) string {
	return word[strings.LastIndexAny(word, "0123456789")+1:]
}

// ShellQuoted returns a text as a shell takes it: in single quotes, unless it is plain, so that a regular expression appears as typed.
func ShellQuoted(text string) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.,:/@%+"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(Shown(text), "'", `'\''`) + "'"
}
