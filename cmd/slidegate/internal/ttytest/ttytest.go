//go:build unix

// Package ttytest runs tests on a pseudo-terminal.
package ttytest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// Screen runs f on a terminal, and returns what the terminal shows. If the machine has no
// terminals, it skips the test. After a minute, it closes the terminal, which ends f and fails the
// test.
func Screen(t *testing.T, f func(tty *os.File)) string {
	t.Helper()
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no terminal to test on: %v", err)
	}
	hangUp := func() { _, _ = terminal.Close(), tty.Close() }
	defer hangUp()
	late := time.AfterFunc(time.Minute, hangUp)
	defer late.Stop()
	f(tty)
	if _, err := tty.WriteString("\n.\n"); err != nil {
		t.Fatal(err)
	}
	var screen strings.Builder
	for b := make([]byte, 1024); !strings.Contains(screen.String(), "\n."); {
		n, err := terminal.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		screen.Write(b[:n])
	}
	text, _, _ := strings.Cut(screen.String(), "\r\n.")
	return text
}
