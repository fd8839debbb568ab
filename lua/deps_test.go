package lua_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDependencies holds what whoever uses the library gets with it: the standard library, rueidis and what rueidis needs, and with
// httplimit two more modules.
func TestDependencies(t *testing.T) {
	const own, sys, rueidis = "github.com/slidegate/slidegate", "golang.org/x/sys", "github.com/redis/rueidis"
	for packages, want := range map[string][]string{
		"window ar1 lua login": {rueidis, own, sys},
		"httplimit":            {"github.com/dunglas/httpsfv", "github.com/felixge/httpsnoop", rueidis, own, sys},
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
