package repotest

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestBeforeTheRelease checks that a program outside this repository builds with each module that
// programs can import, using the commands in docs/compatibility.md with this repository as the
// clone.
func TestBeforeTheRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("compiling them takes seconds")
	}
	clone, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	p := program(t.TempDir())
	p.run(t, "mod", "init", "example.com/program")
	for _, pkg := range []string{"httplimit", "login/loginhttp", "inflight", "goredisgate", "grpclimit", "otelgate"} {
		p.write(t, filepath.Base(pkg)+".go", "package main\n\nimport _ \"github.com/slidegate/slidegate/"+pkg+"\"\n")
	}
	p.write(t, "main.go", "package main\n\nfunc main() {}\n")
	for _, command := range releaseCommands(t) {
		p.run(t, strings.Fields(strings.ReplaceAll(command, "../slidegate", clone))...)
	}
	p.run(t, "vet", ".")
}

// releaseCommands returns the arguments of the go commands that replace the modules.
func releaseCommands(t *testing.T) (all []string) {
	t.Helper()
	_, section, _ := strings.Cut(text(t, root+"/docs/compatibility.md"), "## Before the first release\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(strings.ReplaceAll(section, "\\\n", "")) {
		if command, ok := strings.CutPrefix(line, "    go "); ok {
			all = append(all, command)
		}
	}
	if len(all) != 2 {
		t.Fatalf("docs/compatibility.md has %d commands, not 2: %q", len(all), all)
	}
	return all
}
