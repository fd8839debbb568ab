package pipeline

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/pipeline/servertest"
)

// names returns the names of the commands, such as "EVALSHA EVAL".
func names(commands []servertest.Command) string {
	var all []string
	for _, c := range commands {
		all = append(all, c.Name)
	}
	return strings.Join(all, " ")
}

// TestScriptForgottenInABatch checks what is sent to a server that forgets the script before or
// within a batch: the source once, and the rest of the batch again with the script's hash. Each
// request must be executed exactly once.
func TestScriptForgottenInABatch(t *testing.T) {
	for _, known := range []int{0, 1, yieldThreshold / 2, yieldThreshold - 1} {
		servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
			l := newLine(t, s.Client(t))
			occupySenders(t, s, l)
			executed := 0
			s.Choose(func(servertest.Command) servertest.Action {
				executed++
				return servertest.Action{Forget: executed == maxSenders+known+1}
			})
			callers := fillBatch(t, l)
			s.Release()
			for _, c := range callers {
				wantError(t, "filler", c.wait().err, nil)
				wantEqual(t, "took", c.took, 0)
			}
			unknown := yieldThreshold - known
			want := strings.Fields(strings.Repeat("EVALSHA ", maxSenders+yieldThreshold) + "EVAL " + strings.Repeat("EVALSHA ", unknown-1))
			wantEqual(t, fmt.Sprint("known to ", known), names(s.Received()), strings.Join(want, " "))
			wantEqual(t, "executed", s.Executed(), maxSenders+yieldThreshold)
		})
	}
}

// TestHashFromServer checks that in FIPS mode, a server computes the script's hash, and does so
// only once.
func TestHashFromServer(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		s.ForgetScripts()
		l := withoutHash(newLine(t, s.Client(t)))
		for range 3 {
			mustCount(t, l, "event")
		}
		wantEqual(t, "commands", names(s.Ran()), "SCRIPT EVALSHA EVALSHA EVALSHA")
	})
}

// TestHashDoesNotCome checks that as long as no server has replied with the hash, callers get
// errors which state that nothing was counted.
func TestHashDoesNotCome(t *testing.T) {
	for _, test := range []struct {
		action servertest.Action
		took   time.Duration
		err    error
	}{
		{servertest.Action{Cut: true}, 5 * time.Millisecond, nil},
		{servertest.Action{Lose: true}, 5 * time.Millisecond, nil},
		{servertest.Refusal("LOADING"), 5 * time.Millisecond, nil},
		{servertest.Refusal("NOPERM this user may not run script"), 0, ErrOutage},
		{servertest.Action{Hang: true}, time.Second, ErrOutage},
		{servertest.Action{Silent: true}, time.Second, ErrOutage},
	} {
		servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
			l := withoutHash(newLine(t, s.Client(t)))
			s.Next(test.action)
			got := askOne(t, l, "event")
			wantError(t, fmt.Sprint(test.action), got.err, test.err)
			wantEqual(t, fmt.Sprint(test.action), got.took, test.took)
			s.Cut()
			servertest.Pass(time.Minute)
			wantEqual(t, "executed", s.Executed() == 1, test.err == nil)
			mustCount(t, l, "event")
		})
	}
}

// TestScriptsOfABatchForgotten checks that limiters with different scripts share a batch, and that
// if the server knows neither script, each is sent once.
func TestScriptsOfABatchForgotten(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		other := beside(l, l.Timeout)
		other.script = NewScript("return 'another script'")
		executed, occupiers := 0, len(occupySenders(t, s, l))+1
		arrive(t.Context(), other, "occupier") // a fifth sender, since two limiters have requests
		s.Choose(func(servertest.Command) servertest.Action {
			executed++
			return servertest.Action{Forget: executed == occupiers+1}
		})
		var callers []*caller
		for i := range 6 {
			callers = append(callers, arrive(t.Context(), []*line{l, other}[i%2], fmt.Sprint(i)))
		}
		s.Release()
		for _, c := range callers {
			wantError(t, "unknown", c.wait().err, nil)
			wantEqual(t, "took", c.took, 0)
		}
		commands := s.Received()[occupiers:]
		wantEqual(t, "commands", names(commands), strings.Repeat("EVALSHA ", 6)+"EVAL EVAL "+strings.TrimSpace(strings.Repeat("EVALSHA ", 4)))
		wantEqual(t, "scripts", []string{commands[6].Script, commands[7].Script}, []string{servertest.Script, "return 'another script'"})
		wantEqual(t, "executed", s.Executed(), occupiers+6)
	})
}

// TestUnknownHashFailsNoOtherScript checks that in FIPS mode, if the server does not load a script,
// only the requests for that script fail, and no others in the batch.
func TestUnknownHashFailsNoOtherScript(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		other := beside(l, l.Timeout)
		other.script = NewScript("return 'another script'")
		withoutHash(other)
		occupySenders(t, s, l)
		s.Choose(func(c servertest.Command) servertest.Action {
			if c.Name == "SCRIPT" {
				return servertest.Refusal("NOPERM this user may not run script")
			}
			return servertest.Action{}
		})
		known, unknown := arrive(t.Context(), l, "known"), arrive(t.Context(), other, "unknown")
		fillBatch(t, l)
		s.Release()
		wantError(t, "known", known.wait().err, nil)
		wantError(t, "unknown", unknown.wait().err, ErrOutage)
	})
}
