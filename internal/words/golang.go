package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// goFile checks the comments, strings and names of a Go file.
func (r *report) goFile(path, text string) error {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, text, parser.ParseComments)
	if err != nil {
		return err
	}
	lines := strings.Split(text, "\n")
	for _, group := range f.Comments {
		r.group(path, fset, lines, group, group == f.Doc)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			r.literal(path, fset.Position(n.Pos()).Line, n)
		case *ast.FuncDecl:
			r.function(path, fset, n)
		}
		return true
	})
	r.names(path, fset, f)
	return nil
}

// group checks a comment. No sentence of a package comment is long.
func (r *report) group(path string, fset *token.FileSet, lines []string, group *ast.CommentGroup, strict bool) {
	first, last := fset.Position(group.Pos()).Line, fset.Position(group.End()).Line
	for line := first; line <= last; line++ {
		text := lines[line-1]
		if strings.HasPrefix(strings.TrimSpace(text), "//") {
			r.width(path, line, text, commentWidth)
		}
	}
	text := group.Text()
	r.phrases(path, first, text)
	r.sentences(path, first, prose(text), &r.comments, strict)
}

// literal checks a string of a program, such as an error or a help text.
func (r *report) literal(path string, line int, lit *ast.BasicLit) {
	if lit.Kind != token.STRING || strings.HasSuffix(path, "_test.go") {
		return
	}
	if text, err := strconv.Unquote(lit.Value); err == nil {
		r.phrases(path, line, text)
	}
}

// function counts the comment of a function, and finds one that does not say what it does.
func (r *report) function(path string, fset *token.FileSet, f *ast.FuncDecl) {
	if f.Doc == nil || strings.HasSuffix(path, "_test.go") || f.Name.Name == "main" {
		return
	}
	r.functions++
	if beginsWithVerb(f.Name.Name, f.Doc.Text()) {
		r.verbs++
		return
	}
	r.find(path, fset.Position(f.Doc.Pos()).Line, "the comment of %s does not begin with its name and a verb, such as \"%[1]s returns\"", f.Name.Name)
}

// beginsWithVerb reports whether a comment says "name returns", "name reports" or the like.
func beginsWithVerb(name, comment string) bool {
	rest, ok := strings.CutPrefix(comment, name+" ")
	if !ok {
		return false
	}
	for _, word := range strings.Fields(rest) {
		if strings.HasSuffix(word, "ly") || word == "never" || word == "also" || word == "then" {
			continue
		}
		return strings.HasSuffix(word, "s") && !notVerbs[word]
	}
	return false
}

// names finds identifiers that nobody would search for.
func (r *report) names(path string, fset *token.FileSet, f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Obj != nil && id.Obj.Pos() == id.Pos() {
			r.name(path, fset.Position(id.Pos()).Line, id.Name)
		}
		if f, ok := n.(*ast.FuncDecl); ok && f.Recv != nil {
			r.name(path, fset.Position(f.Name.Pos()).Line, f.Name.Name)
		}
		return true
	})
}

var part = regexp.MustCompile(`[A-Z]?[a-z0-9]+|[A-Z]+`)

// name finds a riddle among the words of a name.
func (r *report) name(path string, line int, name string) {
	for _, word := range part.FindAllString(name, -1) {
		if riddle.MatchString(strings.ToLower(word)) && !excepted(path) {
			r.find(path, line, "the name %s says %q: use a term of the field", name, strings.ToLower(word))
		}
	}
}

// prose removes the code, the lists' marks and the headings of a comment.
func prose(comment string) string {
	var kept []string
	for _, line := range strings.Split(comment, "\n") {
		switch {
		case strings.HasPrefix(line, "\t"), strings.HasPrefix(line, "    "), strings.HasPrefix(line, "# "):
			line = ""
		case strings.HasPrefix(strings.TrimSpace(line), "- "):
			kept = append(kept, "")
			line = strings.TrimPrefix(strings.TrimSpace(line), "- ")
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
}

// hasLetter reports whether a word has a letter or a digit.
func hasLetter(word string) bool {
	return strings.ContainsFunc(word, func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) })
}
