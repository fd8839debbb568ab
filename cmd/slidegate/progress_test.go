//go:build unix

package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/schollz/progressbar/v3"
)

// TestProgressBar: on a terminal a long read has a bar, which is gone at the end; a short one has none.
func TestProgressBar(t *testing.T) {
	for _, long := range []bool{true, false} {
		screen := onTerminal(t, func(tty *os.File) {
			bar := newProgress(tty, []string{"sample.log"})
			if long {
				progressbar.OptionSetWriter(&patient{tty, time.Now().Add(-2 * silent)})(bar)
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

// TestNoProgressBarInAPipe: nor with the sample.
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
	onTerminal(t, func(tty *os.File) {
		if newProgress(tty, nil) != nil {
			t.Error("a bar for the sample")
		}
	})
}

// onTerminal is what a terminal shows.
func onTerminal(t *testing.T, f func(tty *os.File)) string {
	t.Helper()
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no terminal to test on: %v", err)
	}
	defer terminal.Close()
	f(tty)
	if _, err := tty.WriteString("\n.\n"); err != nil {
		t.Fatal(err)
	}
	var screen strings.Builder
	for b := make([]byte, 1024); !strings.Contains(screen.String(), "\n."); {
		n, err := terminal.Read(b)
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		screen.Write(b[:n])
	}
	tty.Close()
	text, _, _ := strings.Cut(screen.String(), "\r\n.")
	return text
}
