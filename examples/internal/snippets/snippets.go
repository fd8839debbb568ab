// Package snippets checks that a documentation page quotes code that is compiled and run.
package snippets

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Code returns the contents of files, without indentation.
func Code(t *testing.T, files ...string) string {
	t.Helper()
	var code strings.Builder
	for _, file := range files {
		code.WriteString(unindented(Read(t, file)))
	}
	return code.String()
}

// Check fails the test for each snippet in a page that does not occur in the code, and if the page
// has fewer snippets than least. In a snippet, a line of three dots stands for omitted code. Blocks
// of ini are not code.
func Check(t *testing.T, page, code string, least int) {
	t.Helper()
	snippets := regexp.MustCompile("(?s)```(\\w*)\n(.*?\n)```\n").FindAllStringSubmatch(Read(t, page), -1)
	if len(snippets) < least {
		t.Errorf("%s has only %d snippets", page, len(snippets))
	}
	for _, s := range snippets {
		if s[1] == "ini" {
			continue
		}
		for part := range strings.SplitSeq(s[2], "...\n") {
			if !strings.Contains(code, "\n"+unindented(part)) {
				t.Errorf("%s quotes code that is in no example:\n%s", page, part)
			}
		}
	}
}

// unindented removes tabs from the start of lines, and the comment marks of outputs.
func unindented(text string) string {
	text = regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(text, "")
	return regexp.MustCompile(`(?m)^// (after \d)`).ReplaceAllString(text, "$1")
}

// Read returns the contents of a file.
func Read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
