// Command check checks the pages of the site: links, anchors, images, titles and descriptions.
// Nothing that a browser loads may come from elsewhere. `make site` runs it.
//
//	go run ./site/check SITE REPOSITORY
//
// It lists what is wrong, one line each, and exits with status 1 if there is anything.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: check SITE REPOSITORY")
		os.Exit(2)
	}
	s, err := read(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(2)
	}
	s.check()
	for _, fault := range s.faults {
		fmt.Println(fault)
	}
	if len(s.faults) > 0 {
		os.Exit(1)
	}
	fmt.Printf("%d pages and %d links are right.\n", len(s.pages), s.links)
}

// A site is what Hugo built.
type site struct {
	root, repository string
	pages            map[string]*page // by their path below root
	faults           []string
	links            int // that were checked
}

// read reads all pages of a site.
func read(root, repository string) (*site, error) {
	s := &site{root: root, repository: repository, pages: map[string]*page{}}
	return s, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".html" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		s.pages[filepath.ToSlash(name)], err = parse(string(text))
		return err
	})
}

// fault adds what is wrong with a page.
func (s *site) fault(name, format string, args ...any) {
	s.faults = append(s.faults, name+": "+fmt.Sprintf(format, args...))
}

// check checks every page.
func (s *site) check() {
	seen := map[string]string{}
	for name, p := range s.pages {
		s.head(name, p, seen)
		for _, id := range p.twice {
			s.fault(name, "the id %q occurs twice", id)
		}
		for _, image := range p.unnamed {
			s.fault(name, "the image %s has no alt text", image)
		}
		for _, to := range p.loads {
			s.load(name, to)
		}
		for _, to := range p.links {
			s.link(name, to)
		}
	}
	if len(s.pages) == 0 {
		s.fault(s.root, "there are no pages")
	}
}

// head checks the heading, the title and the description of a page.
func (s *site) head(name string, p *page, seen map[string]string) {
	if p.headings != 1 {
		s.fault(name, "%d headings <h1>, not one", p.headings)
	}
	for what, text := range map[string]string{"title": p.title, "description": p.description} {
		switch other := seen[text]; {
		case len(text) < 10:
			s.fault(name, "the %s %q is too short", what, text)
		case other != "":
			s.fault(name, "%s has the same %s: %s", other, what, text)
		}
		seen[text] = name
	}
}

// load checks what a browser loads with a page.
func (s *site) load(name, to string) {
	if strings.Contains(to, "//") {
		s.fault(name, "it loads %s from elsewhere", to)
		return
	}
	s.link(name, to)
}

// ours is where links to files of the repository lead that are no pages.
const ours = "https://github.com/slidegate/slidegate/blob/main/"

// link checks that a link leads to a page, an anchor or a file. Those to other sites are not
// followed.
func (s *site) link(name, to string) {
	s.links++
	target, fragment, _ := strings.Cut(to, "#")
	if file, ok := strings.CutPrefix(target, ours); ok {
		s.exists(name, to, filepath.Join(s.repository, filepath.FromSlash(file)))
		return
	}
	if strings.Contains(target, ":") { // it has a scheme
		return
	}
	at := name
	if target != "" {
		at = filepath.ToSlash(filepath.Join(filepath.Dir(name), filepath.FromSlash(target)))
		s.exists(name, to, filepath.Join(s.root, at))
	}
	if p := s.pages[at]; fragment != "" && p != nil && !p.ids[fragment] {
		s.fault(name, "the link %s leads to no heading", to)
	}
}

// exists checks that a link leads to a file.
func (s *site) exists(name, to, file string) {
	if _, err := os.Stat(file); err != nil {
		s.fault(name, "the link %s leads to no file", to)
	}
}
