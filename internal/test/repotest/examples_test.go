package repotest

import (
	"bytes"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// exampleRedis is the address of Redis in the Examples.
const exampleRedis = "127.0.0.1:6379"

// TestExamples checks that each Example can be copied: the program that pkg.go.dev shows must build
// outside this repository and pass go vet. Go runs the in-memory Examples with the tests of their
// packages. The Examples on Redis run here, and must print the output that their comments state.
func TestExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("compiling them and linking some takes ten seconds")
	}
	p, server := newCopies(t), redistest.Start(t)
	var onRedis []example
	for _, pkg := range []string{"window", "ar1", "pace", "inflight", "login", "login/loginhttp", "httplimit", "goredisgate", "grpclimit", "otelgate", "cluster_test/monitoring"} {
		for _, e := range examples(t, pkg) {
			if strings.Contains(e.program, exampleRedis) {
				onRedis = append(onRedis, e)
			}
			p.write(t, e.name+"/main.go", strings.ReplaceAll(e.program, exampleRedis, server.Addr()))
		}
	}
	p.run(t, "vet", "-mod=mod", "./...")
	for _, e := range onRedis {
		if diff := cmp.Diff(e.prints, p.run(t, "run", "-mod=mod", "./"+e.name)); diff != "" {
			t.Errorf("%s (-its comment +what it prints)\n%s", e.name, diff)
		}
	}
}

// An example is an Example function as a program.
type example struct {
	name    string // of its directory: the package, and the rest of the function's name after Example
	program string
	prints  string // from its comment "It prints:"
}

// examples returns the Examples of a package.
func examples(t *testing.T, pkg string) (all []example) {
	t.Helper()
	files, err := filepath.Glob(root + "/" + pkg + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range doc.Examples(parsed) {
			all = append(all, newExample(t, pkg, e, set))
		}
	}
	return all
}

func newExample(t *testing.T, pkg string, e *doc.Example, set *token.FileSet) example {
	t.Helper()
	if e.Play == nil {
		t.Fatalf("Example%s of %s is not a program: it uses something from another file", e.Name, pkg)
	}
	var program bytes.Buffer
	if err := format.Node(&program, set, e.Play); err != nil {
		t.Fatal(err)
	}
	return example{pkg + e.Name, program.String(), printed(program.String())}
}

// printed returns the output that a comment in the program states.
func printed(program string) string {
	_, text, _ := strings.Cut(program, "\t// It prints:")
	text, _, _ = strings.Cut(text, "\n}")
	return strings.TrimSpace(strings.ReplaceAll(text, "\t// ", "")) + "\n"
}

// newCopies returns a program that requires the modules of this repository and all their
// dependencies, in the same versions.
func newCopies(t *testing.T) program {
	t.Helper()
	p := newProgram(t, "window")
	sums := []string{text(t, root+"/go.sum")}
	for _, module := range []string{"goredisgate", "grpclimit", "otelgate", "cluster_test"} {
		p.require(t, module)
		sums = append(sums, text(t, root+"/"+module+"/go.sum"))
	}
	p.write(t, "go.sum", strings.Join(sums, ""))
	return p
}
