package repotest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// goBlocks returns the Go blocks in a page.
func goBlocks(t *testing.T, page string) (blocks []string) {
	t.Helper()
	for _, block := range strings.Split(text(t, root+"/"+page), "```go\n")[1:] {
		code, _, _ := strings.Cut(block, "```\n")
		blocks = append(blocks, code)
	}
	return blocks
}

// TestReadme checks that the first block in the README is the Example of package window.
func TestReadme(t *testing.T) {
	for _, e := range examples(t, "window") {
		if e.name == "window" {
			want, _, _ := strings.Cut(e.program, "\t// It prints:")
			if diff := cmp.Diff(want+"}\n", goBlocks(t, "README.md")[0]); diff != "" {
				t.Errorf("README.md (-window's Example +its first program)\n%s", diff)
			}
			return
		}
	}
	t.Error("package window has no Example")
}

// TestReadmeSnippets runs the other blocks in the README as one program, which stops at any error.
func TestReadmeSnippets(t *testing.T) {
	if testing.Short() {
		t.Skip("compiling and linking it takes seconds")
	}
	blocks := strings.Replace(strings.Join(goBlocks(t, "README.md")[1:], ""), readmeCluster, redistest.Start(t).Addr(), 1)
	p, body := newCopies(t), stopAtErrors(t, blocks)
	p.write(t, "snippets/main.go", fmt.Sprintf(snippets, body))
	p.run(t, "vet", "-mod=mod", "./snippets")
	if got := p.run(t, "run", "-mod=mod", "./snippets"); got != "429\n" {
		t.Errorf("the 101st request got %s", got)
	}
}

// TestPageSnippets compiles the blocks on the pages that each document one package.
func TestPageSnippets(t *testing.T) {
	if testing.Short() {
		t.Skip("compiling them takes seconds")
	}
	p := newCopies(t)
	for _, pkg := range []string{"pace", "inflight"} {
		p.write(t, pkg+"/main.go", fmt.Sprintf(pageSnippets, pkg, strings.Join(goBlocks(t, "docs/"+pkg+".md"), "")))
	}
	p.run(t, "vet", "-mod=mod", "./...")
}

// pageSnippets is the program around the blocks on a page that documents a package.
const pageSnippets = `package main

import (
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/%s"
	"github.com/slidegate/slidegate/window"
)

func export(context.Context) {}

func snippets(ctx context.Context, conn *window.Connection) error {
	%s
	return nil
}

func main() { fmt.Println(snippets(context.Background(), window.Dial("")), time.Second) }
`

// stopAtErrors returns the body of a function that panics after each statement that sets err.
func stopAtErrors(t *testing.T, body string) string {
	t.Helper()
	text, set := "package p\n\nfunc f() {\n"+body+"}\n", token.NewFileSet()
	file, err := parser.ParseFile(set, "", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := file.Decls[0].(*ast.FuncDecl)
	var b strings.Builder
	from := set.Position(f.Body.Lbrace).Offset + 1
	for _, s := range f.Body.List {
		to := set.Position(s.End()).Offset
		b.WriteString(text[from:to])
		if a, ok := s.(*ast.AssignStmt); ok && fmt.Sprint(a.Lhs[len(a.Lhs)-1]) == "err" {
			b.WriteString("\n\tif err != nil {\n\t\tpanic(err)\n\t}")
		}
		from = to
	}
	return b.String()
}

// readmeCluster is the cluster in the README.
const readmeCluster = "10.0.0.1:6379?addr=10.0.0.2:6379&addr=10.0.0.3:6379"

// snippets is the program around the blocks. It declares the names that the blocks expect the
// reader to declare.
const snippets = `package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/login/loginhttp"
	"github.com/slidegate/slidegate/window"
)

func check(context.Context, string, string) (bool, error) { return false, nil }

func welcome(http.ResponseWriter, *http.Request, string) {}

func main() {
	secret, api := bytes.Repeat([]byte{1}, 16), http.NotFoundHandler()
	%s
	for range 100 {
		http.DefaultServeMux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/api/", nil))
	}
	last := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(last, httptest.NewRequest("GET", "/api/", nil))
	fmt.Println(last.Code)
}
`
