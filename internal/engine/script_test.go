package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// names returns the names of commands, such as "EVALSHA EVAL".
func names(commands []command) string {
	var all []string
	for _, c := range commands {
		all = append(all, c.name)
	}
	return strings.Join(all, " ")
}

// TestUnknownScript checks that a server that does not know the script gets it at once.
func TestUnknownScript(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		s.forgetScript()
		got := attemptOne(t, l, "alone")
		wantError(t, "alone", got.err, nil)
		wantEqual(t, "took", got.took, 0)
		wantEqual(t, "alone", names(s.receivedCalls()), "EVALSHA EVAL")
		mustAllow(t, l, "alone")
	})
}

// TestScriptForgottenInABatch checks a server that forgets the script before or within a batch. It
// gets the script once, and the rest of the batch again by its hash. Each request is executed once.
func TestScriptForgottenInABatch(t *testing.T) {
	for _, known := range []int{0, 1, yieldThreshold / 2, yieldThreshold - 1} {
		onFakeTime(t, func(t *testing.T, s *server) {
			l := limiter(t, s.client(t))
			occupySenders(t, s, l)
			executed := 0
			s.chooseActions(func(command) action { // with the server's mu held
				if executed++; executed == maxSenders+known+1 {
					s.known = false
				}
				return action{}
			})
			callers := fillBatch(t, l)
			s.release()
			for _, c := range callers {
				wantError(t, "filler", c.wait().err, nil)
				wantEqual(t, "took", c.took, 0)
			}
			unknown := yieldThreshold - known
			want := strings.Fields(strings.Repeat("EVALSHA ", maxSenders+yieldThreshold) + "EVAL " + strings.Repeat("EVALSHA ", unknown-1))
			wantEqual(t, fmt.Sprint("known to ", known), names(s.receivedCalls()), strings.Join(want, " "))
			wantEqual(t, "executed", s.executed(), maxSenders+yieldThreshold)
		})
	}
}

// TestHashFromServer checks that in FIPS mode, a server computes the hash of the script, once.
func TestHashFromServer(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		s.forgetScript()
		l := withoutHash(limiter(t, s.client(t)))
		for range 3 {
			mustAllow(t, l, "event")
		}
		wantEqual(t, "commands", names(s.scriptCalls()), "SCRIPT EVALSHA EVALSHA EVALSHA")
	})
}

// TestHashDoesNotCome checks that while no server replies with the hash, callers learn that nothing
// was counted.
func TestHashDoesNotCome(t *testing.T) {
	for _, test := range []struct {
		action action
		took   time.Duration
		err    error
	}{
		{action{cut: true}, 5 * time.Millisecond, nil},
		{action{lose: true}, 5 * time.Millisecond, nil},
		{refusal("LOADING"), 5 * time.Millisecond, nil},
		{refusal("NOPERM this user may not run script"), 0, ErrOutage},
		{action{hang: true}, time.Second, ErrOutage},
		{action{silent: true}, time.Second, ErrOutage},
	} {
		onFakeTime(t, func(t *testing.T, s *server) {
			l := withoutHash(limiter(t, s.client(t)))
			s.next(test.action)
			got := attemptOne(t, l, "event")
			wantError(t, fmt.Sprint(test.action), got.err, test.err)
			wantEqual(t, fmt.Sprint(test.action), got.took, test.took)
			s.cut()
			pass(time.Minute)
			wantEqual(t, "executed", s.executed() == 1, test.err == nil)
			mustAllow(t, l, "event")
		})
	}
}
