package main

import (
	"errors"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/look"
	"github.com/slidegate/slidegate/internal/look/looktest"
)

// TestPicture checks that the chart is valid SVG, has its title, and is the same each time.
func TestPicture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.svg")
	for name, args := range map[string][]string{
		": 124 of 280": {"--limit", "5/1h"},
		"3/10m, 20/1d": {"--compare", "5/1h", "--compare", "3/10m,20/1d"},
		": 0 of 280":   {"--limit", "1000/1h"},
	} {
		var before string
		for range 2 {
			stdout, stderr, status := command(t.Context(), append([]string{"replay", "--picture", file}, args...)...)
			if status != 0 || !strings.Contains(stdout, "\nPicture: "+file+"\n") {
				t.Fatalf("status %d, %s%s", status, stdout, stderr)
			}
			svg := text(t, file)
			if before != "" && svg != before {
				t.Errorf("%s: two pictures of one replay differ", name)
			}
			before = svg
		}
		checkSVG(t, before, name)
		looktest.Check(t, []byte(before)).Legend(t, "attempts (280)", look.Shade)
	}
}

// TestPNG checks that a name that ends in .png gives a PNG, whatever its case.
func TestPNG(t *testing.T) {
	if testing.Short() {
		t.Skip("it draws in one goroutine, for seconds under the race detector")
	}
	for _, args := range [][]string{{"--limit", "5/1h"}, {"--suggest"}} {
		file := filepath.Join(t.TempDir(), "limits.PNG")
		for range 2 { // the second replaces the first
			if _, stderr, status := command(t.Context(), append([]string{"replay", "--picture", file}, args...)...); status != 0 {
				t.Fatal(stderr)
			}
		}
		if size, err := png.DecodeConfig(strings.NewReader(text(t, file))); err != nil || size.Width != 2000 {
			t.Errorf("%v, %d pixels across", err, size.Width)
		}
	}
}

// TestNoPictureAfterAnError checks that after an error an older picture is unchanged, and no new
// one appears.
func TestNoPictureAfterAnError(t *testing.T) {
	old, fresh, link := older(t, "old.svg", "<svg>old"), filepath.Join(t.TempDir(), "fresh.svg"), filepath.Join(t.TempDir(), "link.svg")
	if err := os.Symlink(filepath.Join(t.TempDir(), "nowhere"), link); err != nil {
		t.Log(err)
	}
	for _, file := range []string{old, fresh, link} {
		if _, _, status := command(t.Context(), "replay", "--picture", file, write(t, "")); status != 1 {
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

// TestPictureReplacesNoLog checks that the picture never replaces a log whose name was given by
// mistake.
func TestPictureReplacesNoLog(t *testing.T) {
	log := older(t, "log.svg", "1,alice\n")
	for _, args := range [][]string{{"replay", "--picture", log, log}, {"replay", "--picture", log}} {
		_, stderr, status := command(t.Context(), args...)
		if want := `slidegate: --picture: "` + log + `" exists, and is no picture; name another file` + "\n"; status != 1 || stderr != want {
			t.Errorf("status %d, %s", status, stderr)
		}
	}
	if got := text(t, log); got != "1,alice\n" {
		t.Errorf("the log is %q", got)
	}
	for _, file := range []string{older(t, "empty.svg", ""), older(t, "x.svg", "<?xml version=\"1.0\"?>\n<svg>"), older(t, "x.png", "<svg>")} {
		if _, stderr, status := command(t.Context(), "replay", "--picture", file); status != 0 {
			t.Errorf("status %d, %s", status, stderr)
		}
	}
}
