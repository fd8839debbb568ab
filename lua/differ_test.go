package lua_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/lua"
)

// before is window.lua as it was before it was split into blocks. It defines what the scripts reply
// and write, so it changes only if a change of behavior is intended.
const before = "testdata/window-c4e594e.lua"

// compared lists the verbs that testdata/differ.lua can call.
var compared = []string{
	"allow", "count", "peek", "some", "countsome", "counteach", "inspect", "refund", "reset", "joint", "undo",
}

// sourceFor returns the script that decides a verb.
func sourceFor(verb string) string { return lua.WindowFor(verb).Source }

// lua51 returns the path of Lua 5.1, the version that servers run.
func lua51(tb testing.TB) string {
	tb.Helper()
	return redistest.Program(tb, "lua5.1", "lua5.1")
}

// scriptArgs writes the script of each verb to a file, and returns arguments for testdata/differ.lua
// and testdata/count.lua: verb,verb=file for each script.
func scriptArgs(tb testing.TB) (args []string) {
	tb.Helper()
	verbsOf := map[string][]string{}
	for _, verb := range compared {
		verbsOf[sourceFor(verb)] = append(verbsOf[sourceFor(verb)], verb)
	}
	for _, source := range slices.Sorted(maps.Keys(verbsOf)) {
		args = append(args, strings.Join(verbsOf[source], ",")+"="+scriptFile(tb, source))
	}
	return args
}

// scriptFile writes a script to a file, and returns its path.
func scriptFile(tb testing.TB, source string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "script.lua")
	if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// TestBehavesAsBefore makes 100,000 random calls, each of the script before and of the script of
// today, and compares what they reply and write. To look for rarer differences, run it as often as
// you like with other seeds: lua5.1 testdata/differ.lua.
func TestBehavesAsBefore(t *testing.T) {
	const calls = 25_000
	path, scripts := lua51(t), scriptArgs(t)
	for seed := range 4 {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			args := append([]string{"testdata/differ.lua", fmt.Sprint(seed), fmt.Sprint(calls), before}, scripts...)
			report, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, report)
			}
			t.Logf("\n%s", report)
		})
	}
}
