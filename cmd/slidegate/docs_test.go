package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// aboutSample is the heading of the section in docs/replay.md that covers the built-in sample.
const aboutSample = "## The built-in sample"

// TestSamplePage runs the command on the built-in sample that docs/replay.md shows with its output.
func TestSamplePage(t *testing.T) {
	_, section, _ := strings.Cut(text(t, "../../docs/replay.md"), aboutSample)
	checkShown(t, section, 1)
}

// TestDocs runs the commands on a public log that docs/replay.md shows with their output.
func TestDocs(t *testing.T) {
	log := openSSH(t)
	page, _, _ := strings.Cut(text(t, "../../docs/replay.md"), aboutSample)
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.Symlink(log, "OpenSSH_2k.log"); err != nil {
		t.Skip(err)
	}
	checkShown(t, page, 4)
	checkDrawn(t, repository+"/docs/openssh.svg", "limits.svg")
	checkDrawn(t, repository+"/docs/openssh-login.svg", "logins.svg")
}

// checkShown runs the commands in the text of a page, and compares their output with the lines
// below them. A line "..." matches any number of lines.
func checkShown(t *testing.T, page string, commands int) {
	t.Helper()
	page = strings.ReplaceAll(page, "go run ./cmd/slidegate replay", "slidegate replay")
	blocks := strings.Split(page, "    $ slidegate ")[1:]
	for _, block := range blocks {
		args, rest, _ := strings.Cut(strings.ReplaceAll(block, "\\\n    ", ""), "\n")
		got, stderr, status := command(t.Context(), strings.Fields(args)...)
		if status != 0 {
			t.Errorf("slidegate %s: status %d, %s", args, status, stderr)
		}
		checkLines(t, args, indented(rest), strings.ReplaceAll(got, "\\\n", ""))
	}
	if len(blocks) != commands {
		t.Errorf("%d commands are shown, not %d", len(blocks), commands)
	}
}

// indented returns the lines at the start of page, up to the first line that is not indented.
func indented(page string) (lines []string) {
	for line := range strings.Lines(page) {
		text, ok := strings.CutPrefix(line, "    ")
		if !ok && strings.TrimSpace(line) != "" {
			break
		}
		if text = strings.TrimSpace(text); text != "" {
			lines = append(lines, text)
		}
	}
	return lines
}

// checkLines checks that the output contains the given lines, in that order.
func checkLines(t *testing.T, args string, want []string, output string) {
	t.Helper()
	next := true // whether the line must follow immediately
	for _, line := range want {
		if line == "..." {
			next = false
			continue
		}
		before, after, found := cutTrimmed(output, line)
		if !found || next && strings.TrimSpace(before) != "" {
			t.Errorf("slidegate %s does not print, or not there: %q", args, line)
			return
		}
		output, next = after, true
	}
}

// cutTrimmed splits output at a line, whose indentation may differ.
func cutTrimmed(output, line string) (before, after string, found bool) {
	for rest := output; rest != ""; {
		var text string
		text, rest, _ = strings.Cut(rest, "\n")
		if strings.TrimSpace(text) == line {
			return before, rest, true
		}
		before += text
	}
	return output, "", false
}

// TestSamplePicture compares the chart of the sample in docs/replay.md with what the program draws.
// To redraw it: go test ./cmd/slidegate -update.
func TestSamplePicture(t *testing.T) {
	drawn := filepath.Join(t.TempDir(), "sample.svg")
	if _, stderr, status := command(t.Context(), "replay", "--picture", drawn); status != 0 {
		t.Fatal(stderr)
	}
	checkDrawn(t, "../../docs/sample.svg", drawn)
}

// checkDrawn checks that a chart in the documentation contains the same texts as the chart just
// drawn. With -update, it replaces the former.
func checkDrawn(t *testing.T, file, drawn string) {
	t.Helper()
	if *update {
		checkGolden(t, file, text(t, drawn))
	}
	if kept, got := textsOf(t, text(t, file)), textsOf(t, text(t, drawn)); kept != got {
		t.Errorf("%s says %s, and the program %s; run go test with -update", file, kept, got)
	}
}
