package repotest

import (
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDependencies checks which modules a user of the library compiles: rueidis and its
// dependencies. inflight needs one more module, httplimit needs that module and two others,
// goredisgate the modules of go-redis, grpclimit those of grpc, and otelgate the OpenTelemetry API
// without its SDK, and the module that inflight needs.
func TestDependencies(t *testing.T) {
	const own, sys, rueidis = "github.com/slidegate/slidegate", "golang.org/x/sys", "github.com/redis/rueidis"
	for packages, want := range map[string][]string{
		"window ar1 pace lua login mostdenied": {rueidis, own, sys},
		"inflight":                             {rueidis, own, "golang.org/x/sync", sys},
		"httplimit login/loginhttp":            {"github.com/dunglas/httpsfv", "github.com/felixge/httpsnoop", rueidis, own, "golang.org/x/sync", sys},
		"goredisgate": {
			"github.com/cespare/xxhash/v2", "github.com/redis/go-redis/v9", rueidis, own, own + "/goredisgate", "go.uber.org/atomic", sys,
		},
		"grpclimit": {
			rueidis, own, own + "/grpclimit", "golang.org/x/net", "golang.org/x/sync", sys, "golang.org/x/text",
			"google.golang.org/genproto/googleapis/rpc", "google.golang.org/grpc", "google.golang.org/protobuf",
		},
		"otelgate": {
			"github.com/cespare/xxhash/v2", rueidis, own, own + "/otelgate",
			"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/trace", "golang.org/x/sync", sys,
		},
	} {
		list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}")
		for path := range strings.FieldsSeq(packages) {
			list.Args = append(list.Args, own+"/"+path)
		}
		out, err := list.Output()
		if err != nil {
			t.Fatalf("%v: %v", list, err)
		}
		got := strings.Fields(string(out))
		slices.Sort(got)
		if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
			t.Errorf("what %s brings (-want +got)\n%s", packages, diff)
		}
	}
}

// rooms lists the packages of the library, in layers. A package imports only packages in the layers
// before its own.
var rooms = []string{
	"lua internal/keys internal/clock internal/calls internal/dial",
	"internal/connection internal/memory",
	"internal/health",
	"internal/send",
	"internal/limiter",
	"window",
	"internal/report mostdenied goredisgate windowtest",
	"ar1 pace inflight",
	"login internal/adapter otelgate",
	"httplimit grpclimit",
	"login/loginhttp",
}

// TestRooms checks that imports run down only, except in tests, and that goredisgate knows nothing
// below window except the connection.
func TestRooms(t *testing.T) {
	below := map[string]bool{}
	for _, layer := range rooms {
		for room := range strings.FieldsSeq(layer) {
			for imported, file := range imports(t, room) {
				if !below[imported] {
					t.Errorf("%s imports %s, which is not in a layer below", file, imported)
				}
			}
		}
		for room := range strings.FieldsSeq(layer) {
			below[room] = true
		}
	}
	for imported := range imports(t, "goredisgate") {
		if imported != "window" && imported != "internal/connection" {
			t.Errorf("goredisgate imports %s", imported)
		}
	}
	for _, dir := range []string{"*", "internal/*", "login/*"} { // so that a new package gets a layer
		for _, file := range matches(t, dir+"/*.go") {
			room := filepath.ToSlash(filepath.Dir(strings.TrimPrefix(file, root+"/")))
			if !below[room] && !strings.HasSuffix(file, "_test.go") && room != "examples" && room != "bench" {
				t.Errorf("%s is in no layer", room)
			}
		}
	}
}

// matches returns the files of the repository that match the pattern, of which there must be some.
func matches(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	return files
}

// imports returns those of our packages that the files in dir import, each with the name of one file
// that imports it. It ignores tests.
func imports(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range matches(t, dir+"/*.go") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range parsed.Imports {
			if path, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), "github.com/slidegate/slidegate/"); ours && path != dir {
				all[path] = file
			}
		}
	}
	return all
}

// TestLight checks how many modules a program that imports one package has: the number of lines of
// `go list -m all` and of go.sum.
func TestLight(t *testing.T) {
	for pkg, most := range map[string]struct{ modules, sums int }{
		"window":    {15, 25},
		"httplimit": {20, 35},
	} {
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			p := newProgram(t, pkg)
			p.run(t, "mod", "tidy")
			modules, sums := p.run(t, "list", "-m", "all"), text(t, string(p)+"/go.sum")
			if n := strings.Count(modules, "\n"); n > most.modules {
				t.Errorf("%d modules, want at most %d:\n%s", n, most.modules, modules)
			}
			if n := strings.Count(sums, "\n"); n > most.sums {
				t.Errorf("%d lines in go.sum, want at most %d:\n%s", n, most.sums, sums)
			}
		})
	}
}

// TestNoUpgrades checks that a program that imports one package can keep older versions of the
// modules that only our own tests and commands need. An adapter requires an old version of the
// library that it adapts, and builds with that version.
func TestNoUpgrades(t *testing.T) {
	older := []string{
		"github.com/prometheus/client_golang v1.22.0",
		"github.com/redis/go-redis/v9 v9.21.0",
		"github.com/testcontainers/testcontainers-go v0.38.0",
		"go.opentelemetry.io/otel v1.35.0",
		"google.golang.org/grpc v1.72.0",
	}
	for _, pkg := range []string{"window", "httplimit", "goredisgate", "grpclimit", "otelgate"} {
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			p := newProgram(t, pkg)
			p.run(t, "mod", "tidy")
			p.run(t, "vet", ".") // the program builds with the oldest versions
			for _, module := range older {
				p.run(t, "mod", "edit", "-require="+strings.Replace(module, " ", "@", 1))
			}
			all := strings.Split(p.run(t, "list", "-mod=mod", "-m", "all"), "\n") // without all, go does not read the go.mod files of other modules
			for _, module := range older {
				if !slices.Contains(all, module) {
					t.Errorf("the program has not kept %s, but has\n%s", module, strings.Join(all, "\n"))
				}
			}
		})
	}
}
