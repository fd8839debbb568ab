package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFindings checks that each kind of file gets exactly the findings that it deserves.
func TestFindings(t *testing.T) {
	long := strings.Repeat("word ", 31) + "end.\n"
	wide := strings.Repeat("wide ", 21)
	for _, test := range []struct {
		name, file, text string
		want             []string
	}{
		{"phrase in a comment", "a.go", "package a\n\n// x is for whoever\n// asks.\nvar x = 1\n", []string{`:3: "whoever"`}},
		{"phrase over two lines", "a.go", "package a\n\n// x is all but\n// for one.\nvar x = 1\n", []string{":3: \"but\\nfor\""}},
		{"phrase in a string", "a.go", "package a\n\nvar x = \"it tells\"\n", []string{`:3: "tells"`}},
		{"string of a test", "a_test.go", "package a\n\nvar x = \"it tells\"\n", nil},
		{"name", "a.go", "package a\n\nvar glanceAt = 1\n", []string{`:3: the name glanceAt says "glance"`}},
		{"part of a word", "a.go", "package a\n\nvar returned, soundness = 1, 2\n", nil},
		{"wide comment", "a.go", "package a\n\n// x " + wide + "\nvar x = 1\n", []string{":3: 110 columns"}},
		{"no verb", "a.go", "package a\n\n// f is the width.\nfunc f() {}\n", []string{":3: the comment of f"}},
		{"verb", "a.go", "package a\n\n// f also returns the width.\nfunc f() {}\n", nil},
		{"long sentence of a package", "a.go", "// Package a " + strings.ReplaceAll(long, "word word word", "word word\n// word") + "package a\n", []string{":1: a sentence of 34 words"}},
		{"page", "a.md", "# A turn\n\nIt is to be. `but for`\n\n    but for\n\n```\nlest\n```\n", []string{`:1: "turn"`, `:3: "is to be"`}},
		{"wide page", "a.md", wide + wide + "\n\n| " + wide + wide + " |\n", []string{":1: 210 columns"}},
		{"README", "README.md", strings.ReplaceAll(long, " word word", "\nword word"), []string{":1: a sentence of 32 words"}},
		{"Lua", "a.lua", "-- whoever\nlocal turn = 1\n", []string{`:1: "whoever"`}},
		{"help", "a.txt", "It tells.\n", []string{`:1: "tells"`}},
		{"other", "a.json", "whoever", nil},
	} {
		t.Run(test.name, func(t *testing.T) { check(t, test.file, test.text, test.want) })
	}
}

// check compares the findings in a file with their expected beginnings.
func check(t *testing.T, file, text string, want []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), file)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newReport()
	if err := r.tree(path); err != nil {
		t.Fatal(err)
	}
	for i, got := range r.findings {
		if got = strings.TrimPrefix(got, filepath.ToSlash(path)); i >= len(want) || !strings.HasPrefix(got, want[i]) {
			t.Errorf("got %s, want %q", got, want)
		}
	}
	if len(r.findings) < len(want) {
		t.Errorf("got %q, want %q", r.findings, want)
	}
}
