//go:build unix

// Package ttytest runs tests on a pseudo-terminal.
package ttytest

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// Screen returns what a terminal shows while f runs on it. It skips the test if the machine has no
// terminal.
func Screen(t *testing.T, f func(tty *os.File)) string {
	t.Helper()
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no terminal to test on: %v", err)
	}
	defer func() { _ = terminal.Close() }() // it ends with the test
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
	_ = tty.Close()
	text, _, _ := strings.Cut(screen.String(), "\r\n.")
	return text
}
