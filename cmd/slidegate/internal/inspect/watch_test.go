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
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/ttytest"
)

// watched returns what a terminal shows of looks, and what a panic in them said.
func watched(t *testing.T, look func(ctx context.Context, n int) (shown, error)) (screen string, panicked any) {
	t.Helper()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1") // that is about colours alone
	screen = ttytest.Screen(t, func(tty *os.File) {
		defer func() { panicked = recover() }()
		if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
			t.Fatal(err)
		}
		c, n := &Command{Every: flags.Interval(time.Millisecond)}, 0
		if err := c.watch(t.Context(), func(ctx context.Context) (shown, error) { n++; return look(ctx, n) }, cli.Streams{Out: tty, Err: tty}); err != nil {
			t.Error(err)
		}
	})
	return screen, panicked
}

// TestWatchPanics: the terminal is given back before a panic is told.
func TestWatchPanics(t *testing.T) {
	screen, panicked := watched(t, func(_ context.Context, n int) (shown, error) {
		if n == 3 {
			panic("a bug")
		}
		return &State{Event: "alice"}, nil
	})
	if panicked != "a bug" || !strings.HasPrefix(screen, "\x1b[?1049h") || !strings.HasSuffix(screen, "\x1b[?1049l") {
		t.Errorf("%v: %q", panicked, screen)
	}
}

// TestWatchFails: while Redis fails, the error takes the place of the verdict, and the last look stays.
func TestWatchFails(t *testing.T) {
	screen, _ := watched(t, func(_ context.Context, n int) (shown, error) {
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
	if len(frames) != 3 || !strings.Contains(frames[1], "nothing is counted") || !strings.Contains(last, "alice\x1b[K") || !strings.Contains(last, "no Redis answers there; looking again") || strings.Contains(last, "nothing is counted") {
		t.Errorf("%q", frames)
	}
}
