// Command words checks the language of this project: avoided words, the width of comments and
// Markdown, and long sentences. `make lint` runs it.
//
//	go run ./internal/words          # every file
//	go run ./internal/words FILE...  # some files or directories
//	go run ./internal/words -stats   # counts, too
//
// It reads comments, Markdown, help texts and the strings of programs. It exits with status 1 if it
// finds anything. Exceptions stand in rules.go, each with its reason.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	long := flag.Bool("long", false, "list every long sentence")
	stats := flag.Bool("stats", false, "print counts of words and sentences")
	flag.Parse()
	roots := flag.Args()
	if len(roots) == 0 {
		roots = []string{"."}
	}
	r := newReport()
	r.listLong = *long
	for _, root := range roots {
		if err := r.tree(root); err != nil {
			fmt.Fprintln(os.Stderr, "words:", err)
			os.Exit(2)
		}
	}
	if flag.NArg() == 0 {
		r.shares()
	}
	fmt.Print(r.text(*stats))
	if len(r.findings) > 0 {
		os.Exit(1)
	}
}

// A report collects what is wrong, and counts.
type report struct {
	findings []string
	comments sentences      // of Go
	pages    sentences      // of Markdown
	words    map[string]int // of each page
	files    []string       // the pages, in order

	listLong bool // also those that may be long

	functions, verbs int // comments of functions outside tests, and those that begin with a verb
}

func newReport() *report { return &report{words: map[string]int{}} }

// Sentences counts sentences, and those that are long.
type sentences struct{ all, long int }

// tree checks all files below a root.
func (r *report) tree(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipped(d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		return r.file(path)
	})
}

// skipped reports whether a directory holds nothing that people of this project wrote as text.
func skipped(name string) bool {
	return name == ".git" || name == "testdata" || name == "node_modules" || name == "public"
}

// file checks one file as its kind requires.
func (r *report) file(path string) error {
	check := kindOf(path)
	if check == nil {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return check(r, filepath.ToSlash(path), string(text))
}

// kindOf returns what checks a file, or nil.
func kindOf(path string) func(*report, string, string) error {
	switch filepath.Ext(path) {
	case ".go":
		return (*report).goFile
	case ".md":
		return (*report).page
	case ".txt":
		return (*report).plain
	case ".lua":
		return marked("--")
	case ".ts":
		return marked("//", "/*", "*")
	case ".py", ".sh", ".yml", ".yaml":
		return marked("#", `"""`)
	}
	if base := filepath.Base(path); base == "Makefile" || strings.HasSuffix(filepath.Dir(path), ".ci") {
		return marked("#")
	}
	return nil
}

// find adds a finding.
func (r *report) find(path string, line int, format string, args ...any) {
	r.findings = append(r.findings, fmt.Sprintf("%s:%d: ", path, line)+fmt.Sprintf(format, args...))
}

// shares finds that too many sentences are long, in the comments or on the pages of the whole
// project.
func (r *report) shares() {
	for where, s := range map[string]sentences{"comments": r.comments, "pages": r.pages} {
		if float64(s.long) >= longShare*float64(s.all) {
			r.findings = append(r.findings, fmt.Sprintf("%s: %d of %d sentences have above %d words: list them by -long",
				where, s.long, s.all, longSentence))
		}
	}
}

// text returns the findings and, on request, the counts.
func (r *report) text(stats bool) string {
	var b strings.Builder
	for _, f := range r.findings {
		fmt.Fprintln(&b, f)
	}
	if !stats {
		return b.String()
	}
	fmt.Fprintln(&b, "comments ", r.comments)
	fmt.Fprintln(&b, "pages    ", r.pages)
	fmt.Fprintf(&b, "functions  %d comments outside tests, %s begin with a verb\n", r.functions, percent(r.verbs, r.functions))
	for _, page := range r.files {
		fmt.Fprintf(&b, "%6d words  %s\n", r.words[page], page)
	}
	return b.String()
}

// String says how many sentences there are, and how many of them are long.
func (s sentences) String() string {
	return fmt.Sprintf("%d sentences, %s above %d words", s.all, percent(s.long, s.all), longSentence)
}

// percent returns a part with its share, such as "5 (2.5 %)".
func percent(part, whole int) string {
	return fmt.Sprintf("%d (%.1f %%)", part, 100*float64(part)/max(1, float64(whole)))
}
