//go:build unix

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
)

// TestReset checks that only the answer "yes" resets an event, and that only this event of this
// limiter is reset.
func TestReset(t *testing.T) {
	for answer, forgets := range map[string]bool{"y\n": true, "YES \n": true, "n\n": false, "\n": false, "yesterday\n": false, "\x04": false} {
		s := newService(t)
		s.count(t, "5/1h,20/1d", "alice", 2, 3*h, 30*m)
		s.count(t, "5/1h", "bob", 1, 30*m)
		s.raise(t, "5/1h", "alice", 1, 30*m)
		stdout, stderr, status := answered(t, answer, "reset", "--redis", redistest.Addr(t), s.name, "alice")
		summary, last := s.name+":{alice}:w on "+redistest.Addr(t)+" counts 2 units in 1h, 4 units in 1d.\n", "Nothing is forgotten.\n"
		if forgets {
			last = "Forgotten.\n"
		}
		if status != 0 || stdout != summary+last || stderr != "Forget alice in "+s.name+"? [y/N] " {
			t.Errorf("%q: status %d, %s%s", answer, status, stdout, stderr)
		}
		left := strings.Join(keys(t, s.name), " ")
		if strings.Contains(left, "{alice}:w") == forgets || !strings.Contains(left, "{bob}:w") || !strings.Contains(left, "{alice}:a") {
			t.Errorf("%q: %s is left", answer, left)
		}
	}
}

// answered runs the program in the afternoon, with the given answer typed at the keyboard.
func answered(t *testing.T, answer string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no terminal to test on: %v", err)
	}
	t.Cleanup(func() { terminal.Close(); tty.Close() })
	if _, err := terminal.WriteString(answer); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	status = run(aMinute(t), args, cli.Streams{In: tty, Out: &out, Err: &errs, Now: func() time.Time { return afternoon }})
	return out.String(), errs.String(), status
}

// TestResetUnasked checks that without a terminal no question is asked, and that nothing is reset
// unless --yes is given.
func TestResetUnasked(t *testing.T) {
	s := newService(t)
	s.secret = []byte("a secret of 18 b..")
	s.raise(t, "5/1h", "alice", 3, time.Millisecond)
	args := []string{"reset", "--ar1", "--secret-file", write(t, string(s.secret)+"\n"), "--redis", redistest.Addr(t), s.name, "alice"}
	stdout, stderr, status := command(t.Context(), args...)
	if want := "slidegate: nothing was deleted: reset asks for confirmation, and the standard input is not a terminal; add --yes to delete without confirmation\n"; status != 1 || stdout != "" || stderr != want {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	if left := keys(t, s.name); len(left) != 1 {
		t.Fatalf("%q are left", left)
	}
	for _, want := range []string{" counts level ", "Nothing is stored under the key " + s.name + ":{~"} {
		stdout, stderr, status = command(t.Context(), append(args, "--yes")...)
		if status != 0 || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("status %d, %s%s", status, stdout, stderr)
		}
	}
	if left := keys(t, s.name); len(left) != 0 {
		t.Errorf("%q are left", left)
	}
}

// TestResetPace checks that reset forgets the turns of package pace and a pause, and also a record
// that has neither because its last turn was cancelled.
func TestResetPace(t *testing.T) {
	s := newService(t)
	paused, cancelled := s.book(t, "1/5s", "alice", 0), s.book(t, "1/5s", "bob", 0)
	err := paused.Pause(t.Context(), "alice", 30*time.Second)
	if err == nil {
		var r pace.Reservation
		r, err = cancelled.Reserve(t.Context(), "bob")
		err = errors.Join(err, cancelled.Cancel(t.Context(), r))
	}
	if err != nil {
		t.Fatal(err)
	}
	for event, counts := range map[string]string{"alice": "1 unit in 5s, a pause that ends in 30s, at 14:00:30", "bob": "no unit"} {
		stdout, _, status := answered(t, "y\n", "reset", "--pace", "--redis", redistest.Addr(t), s.name, event)
		stdout = strings.ReplaceAll(stdout, "\n", " ")
		if want := s.name + ":{" + event + "}:r on " + redistest.Addr(t) + " counts " + counts + ". Forgotten. "; status != 0 || stdout != want {
			t.Errorf("status %d, %s, not %s", status, stdout, want)
		}
	}
	if left := keys(t, s.name); len(left) != 0 {
		t.Errorf("%q are left", left)
	}
}

// TestResetInterrupted checks that an interrupt at the question resets nothing.
func TestResetInterrupted(t *testing.T) {
	s := newService(t)
	s.count(t, "5/1h", "alice", 1, 30*m)
	ctx, cancel := context.WithCancel(aMinute(t))
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no terminal to test on: %v", err)
	}
	defer terminal.Close()
	defer tty.Close()
	errs := &stopper{after: 1, stop: cancel}
	status := run(ctx, []string{"reset", "--redis", redistest.Addr(t), s.name, "alice"}, cli.Streams{In: tty, Out: &strings.Builder{}, Err: errs})
	if status != 130 || !strings.HasSuffix(errs.String(), "slidegate: interrupted; nothing was deleted\n") || len(keys(t, s.name)) != 1 {
		t.Errorf("status %d, %s", status, errs)
	}
}
