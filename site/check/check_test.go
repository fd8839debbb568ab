package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFaults checks that each fault of a page is found, and that a page without one passes.
func TestFaults(t *testing.T) {
	for _, test := range []struct{ name, old, new, want string }{
		{"right", "", "", ""},
		{"no heading", "<h1 id=one>One</h1>", "", "a.html: 0 headings"},
		{"no title", "<title>The first page</title>", "", `a.html: the title "" is too short`},
		{"no description", "description", "other", `a.html: the description "" is too short`},
		{"the same title", "The first page", "The second page", "has the same title"},
		{"dead link", "b.html#two", "c.html", "a.html: the link c.html leads to no file"},
		{"dead anchor", "b.html#two", "b.html#three", "a.html: the link b.html#three leads to no heading"},
		{"dead anchor here", "#one", "#none", "a.html: the link #none leads to no heading"},
		{"dead file of the repository", "LICENSE", "LICENCE", "leads to no file"},
		{"dead image", "i.svg", "j.svg", "a.html: the link j.svg leads to no file"},
		{"image without alt", `alt="i"`, "", "a.html: the image i.svg has no alt text"},
		{"image from elsewhere", "i.svg", "https://example.com/i.svg", "from elsewhere"},
		{"script from elsewhere", "s.js", "//example.com/s.js", "from elsewhere"},
		{"id twice", "<p>", "<p id=one>", `a.html: the id "one" occurs twice`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := strings.Join(faults(t, strings.Replace(first, test.old, test.new, 1)), "; ")
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

const first = `<!doctype html>
<html><head><title>The first page</title><meta name="description" content="It is the first page."><script src="s.js" defer></script></head>
<body><h1 id=one>One</h1><p>One &amp; two&nbsp;<a href="b.html#two">two</a><br><a href="#one">one</a></p>
<a href="https://github.com/slidegate/slidegate/blob/main/LICENSE">licence</a><a href="https://example.com">other</a>
<img src="i.svg" alt="i"></body></html>`

const second = `<html><head><title>The second page</title><meta name="description" content="It is the second page."></head>
<body><h1 id="two">Two</h1></body></html>`

// faults returns what is wrong with a site of two pages.
func faults(t *testing.T, first string) []string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"a.html": first, "b.html": second, "i.svg": "", "s.js": ""} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := read(root, "../..")
	if err != nil {
		t.Fatal(err)
	}
	s.check()
	return s.faults
}
