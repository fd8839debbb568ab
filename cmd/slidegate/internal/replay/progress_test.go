//go:build unix

package replay

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/ttytest"
)

// TestProgressBar checks that on a terminal a long read shows a progress bar, which disappears at
// the end, and that a short read shows none.
func TestProgressBar(t *testing.T) {
	for _, long := range []bool{true, false} {
		screen := ttytest.Screen(t, func(tty *os.File) {
			bar := newProgress(tty, []string{"sample.log"})
			if long {
				progressbar.OptionSetWriter(&delayedWriter{tty, time.Now().Add(-2 * barDelay)})(bar)
			}
			if n, err := bar.Write(make([]byte, 10_000)); n != 10_000 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
			if err := bar.Clear(); err != nil {
				t.Error(err)
			}
		})
		if shown := strings.Contains(screen, "reading") && strings.Contains(screen, "%"); shown != long {
			t.Errorf("long: %v, %q", long, screen)
		}
		if i := strings.LastIndex(screen, "reading"); long && strings.TrimSpace(screen[strings.LastIndex(screen[i:], "\r")+i:]) != "" {
			t.Errorf("something is left: %q", screen)
		}
	}
}

// TestNoProgressBarInAPipe checks that no progress bar is written to a pipe, or shown for the
// sample.
func TestNoProgressBarInAPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if newProgress(w, []string{"sample.log"}) != nil || newProgress(&strings.Builder{}, []string{"sample.log"}) != nil {
		t.Error("a bar in a pipe")
	}
	ttytest.Screen(t, func(tty *os.File) {
		if newProgress(tty, nil) != nil {
			t.Error("a bar for the sample")
		}
	})
}
