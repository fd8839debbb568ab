//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// TestRedisForgetsAfterAnInterrupt interrupts the program while it waits for more of its log.
func TestRedisForgetsAfterAnInterrupt(t *testing.T) {
	program := os.Args[0]
	for _, place := range []string{redistest.Addr(t), clusterAddresses(t)} {
		for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
			ctx := aMinute(t)
			log, feed := pipe(t, ctx)
			replay := exec.CommandContext(ctx, program, "replay", "--redis", place, log)
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
				if ctx.Err() != nil {
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

// pipe creates a named pipe. The returned function opens it for writing once the program reads from
// it, and fails the test if ctx is done before that.
func pipe(t *testing.T, ctx context.Context) (name string, open func() *os.File) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name, func() *os.File {
		for {
			w, err := os.OpenFile(name, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			if err == nil {
				return w
			}
			if !errors.Is(err, syscall.ENXIO) || ctx.Err() != nil { // ENXIO means that the pipe has no reader
				t.Fatal(err)
			}
			<-time.After(10 * time.Millisecond)
		}
	}
}
