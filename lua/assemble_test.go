package lua_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/lua"
)

// TestAssembled compares the scripts in this directory, which other languages copy, with those that
// Go assembles from the blocks and sends.
func TestAssembled(t *testing.T) {
	for file, source := range map[string]string{"window.lua": lua.Window} {
		if *update {
			if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
				t.Fatal(err)
			}
		} else if diff := cmp.Diff(string(must(os.ReadFile(file))), source); diff != "" {
			t.Errorf("%s differs from its blocks; run go generate ./lua (-file +blocks)\n%s", file, diff)
		}
	}
}
