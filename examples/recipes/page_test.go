// Package recipes contains the code in docs/recipes.md.
package recipes

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/examples/internal/snippets"
)

// TestPage checks that docs/recipes.md quotes code that is compiled and run, and that the fail2ban
// filter matches the logged line.
func TestPage(t *testing.T) {
	const file = "../../docs/recipes.md"
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(file string) bool { return file == "page_test.go" })
	page, code := snippets.Read(t, file), snippets.Code(t, append(files, "../../grpclimit/example_recipe_test.go")...)
	snippets.Check(t, file, code, 13)

	filter := regexp.MustCompile(`(?m)^failregex = (.*)$`).FindStringSubmatch(page)
	if filter == nil {
		t.Fatal("docs/recipes.md has no filter for fail2ban")
	}
	line := regexp.MustCompile(strings.ReplaceAll(filter[1], "<ADDR>", `([0-9a-f.:]+)`))
	// fail2ban removes the date, but not the space that follows it.
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
	if !strings.Contains(code, "\n// rate limit: denied 198.51.100.7\n") {
		t.Error("the recipe for fail2ban logs another line")
	}
}
