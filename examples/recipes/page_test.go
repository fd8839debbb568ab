// Package recipes has the code of docs/recipes.md.
package recipes

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPage checks that docs/recipes.md quotes code that is compiled and run, and that the filter
// for fail2ban matches the line that is logged.
func TestPage(t *testing.T) {
	page := read(t, "../../docs/recipes.md")
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range append(files, "../../grpclimit/example_recipe_test.go") {
		if file != "page_test.go" {
			code.WriteString(unindented(read(t, file)))
		}
	}
	snippets := regexp.MustCompile("(?s)```(\\w*)\n(.*?\n)```\n").FindAllStringSubmatch(page, -1)
	if len(snippets) < 13 {
		t.Errorf("docs/recipes.md has only %d snippets", len(snippets))
	}
	for _, s := range snippets {
		if s[1] == "ini" {
			continue
		}
		for part := range strings.SplitSeq(s[2], "...\n") {
			if !strings.Contains(code.String(), "\n"+unindented(part)) {
				t.Errorf("docs/recipes.md quotes what is in no recipe:\n%s", part)
			}
		}
	}

	filter := regexp.MustCompile(`(?m)^failregex = (.*)$`).FindStringSubmatch(page)
	if filter == nil {
		t.Fatal("docs/recipes.md has no filter for fail2ban")
	}
	line := regexp.MustCompile(strings.ReplaceAll(filter[1], "<ADDR>", `([0-9a-f.:]+)`))
	// fail2ban removes the date, and leaves the space after it.
	for text, address := range map[string]string{
		" rate limit: denied 198.51.100.7":                  "198.51.100.7",
		" rate limit: denied 2001:db8::17":                  "2001:db8::17",
		` login: user "rate limit: denied 192.0.2.1"`:       "",
		" rate limit: denied 198.51.100.7 and 198.51.100.8": "",
	} {
		found := append(line.FindStringSubmatch(text), "", "")
		if found[1] != address {
			t.Errorf("%q: the filter finds %q instead of %q", text, found[1], address)
		}
	}
	if !strings.Contains(code.String(), "\n// rate limit: denied 198.51.100.7\n") {
		t.Error("the recipe for fail2ban logs another line")
	}
}

// unindented returns a text without tabs at the beginning of lines and comment marks of outputs.
func unindented(text string) string {
	text = regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(text, "")
	return regexp.MustCompile(`(?m)^// (after \d)`).ReplaceAllString(text, "$1")
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
