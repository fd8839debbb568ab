// Package frameworks contains the code in docs/frameworks.md.
package frameworks

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/examples/internal/snippets"
)

// TestPage checks that docs/frameworks.md quotes code that is compiled and run, and names the
// versions that are tested.
func TestPage(t *testing.T) {
	const page = "../../docs/frameworks.md"
	snippets.Check(t, page, snippets.Code(t, must(filepath.Glob("*_test.go"))...), 12)

	text := snippets.Read(t, page)
	for _, m := range regexp.MustCompile(`(?m)^\t\S+/(chi|gin|echo|connect)(?:/v5)? (v\S+)$`).FindAllStringSubmatch(snippets.Read(t, "../go.mod"), -1) {
		if !strings.Contains(text, m[1]+" "+m[2]) {
			t.Errorf("the tests run with %s %s, and %s does not say so", m[1], m[2], page)
		}
	}
}
