package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

func TestMain(m *testing.M) {
	actAsChild()
	redistest.Main(m)
}

// page returns the contents of a file in the repository.
func page(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// publishedFigures returns the figures in docs/bench.json.
func publishedFigures(t *testing.T) (f figures) {
	t.Helper()
	if err := json.Unmarshal([]byte(page(t, "docs", figuresFile)), &f); err != nil {
		t.Fatal(err)
	}
	return f
}
