package main

import (
	"regexp"
	"strings"
)

// Widths that lines of comments and of Markdown keep, in columns. A tab counts as four.
const (
	commentWidth  = 100
	markdownWidth = 120
)

// longSentence is how many words a sentence may have. README and package comments have no longer
// ones. Elsewhere less than longShare of all sentences are longer.
const (
	longSentence = 30
	longShare    = 0.01
)

// An avoided phrase has a better one.
type avoided struct {
	phrase *regexp.Regexp
	better string
}

// avoid lists what readers had to read twice.
var avoid = []avoided{
	{phrase(`tells?|told|telling`), "report, return, call or log"},
	{phrase(`turn|turns|turned`), "become, switch, or name who is next"},
	{phrase(`(be|is|are|was|were) due`), "say when it happens"},
	{phrase(`but for`), "except"},
	{phrase(`whoever`), "a client that, a caller that"},
	{phrase(`hammer|hammers|hammering`), "keep retrying"},
	{phrase(`so many|so much later|so much earlier`), "the number, or how much"},
	{phrase(`of which|of those`), "two sentences"},
	{phrase(`what is counted`), "the count, or units"},
	{phrase(`such as there is|such as there are`), "if there is one"},
	{phrase(`it is seen`), "say who sees it"},
	{phrase(`is to be|are to be|was to be|were to be`), "must, or should"},
	{phrase(`must have been`), "name the actor"},
	{phrase(`as that may`), "because it can"},
	{phrase(`lest`), "so that ... not"},
}

// phrase compiles alternatives that match whole words in any case, across the end of a line.
func phrase(alternatives string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(` + strings.ReplaceAll(alternatives, " ", `\s+`) + `)\b`)
}

// riddle matches the parts of identifiers that a reader cannot search for.
var riddle = regexp.MustCompile(`^(turn|glance|sound|calm|hurt|seldom)s?$`)

// exceptions are the files that may use avoided phrases, with the reason.
var exceptions = map[string]string{
	"internal/words/rules.go": "it lists the phrases",
}

// excepted reports whether a file may use avoided phrases.
func excepted(path string) bool {
	for file := range exceptions {
		if strings.HasSuffix(path, file) {
			return true
		}
	}
	return false
}

// notVerbs end in s after the name of a function, but say what it is instead of what it does.
var notVerbs = map[string]bool{"is": true, "was": true, "its": true, "this": true, "as": true, "us": true, "always": true, "thus": true}
