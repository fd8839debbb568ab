package lua_test

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/lua"
)

// budgets holds the most VM instructions that a call in each scenario of testdata/count.lua may take.
// Instructions are not time, but they never vary between runs or machines. To see what a change
// costs: lua5.1 testdata/count.lua window.lua. Lower a budget when a change makes a call cheaper.
var budgets = map[string]int{
	"allow":                   311,
	"allow, denied":           272,
	"allow, 3 limits":         658,
	"allow, 3 limits, denied": 640,
	"allow, 3 keys":           901,
	"count":                   322,
	"count, denied":           346,
	"peek":                    265,
	"some":                    477,
	"some, 6 of 8":            507,
	"countsome":               477,
	"counteach":               704,
	"inspect":                 494,
	"refund":                  404,
	"reset":                   181,
	"joint, 2 keys":           870,
	"joint, 2 keys, denied":   839,
	"undo, 2 keys":            878,
}

// TestInstructions checks that no call takes more VM instructions than its budget.
func TestInstructions(t *testing.T) {
	args := append([]string{"testdata/count.lua", scriptFile(t, lua.Window.Source)}, scriptArgs(t)...)
	out, err := exec.CommandContext(t.Context(), lua51(t), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		name, count := strings.TrimSpace(line[:24]), strings.Fields(line[24:])[0]
		budget, ok := budgets[name]
		if n := must(strconv.Atoi(count)); !ok || n > budget {
			t.Errorf("%s takes %d instructions, and its budget is %d", name, n, budget)
		}
		seen++
	}
	if seen != len(budgets) {
		t.Errorf("%d scenarios, but %d budgets\n%s", seen, len(budgets), out)
	}
}

// maxLiveNames is the most local variables and upvalues that a reader of a script has to keep in mind
// at any line.
const maxLiveNames = 60

// TestLiveNames checks how many names are in scope at any line of each script, as the compiler
// sees them.
func TestLiveNames(t *testing.T) {
	luac := redistest.Program(t, "lua5.1", "luac5.1")
	for name, source := range map[string]string{
		"window": lua.Window.Source, "ar1": lua.AR1.Source, "pace": lua.Pace.Source, "inflight": lua.Inflight.Source,
		"overrides": lua.Overrides.Source, "probe": lua.Probe.Source,
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), luac, "-p", "-l", "-l", scriptFile(t, source)).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			most, line := liveNames(string(out))
			t.Logf("%d names at line %d", most, line)
			if most > maxLiveNames {
				t.Errorf("%d names are in scope at line %d, more than %d", most, line, maxLiveNames)
			}
		})
	}
}

// liveNames parses a listing of luac. It returns the largest number of local variables and upvalues in
// scope, and the first line where they are. Names of the compiler, such as (for index), do not count.
func liveNames(listing string) (most, line int) {
	var lines []int     // by instruction of the function
	var scopes [][2]int // the first instruction of each local variable, and the one after the last
	var part string     // of the function's listing
	count := func(upvalues int) {
		for i, l := range lines {
			n := upvalues
			for _, s := range scopes {
				if s[0] <= i+1 && i+1 < s[1] {
					n++
				}
			}
			if n > most {
				most, line = n, l
			}
		}
		lines, scopes = nil, nil
	}
	for text := range strings.Lines(listing) {
		f := strings.Fields(text)
		switch {
		case len(f) == 0:
		case !strings.HasPrefix(text, "\t"):
			part = f[0]
			if part == "upvalues" { // the last part of a function
				count(must(strconv.Atoi(strings.Trim(f[1], "()"))))
			}
		case part != "constants" && strings.HasPrefix(f[1], "["):
			lines = append(lines, must(strconv.Atoi(strings.Trim(f[1], "[]"))))
		case part == "locals" && !strings.HasPrefix(f[1], "("):
			scopes = append(scopes, [2]int{must(strconv.Atoi(f[2])), must(strconv.Atoi(f[3]))})
		}
	}
	return most, line
}
