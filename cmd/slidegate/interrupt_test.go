//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/slidegate/slidegate/internal/redistest"
)

// TestRedisForgetsAfterAnInterrupt interrupts the program while it waits for more of its log.
func TestRedisForgetsAfterAnInterrupt(t *testing.T) {
	program := os.Args[0]
	for _, place := range []string{redistest.Addr(t), clusterAddresses(t)} {
		for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
			log, feed := pipe(t)
			replay := exec.Command(program, "replay", "--redis", place, log)
			var stderr strings.Builder
			replay.Stderr = &stderr
			if err := replay.Start(); err != nil {
				t.Fatal(err)
			}
			w := feed()
			for n := range 2000 {
				if _, err := fmt.Fprintf(w, "%d,event-%0100d\n", n, n%100); err != nil {
					t.Fatal(err)
				}
			}
			for len(keys(t, "slidegate-replay-")) == 0 { // otherwise the test would prove nothing
				if t.Context().Err() != nil {
					t.Fatal("no key")
				}
			}
			if err := replay.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if _ = replay.Wait(); replay.ProcessState.ExitCode() != 130 || !strings.HasPrefix(stderr.String(), "slidegate: interrupted after ") {
				t.Errorf("%v: status %d, %s", signal, replay.ProcessState.ExitCode(), stderr.String())
			}
			w.Close()
			checkForgotten(t, "")
		}
	}
}

// pipe creates a named pipe, and opens it for writing once the program reads it.
func pipe(t *testing.T) (name string, open func() *os.File) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name, func() *os.File {
		w, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
}
