package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPicture checks that the chart is written in the format that its name implies, and that the
// report names it.
func TestPicture(t *testing.T) {
	for want, args := range map[string][]string{
		": 124 of 280":     {"--limit", "5/1h"},
		"3/10m, 20/1d":     {"--compare", "5/1h", "--compare", "3/10m,20/1d"},
		"114 of 280 login": {"--login"},
	} {
		file := filepath.Join(t.TempDir(), "limits.svg")
		stdout, stderr, status := command(t.Context(), append([]string{"replay", "--picture", file}, args...)...)
		if status != 0 || !strings.Contains(stdout, "\nPicture: "+file+"\n") {
			t.Fatalf("status %d, %s%s", status, stdout, stderr)
		}
		checkSVG(t, text(t, file), want)
	}
}

// TestLoginPicture checks that the chart of --login shows the same denials per budget as the
// report.
func TestLoginPicture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "logins.svg")
	got := guarded(t, "--picture", file)
	if got.Picture != file {
		t.Errorf("the report names the picture %q", got.Picture)
	}
	svg := text(t, file)
	checkSVG(t, svg, fmt.Sprintf("the built-in sample: %d of %d login attempts denied", got.Denied, got.Attempts))
	checkSVG(t, svg, fmt.Sprintf("allowed (%d)", got.Allowed))
	for _, b := range got.Budgets {
		if b.Denied > 0 {
			checkSVG(t, svg, fmt.Sprintf("%d denied, limits %s", b.Denied, strings.Join(b.Limits, ", ")))
		}
	}
}

// TestNoPictureAfterAnError checks that after an error an existing picture is unchanged and no new
// one is created.
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

// TestPictureReplacesNoLog checks that a picture never replaces a log whose name was given by
// mistake.
func TestPictureReplacesNoLog(t *testing.T) {
	for content, why := range map[string]string{"1,<svg\n": "exists, and is not a picture", "<svg>,1\n": "is one of the logs"} {
		log := older(t, "log.svg", content)
		for _, args := range [][]string{{"--picture", log, log}, {"--login", "--picture", log, log}} {
			_, stderr, status := command(t.Context(), append([]string{"replay"}, args...)...)
			if want := `slidegate: --picture: "` + log + `" ` + why + "; name another file\n"; status != 1 || stderr != want {
				t.Errorf("status %d, %s", status, stderr)
			}
		}
		if got := text(t, log); got != content {
			t.Errorf("the log is %q", got)
		}
	}
	for _, file := range []string{older(t, "empty.svg", ""), older(t, "x.svg", "<?xml version=\"1.0\"?>\n<svg>")} {
		if _, stderr, status := command(t.Context(), "replay", "--picture", file); status != 0 {
			t.Errorf("status %d, %s", status, stderr)
		}
	}
}
