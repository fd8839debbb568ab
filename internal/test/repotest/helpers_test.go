// Package repotest tests the repository as a whole: which dependencies its modules add to a
// program, whether its Examples and README can be copied, and whether the links on its pages work.
package repotest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// root is the directory of the repository.
const root = "../../.."

// A program is the directory of a module that requires this module in its current state.
type program string

// newProgram returns a program that imports pkg. If pkg is in a separate module, the program
// requires that module too.
func newProgram(t *testing.T, pkg string) program {
	t.Helper()
	repository, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	const own = "github.com/slidegate/slidegate"
	p := program(t.TempDir())
	for name, text := range map[string]string{
		"main.go": "package main\n\nimport _ \"" + own + "/" + pkg + "\"\n\nfunc main() {}\n",
		"go.mod":  "module example.com/program\n\ngo 1.25.0\n\nrequire " + own + " v0.1.0\n\nreplace " + own + " => " + strconv.Quote(repository) + "\n",
	} {
		p.write(t, name, text)
	}
	if _, err := os.Stat(filepath.Join(repository, pkg, "go.mod")); err == nil {
		p.require(t, pkg)
	}
	return p
}

// require makes the program require another module of this repository in its current state.
func (p program) require(t *testing.T, module string) {
	t.Helper()
	directory, err := filepath.Abs(filepath.Join(root, module))
	if err != nil {
		t.Fatal(err)
	}
	path := "github.com/slidegate/slidegate/" + module
	p.run(t, "mod", "edit", "-require="+path+"@v0.1.0", "-replace="+path+"="+directory)
}

// write writes a file in the program, and creates the file's directory.
func (p program) write(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(string(p), name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs the go command in the program's directory, and returns the output.
func (p program) run(t *testing.T, args ...string) string {
	t.Helper()
	var failure bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env, cmd.Stderr = string(p), append(os.Environ(), "GOWORK=off", "GOFLAGS="), &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s\nIf a module is missing: this test needs a module proxy (GOPROXY) or a module cache with what the program requires.", cmd, &failure)
	}
	return string(out)
}

// text returns the contents of a file.
func text(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
