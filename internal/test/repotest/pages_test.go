package repotest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// TestReadmeIsShort checks that the README is short enough to be read in a few minutes.
func TestReadmeIsShort(t *testing.T) {
	const most = 110
	if lines := strings.Count(text(t, root+"/README.md"), "\n"); lines > most {
		t.Errorf("README.md has %d lines, more than %d: move something to a page of docs", lines, most)
	}
}

// TestIndexOfPages checks that docs/README.md links to each page in docs.
func TestIndexOfPages(t *testing.T) {
	pages, err := filepath.Glob(root + "/docs/*.md")
	if err != nil || len(pages) < 2 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	index := text(t, root+"/docs/README.md")
	for _, page := range pages {
		name := filepath.Base(page)
		if name != "README.md" && !strings.Contains(index, "\n- ["+name+"]("+name+"): ") {
			t.Errorf("docs/README.md does not list %s: add a line that starts with \"- [%s](%s): \"", name, name, name)
		}
	}
}

// TestLinks checks that each relative link in a Markdown file leads to a file in this repository,
// and each anchor to a heading.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|href)="([^"]+)"`)
	for _, file := range markdownFiles(t) {
		for _, match := range link.FindAllStringSubmatch(withoutCode(text(t, file)), -1) {
			target := match[1] + match[2]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if problem := followLink(t, file, target); problem != "" {
				t.Errorf("%s: the link to %s is dead: %s", file, target, problem)
			}
		}
	}
}

// TestRunbook checks that each alert links to the section of docs/production.md whose title is the
// alert's name.
func TestRunbook(t *testing.T) {
	file := root + "/docs/monitoring/alerts.yml"
	runbook := regexp.MustCompile(`runbook_url: "https://github.com/slidegate/slidegate/blob/main/docs/(production\.md#(\S+))"`)
	rules := strings.Split(text(t, file), "- alert: ")[1:]
	if len(rules) == 0 {
		t.Error("no alerts")
	}
	for _, rule := range rules {
		alert, _, _ := strings.Cut(rule, "\n")
		link := runbook.FindStringSubmatch(rule)
		if link == nil || !slices.Contains(strings.Split(link[2], "-"), strings.ToLower(alert)) {
			t.Errorf("%s: its runbook_url is %q: link to its section of docs/production.md", alert, link)
		} else if problem := followLink(t, file, "../"+link[1]); problem != "" {
			t.Errorf("%s: its runbook_url leads to no section: %s", alert, problem)
		}
	}
}

// TestPromises checks that each promise in docs/guarantees.md has a row in the table of tests, and
// that these tests exist.
func TestPromises(t *testing.T) {
	page := text(t, root+"/docs/guarantees.md")
	promises, _, _ := strings.Cut(page, "\n## What is not promised\n")
	_, table, _ := strings.Cut(page, "\n| promise | tests |")
	for _, heading := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(promises, -1) {
		if !strings.Contains(table, "\n| "+heading[1]+" | `") {
			t.Errorf("docs/guarantees.md lists no tests of %s", heading[1])
		}
	}
	for _, of := range regexp.MustCompile("`([a-z0-9_/]+)`: ((?:Test|Fuzz)[^;|]+)").FindAllStringSubmatch(table, -1) {
		files, err := filepath.Glob(root + "/" + of[1] + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		var code strings.Builder
		for _, file := range files {
			code.WriteString(text(t, file))
		}
		for name := range strings.SplitSeq(of[2], ", ") {
			if !strings.Contains(code.String(), "\nfunc "+strings.TrimSpace(name)+"(") {
				t.Errorf("%s has no %s", of[1], name)
			}
		}
	}
}

// markdownFiles returns all Markdown files, except those in hidden directories and those of other
// projects.
func markdownFiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, entry os.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "node_modules" || name == "testdata" || strings.HasPrefix(name, ".") && file != root):
			return filepath.SkipDir
		case filepath.Ext(file) == ".md":
			files = append(files, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// followLink returns what is wrong with the relative link to target in file, or "".
func followLink(t *testing.T, file, target string) string {
	t.Helper()
	path, anchor, _ := strings.Cut(target, "#")
	to := file
	if path != "" {
		to = filepath.Join(filepath.Dir(file), path)
	}
	if _, err := os.Stat(to); err != nil {
		return err.Error()
	}
	if anchor == "" || filepath.Ext(to) != ".md" {
		return ""
	}
	for line := range strings.Lines(withoutCode(text(t, to))) {
		if heading := strings.TrimLeft(line, "#"); heading != line && slug(heading) == anchor {
			return ""
		}
	}
	return "no heading has this anchor"
}

// slug returns the anchor that GitHub generates for a heading.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}

// withoutCode removes fenced and indented code blocks from a page.
func withoutCode(page string) string {
	var kept strings.Builder
	fenced := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		} else if !fenced && !strings.HasPrefix(line, "    ") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
