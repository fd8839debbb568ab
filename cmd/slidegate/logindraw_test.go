package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/look"
	"github.com/slidegate/slidegate/internal/look/looktest"
)

// TestLoginPicture checks that the chart of --login shows the same denials of each budget as the
// report.
func TestLoginPicture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "logins.svg")
	got := guarded(t, "--picture", file)
	if got.Picture != file {
		t.Errorf("the report names the picture %q", got.Picture)
	}
	svg := text(t, file)
	d := looktest.Check(t, []byte(svg))
	d.Find(t, fmt.Sprintf("the built-in sample: %d of %d login attempts denied", got.Denied, got.Attempts))
	d.Legend(t, "allowed ("+strconv.Itoa(got.Allowed)+")", look.Blue)
	d.Legend(t, "denied ("+strconv.Itoa(got.Denied)+")", look.Vermilion)
	for _, b := range got.Budgets {
		if b.Denied > 0 {
			d.Find(t, "Denied by "+string(b.Budget))
			d.Find(t, fmt.Sprintf("%d denied, limits %s", b.Denied, strings.Join(b.Limits, ", ")))
		}
	}
	stdout, stderr, status := command(t.Context(), "replay", "--login", "--picture", file)
	if status != 0 || !strings.Contains(stdout, "\nPicture: "+file+"\n") {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	if again := text(t, file); again != svg {
		t.Error("two pictures of one replay differ")
	}
}

// TestLoginPictureReplacesNoLog checks that the picture never replaces a log.
func TestLoginPictureReplacesNoLog(t *testing.T) {
	log := older(t, "log.svg", "1,alice\n")
	_, stderr, status := command(t.Context(), "replay", "--login", "--picture", log, log)
	if status != 1 || !strings.Contains(stderr, "exists, and is no picture") || text(t, log) != "1,alice\n" {
		t.Errorf("status %d, %s", status, stderr)
	}
}
