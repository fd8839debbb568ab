package lua_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDependencies checks that whoever uses the library gets the standard library, rueidis and what rueidis needs.
func TestDependencies(t *testing.T) {
	const module = "github.com/slidegate/slidegate/"
	list := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", module+"window", module+"ar1", module+"lua", module+"login")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list, err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		if !belongs(path, module+"window", module+"ar1", module+"lua", module+"login", module+"internal", "github.com/redis/rueidis", "golang.org/x/sys") {
			t.Errorf("the library needs %s", path)
		}
	}
}

func belongs(path string, roots ...string) bool {
	for _, root := range roots {
		if path == root || strings.HasPrefix(path, root+"/") {
			return true
		}
	}
	return false
}
