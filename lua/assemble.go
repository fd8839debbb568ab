package lua

import (
	"embed"
	"regexp"
	"slices"
	"strings"
)

// blocks holds the text of which the scripts consist. Each file is about one concern. Its first
// lines, which start with ---, say what the block needs from the text before it and what it gives
// to the text after it. They are not part of the scripts.
//
//go:embed src/*.lua
var blocks embed.FS

var (
	header  = regexp.MustCompile(`^(?:---.*\n)+`)
	verbs   = regexp.MustCompile(`(?m)^---.* Verbs: ([a-z ]+)\.$`)
	include = regexp.MustCompile(`(?m)^( *)-- include ([a-z-]+)(?: for ([a-z ]+))?\n`)
)

// assemble returns a block with the blocks that it includes, indented like the lines that include
// them. An include with "for" only applies if the script has one of the verbs that follow. The
// script has the verbs that the header of its outermost block lists; a block that lists its own
// verbs is such a script within the script.
func assemble(name string, has []string) string {
	text, err := blocks.ReadFile("src/" + name + ".lua")
	if err != nil {
		panic(err) // TestAssembled assembles every block
	}
	if listed := verbs.FindSubmatch(text); listed != nil {
		has = strings.Fields(string(listed[1]))
	}
	return include.ReplaceAllStringFunc(header.ReplaceAllString(string(text), ""), func(line string) string {
		part := include.FindStringSubmatch(line)
		indent, block, only := part[1], part[2], strings.Fields(part[3])
		if len(only) > 0 && !slices.ContainsFunc(only, func(verb string) bool { return slices.Contains(has, verb) }) {
			return ""
		}
		return indented(assemble(block, has), indent)
	})
}

// indented returns the text with each line that is not empty indented.
func indented(text, indent string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			out.WriteString(indent)
		}
		out.WriteString(line)
	}
	return out.String()
}
