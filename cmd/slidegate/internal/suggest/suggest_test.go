package suggest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/window"
)

// TestHonest checks that without results the event with the most attempts is not honest, and that 1
// % of several hundred events are not.
func TestHonest(t *testing.T) {
	for log, want := range map[string]int{
		"1,alice\n2,alice\n":                                  2, // the only event
		"1,alice\n2,bob\n3,bob\n4,bob\n":                      1,
		"1,alice\n2,bob\n3,alice\n4,bob\n":                    4, // no event has the most attempts
		strings.Repeat("1,mallory\n", 9) + hundredEvents(199): 199,
		strings.Repeat("1,mallory\n2,oscar\n", 9) + hundredEvents(199) + hundredEvents(100): 299,
	} {
		if h := read(t, log); h.Honest != want || h.BySuccess {
			t.Errorf("%.40q: %d honest; want %d", log, h.Honest, want)
		}
	}
	h := read(t, "Mar  4 05:06:07 h sshd[1]: Failed password for a from 192.0.2.1 port 1 ssh2\nMar  4 05:06:08 h sshd[1]: Accepted password for a from 192.0.2.1 port 1 ssh2\n")
	if h.Honest != 1 || !h.BySuccess {
		t.Errorf("%+v", h)
	}
}

// hundredEvents returns a line for each of n events.
func hundredEvents(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("5,event-" + time.Duration(i).String() + "\n")
	}
	return b.String()
}

// TestSteps checks that the steps increase and that, from 4 on, each is at most half as large again
// as the one before.
func TestSteps(t *testing.T) {
	for i, n := range steps[1:] {
		if last := steps[i]; n <= last || last >= 4 && 2*n > 3*last {
			t.Errorf("%d follows %d", n, last)
		}
	}
	if steps[0] != 1 || (window.Limit{Max: steps[len(steps)-1], Per: time.Second}).String() == "" {
		t.Errorf("%d", steps)
	}
}

// TestProposeEnds checks that the search ends when the context is done.
func TestProposeEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := read(t, strings.Repeat("1,alice\n2,alice\n900000,bob\n", 9)).Propose(ctx, 0.01); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestProposeNothing checks that nothing is proposed if no limit is good, or if no window is
// shorter than the log.
func TestProposeNothing(t *testing.T) {
	for _, log := range []string{
		"1,alice,9000000000000\n9000,alice,9000000000000\n",
		"1,alice\n1,alice\n",
		"1,alice\n9000,bob\n",
	} {
		if p, err := read(t, log).Propose(t.Context(), 0.01); err != nil || len(p.Sets) > 0 {
			t.Errorf("%q: %+v, %v", log, p, err)
		}
	}
}

// TestTried checks that Tried counts each set once.
func TestTried(t *testing.T) {
	h := read(t, strings.Repeat("1,alice\n2,alice\n900,bob\n", 9))
	if p, err := h.Propose(t.Context(), 0.01); err != nil || h.Tried() != len(p.Tried) || h.Tried() == 0 {
		t.Errorf("%d of %+v, %v", h.Tried(), p, err)
	}
}
