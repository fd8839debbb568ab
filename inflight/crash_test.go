//go:build unix

package inflight_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// holderOf names the environment variable that holds the address of a server, and how many units
// TestHolder should hold.
const holderOf = "SLIDEGATE_TEST_HOLDER"

// A holder is a process that holds units.
type holder struct {
	*exec.Cmd
	lines *bufio.Scanner
}

// newHolder starts a process that holds the given number of leases of the event e.
func newHolder(t *testing.T, server *redistest.Server, units int) *holder {
	cmd := exec.Command(os.Args[0], "-test.run=^TestHolder$", "-test.v")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", holderOf, server.Addr(), units))
	out := must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	h := &holder{cmd, bufio.NewScanner(out)}
	h.await(t, "holds")
	return h
}

// await returns the rest of the next line that starts with the given word.
func (h *holder) await(t *testing.T, word string) string {
	t.Helper()
	for h.lines.Scan() {
		if rest, found := strings.CutPrefix(h.lines.Text(), word); found {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatalf("the holder ended before it printed %q", word)
	return ""
}

func (h *holder) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := h.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// TestHolder runs in the process of a holder. When its first lease is lost, it prints what it sees.
func TestHolder(t *testing.T) {
	var addr string
	var units int
	if n, _ := fmt.Sscan(os.Getenv(holderOf), &addr, &units); n < 2 {
		t.Skip("other tests run it")
	}
	client := must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}}))
	l := must(inflight.New(window.On(client), crashing(int64(units))))
	first := taken(t, l, "e")
	for range units - 1 {
		taken(t, l, "e")
	}
	work := first.Context(context.Background())
	fmt.Println("holds", first.Token())
	look := time.NewTicker(10 * time.Millisecond)
	for last := time.Now(); work.Err() == nil; <-look.C {
		if time.Since(last) > ttl { // the process was suspended
			fmt.Println("left", first.Left())
		}
		last = time.Now()
	}
	fmt.Println("lost", errors.Is(context.Cause(work), inflight.ErrLost))
}

func crashing(units int64) inflight.Config {
	return inflight.Config{Name: "jobs", Max: units, TTL: ttl, Timeout: ttl / 3}
}

// TestKilledHolder kills a process that holds 100 places. Each place must be free at the end of its
// lease, at most TTL later.
func TestKilledHolder(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := must(inflight.New(window.On(server.Client(t)), crashing(100)))
	h := newHolder(t, server, 100)
	<-time.After(2 * ttl) // long enough for renewals
	h.signal(t, syscall.SIGKILL)
	killed := must(l.Inspect(t.Context(), "e"))
	equal(t, "held after the kill", killed.Used, 100)
	last := killed.Leases[99].Until
	if last.Sub(killed.At) > ttl {
		t.Errorf("a lease ends %v after the kill", last.Sub(killed.At))
	}
	lease, err := l.AcquireN(t.Context(), "e", 100)
	if err != nil {
		t.Fatal(err)
	}
	if s := must(l.Inspect(t.Context(), "e")); s.Leases[0].Since.Before(last) || s.Used != 100 {
		t.Errorf("taken at %v, before %v", s.Leases[0].Since, last)
	}
	release(t, lease)
}

// TestStoppedHolder suspends a process that holds the only place, for longer than TTL. When the
// process continues, its first check of the lease must show that the lease is over, the lease's
// context must be canceled, and its token must be smaller than that of the next holder.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := must(inflight.New(window.On(server.Client(t)), crashing(1)))
	h := newHolder(t, server, 1)
	token := must(l.Inspect(t.Context(), "e")).Token
	h.signal(t, syscall.SIGSTOP)
	lease, err := l.Acquire(t.Context(), "e")
	if err != nil || lease.Token() <= token {
		t.Fatal(lease, err)
	}
	h.signal(t, syscall.SIGCONT)
	equal(t, "what it sees", h.await(t, "lost"), "true")
	if lease.Left() <= 0 {
		t.Error("the next holder lost the lease")
	}
	release(t, lease)
}
