//go:build unix

package inspect

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/ttytest"
)

// runWatch returns what a terminal shows during a watch, and the value of a panic, if there was
// one.
func runWatch(t *testing.T, fetch func(ctx context.Context, n int) (result, error)) (screen string, panicked any) {
	t.Helper()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1") // this affects only colours
	screen = ttytest.Screen(t, func(tty *os.File) {
		defer func() { panicked = recover() }()
		if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
			t.Fatal(err)
		}
		w, n := watcher{every: time.Millisecond}, 0
		if err := w.watch(t.Context(), func(ctx context.Context) (result, error) { n++; return fetch(ctx, n) }, cli.Streams{Out: tty, Err: tty}); err != nil {
			t.Error(err)
		}
	})
	return screen, panicked
}

// TestWatchPanics checks that watch restores the terminal before a panic is printed.
func TestWatchPanics(t *testing.T) {
	screen, panicked := runWatch(t, func(_ context.Context, n int) (result, error) {
		if n == 3 {
			panic("a bug")
		}
		return &State{Event: "alice"}, nil
	})
	if panicked != "a bug" || !strings.HasPrefix(screen, "\x1b[?1049h") || !strings.HasSuffix(screen, "\x1b[?1049l") {
		t.Errorf("%v: %q", panicked, screen)
	}
}

// TestWatchFails checks that while Redis fails, the error replaces the headline and the last state
// remains visible.
func TestWatchFails(t *testing.T) {
	screen, _ := runWatch(t, func(_ context.Context, n int) (result, error) {
		switch n {
		case 1:
			return &State{Event: "alice"}, nil
		case 2:
			return nil, errors.New("no Redis answers there")
		}
		panic("enough")
	})
	frames := strings.Split(screen, "\x1b[H")
	last := frames[len(frames)-1]
	if len(frames) != 3 || !strings.Contains(frames[1], "nothing is counted") || !strings.Contains(last, "alice\x1b[K") || !strings.Contains(last, "no Redis answers there; retrying") || strings.Contains(last, "nothing is counted") {
		t.Errorf("%q", frames)
	}
}
