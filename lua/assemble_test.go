package lua_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAssembled compares the scripts that consist of blocks with their blocks. With -update, it
// writes the scripts.
func TestAssembled(t *testing.T) {
	used := map[string]bool{}
	const first = "-- Assembled from the blocks in lua/src by go generate ./lua; change those instead.\n"
	for _, name := range []string{"window", "ar1", "pace"} {
		file, source := name+".lua", first+assemble(used, name, "", nil)
		if *update {
			if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
				t.Fatal(err)
			}
		} else if diff := cmp.Diff(string(must(os.ReadFile(file))), source); diff != "" {
			t.Errorf("%s differs from its blocks: run go generate ./lua\n(-file +blocks)\n%s", file, diff)
		}
	}
	for _, file := range must(filepath.Glob("src/*.lua")) {
		if text := string(must(os.ReadFile(file))); !used[strings.TrimSuffix(filepath.Base(file), ".lua")] {
			t.Errorf("no script includes %s", file)
		} else if n := linesOfCode(text); n > maxBlock || !strings.HasPrefix(text, "--- ") {
			t.Errorf("%s has %d lines of code, or no header; a block has at most %d", file, n, maxBlock)
		}
	}
}

// maxBlock is the most lines of code in a block.
const maxBlock = 70

// linesOfCode returns the number of lines that are neither empty nor comments.
func linesOfCode(text string) (n int) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			n++
		}
	}
	return n
}

// assemble returns the block src/name.lua with the blocks that it includes. Each line is indented
// like the lines that include it. The first lines of a block, which start with ---, say what it
// needs from the text before it and what it gives to the text after it. They are left out, except
// for the verbs that a block within another one lists: lua.WindowFor finds the block by them. An
// include with "for" only applies to a script that has one of the verbs that follow. It adds the
// names of the blocks to used.
func assemble(used map[string]bool, name, indent string, verbs []string) string {
	used[name] = true
	var script strings.Builder
	for line := range strings.Lines(string(must(os.ReadFile(filepath.Join("src", name+".lua"))))) {
		rest := strings.TrimLeft(line, " ")
		header, isHeader := strings.CutPrefix(line, "---")
		part, includes := strings.CutPrefix(rest, "-- include ")
		switch {
		case isHeader:
			_, list, listed := strings.Cut(header, " Verbs: ")
			if listed {
				verbs = strings.Fields(strings.TrimSuffix(list, ".\n"))
			}
			if listed && indent != "" {
				script.WriteString(indent + "-- Verbs: " + list)
			}
		case includes:
			block, only, _ := strings.Cut(strings.TrimSpace(part), " for ")
			if only == "" || slices.ContainsFunc(strings.Fields(only), func(verb string) bool { return slices.Contains(verbs, verb) }) {
				script.WriteString(assemble(used, block, indent+line[:len(line)-len(rest)], verbs))
			}
		case line == "\n":
			script.WriteString(line)
		default:
			script.WriteString(indent + line)
		}
	}
	return script.String()
}
