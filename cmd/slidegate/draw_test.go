package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPicture: the picture is SVG, says what it shows, and is the same each time.
func TestPicture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.svg")
	for name, args := range map[string][]string{
		": 124 of 280": {"--limit", "5/1h"},
		"3/10m, 20/1d": {"--compare", "5/1h", "--compare", "3/10m,20/1d"},
		": 0 of 280":   {"--limit", "1000/1h"},
	} {
		var before string
		for range 2 {
			stdout, stderr, status := command(t.Context(), append([]string{"replay", "--svg", file}, args...)...)
			if status != 0 || !strings.HasSuffix(stdout, "\nPicture: "+file+"\n") {
				t.Fatalf("status %d, %s%s", status, stdout, stderr)
			}
			svg := text(t, file)
			if before != "" && svg != before {
				t.Errorf("%s: two pictures of one replay differ", name)
			}
			before = svg
		}
		checkSVG(t, before, name)
	}
}

// checkSVG fails the test if a picture is not well-formed, or lacks a text.
func checkSVG(t *testing.T, svg, want string) {
	t.Helper()
	var texts strings.Builder
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := token.(xml.CharData); ok {
			texts.Write(s)
		}
	}
	if !strings.Contains(texts.String(), want) {
		t.Errorf("no %q in the picture", want)
	}
}

func text(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestNoPictureAfterAnError: an older picture stays as it is, and no new one appears.
func TestNoPictureAfterAnError(t *testing.T) {
	old, fresh, link := write(t, "<svg>old"), filepath.Join(t.TempDir(), "fresh.svg"), filepath.Join(t.TempDir(), "link.svg")
	if err := os.Symlink(filepath.Join(t.TempDir(), "nowhere"), link); err != nil {
		t.Log(err)
	}
	for _, file := range []string{old, fresh, link} {
		if _, _, status := command(t.Context(), "replay", "--svg", file, write(t, "")); status != 1 {
			t.Errorf("status %d", status)
		}
	}
	if got := text(t, old); got != "<svg>old" {
		t.Errorf("the older picture is %q", got)
	}
	if _, err := os.Stat(fresh); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a picture of nothing: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(fresh)); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestPictureReplacesNoLog: who forgets the name of the picture, or of the log, keeps the log.
func TestPictureReplacesNoLog(t *testing.T) {
	log := write(t, "1,alice\n")
	for _, args := range [][]string{{"replay", "--svg", log, log}, {"replay", "--svg", log}} {
		_, stderr, status := command(t.Context(), args...)
		if want := `slidegate: --svg: "` + log + `" exists, and is no SVG picture; name another file` + "\n"; status != 1 || stderr != want {
			t.Errorf("status %d, %s", status, stderr)
		}
	}
	if got := text(t, log); got != "1,alice\n" {
		t.Errorf("the log is %q", got)
	}
	for _, file := range []string{write(t, ""), write(t, "<?xml version=\"1.0\"?>\n<svg>")} {
		if _, stderr, status := command(t.Context(), "replay", "--svg", file); status != 0 {
			t.Errorf("status %d, %s", status, stderr)
		}
	}
}
