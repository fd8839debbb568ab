// Package recipes tests the programs in its subdirectories, whose code docs/recipes.md quotes.
package recipes

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/examples/internal/snippets"
)

// programs returns the files of the programs.
func programs(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestPrograms checks that each program prints what the comment at its end says.
func TestPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("linking them takes seconds")
	}
	built := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", built, "./...")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, file := range programs(t) {
		_, comment, _ := strings.Cut(snippets.Read(t, file), "\t// It prints:\n")
		want := strings.TrimSuffix(strings.ReplaceAll(comment, "\t// ", ""), "}\n")
		name := filepath.Dir(file)
		out, err := exec.CommandContext(t.Context(), filepath.Join(built, name)).CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("%s prints, with error %v:\n%s\ninstead of:\n%s", name, err, out, want)
		}
	}
}

// TestPage checks that docs/recipes.md quotes code of the programs, and names each program. It also
// checks that the fail2ban filter matches the logged line.
func TestPage(t *testing.T) {
	const file = "../../docs/recipes.md"
	page, code := snippets.Read(t, file), snippets.Code(t, append(programs(t), "../../grpclimit/example_recipe_test.go")...)
	snippets.Check(t, file, code, 13)
	for _, program := range programs(t) {
		if !strings.Contains(page, "](../examples/recipes/"+filepath.ToSlash(program)+")") {
			t.Errorf("docs/recipes.md has no link to %s", program)
		}
	}

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
