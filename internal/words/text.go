package main

import (
	"path/filepath"
	"regexp"
	"strings"
)

// page checks a page in Markdown. The README has no long sentence.
func (r *report) page(path, text string) error {
	prose, fenced := make([]string, 0, 100), false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			fenced, line = !fenced, ""
		}
		if fenced || strings.HasPrefix(line, "    ") && !inList(prose) {
			line = ""
		}
		if !unbreakable(trimmed) {
			r.width(path, i+1, line, markdownWidth)
		}
		prose = append(prose, inlineCode.ReplaceAllString(line, "`x`"))
	}
	read := strings.Join(prose, "\n")
	r.phrases(path, 1, read)
	r.sentences(path, 1, paragraphs(prose), &r.pages, filepath.Base(path) == "README.md")
	r.words[path] = countWords(text)
	r.files = append(r.files, path)
	return nil
}

var inlineCode = regexp.MustCompile("`[^`\n]+`")

// inList reports whether the last line that is not empty belongs to a list.
func inList(lines []string) bool {
	for i := len(lines) - 1; i >= 0; i-- {
		if line := lines[i]; line != "" {
			return strings.HasPrefix(line, " ") || listMark.MatchString(line)
		}
	}
	return false
}

var listMark = regexp.MustCompile(`^\s*([-*]|\d+\.)\s+`)

// unbreakable reports whether a line cannot be wrapped: a table's row, an image, a heading.
func unbreakable(line string) bool {
	for _, prefix := range []string{"|", "![", "[![", "<", "#"} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// paragraphs separates list items and the cells of tables by empty lines, and removes headings.
func paragraphs(lines []string) string {
	var kept []string
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "#"):
			line = ""
		case strings.HasPrefix(line, "|"):
			line = strings.ReplaceAll(line, "|", "\n\n")
		case listMark.MatchString(line):
			line = "\n" + listMark.ReplaceAllString(line, "")
		}
		kept = append(kept, link.ReplaceAllString(line, "$1"))
	}
	return strings.Join(kept, "\n")
}

var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// plain checks a text that a program prints.
func (r *report) plain(path, text string) error {
	r.phrases(path, 1, text)
	return nil
}

// marked returns what checks the comments of a language, which begin with these marks.
func marked(marks ...string) func(*report, string, string) error {
	return func(r *report, path, text string) error {
		var comments []string
		for i, line := range strings.Split(text, "\n") {
			if !hasMark(strings.TrimSpace(line), marks) {
				line = ""
			}
			r.width(path, i+1, line, commentWidth)
			comments = append(comments, line)
		}
		r.phrases(path, 1, strings.Join(comments, "\n"))
		return nil
	}
}

// hasMark reports whether a line begins with one of these marks.
func hasMark(line string, marks []string) bool {
	for _, mark := range marks {
		if strings.HasPrefix(line, mark) {
			return true
		}
	}
	return false
}

// width finds a line that is too wide and could be wrapped.
func (r *report) width(path string, line int, text string, columns int) {
	text = strings.ReplaceAll(text, "\t", "    ")
	if n := len([]rune(text)); n > columns && len(strings.Fields(text)) > 2 {
		r.find(path, line, "%d columns, above %d", n, columns)
	}
}

// phrases finds avoided phrases.
func (r *report) phrases(path string, first int, text string) {
	if excepted(path) {
		return
	}
	for _, a := range avoid {
		for _, at := range a.phrase.FindAllStringIndex(text, -1) {
			r.find(path, first+strings.Count(text[:at[0]], "\n"), "%q: better %s", text[at[0]:at[1]], a.better)
		}
	}
}

// sentences counts the sentences of paragraphs, and finds long ones where none may be.
func (r *report) sentences(path string, first int, text string, count *sentences, strict bool) {
	for _, paragraph := range strings.Split(text, "\n\n") {
		for _, sentence := range split(paragraph) {
			n := countWords(sentence)
			if n == 0 {
				continue
			}
			count.all++
			if n <= longSentence {
				continue
			}
			count.long++
			if strict || r.listLong {
				r.find(path, first, "a sentence of %d words: %.60s...", n, strings.Join(strings.Fields(sentence), " "))
			}
		}
	}
}

var sentenceEnd = regexp.MustCompile(`[.!?][)"*_]*\s+`)

// split splits a paragraph into sentences.
func split(paragraph string) []string { return sentenceEnd.Split(paragraph, -1) }

// countWords counts words that have a letter or a digit.
func countWords(text string) (n int) {
	for _, word := range strings.Fields(text) {
		if hasLetter(word) {
			n++
		}
	}
	return n
}
