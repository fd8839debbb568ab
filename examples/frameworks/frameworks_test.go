// Package frameworks tests the page docs/frameworks.md, which quotes the services in its
// subdirectories.
package frameworks

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/examples/internal/snippets"
)

// TestPage checks that docs/frameworks.md quotes code of the services, and names the versions of the
// frameworks that they are tested with.
func TestPage(t *testing.T) {
	const page = "../../docs/frameworks.md"
	services, err := filepath.Glob("*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	snippets.Check(t, page, snippets.Code(t, services...), 12)

	text := snippets.Read(t, page)
	for _, m := range regexp.MustCompile(`(?m)^\t\S+/(chi|gin|echo|connect)(?:/v5)? (v\S+)$`).FindAllStringSubmatch(snippets.Read(t, "../go.mod"), -1) {
		if !strings.Contains(text, m[1]+" "+m[2]) {
			t.Errorf("the tests run with %s %s, and %s does not say so", m[1], m[2], page)
		}
	}
}
