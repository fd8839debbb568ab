package send

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/servertest"
	"github.com/slidegate/slidegate/lua"
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

// TestScriptForgottenTwice checks that if calls still find no script after another one has brought
// it, each of them brings it. Behind a proxy, they can reach another server.
func TestScriptForgottenTwice(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		occupySenders(t, s, l)
		received := 0
		s.Choose(func(servertest.Command) servertest.Action {
			received++
			return servertest.Action{Forget: received == maxSenders+1 || received == maxSenders+yieldThreshold+2}
		})
		callers := fillBatch(t, l)
		s.Release()
		for _, c := range callers {
			wantError(t, "filler", c.wait().err, nil)
		}
		want := strings.Repeat("EVALSHA ", maxSenders+yieldThreshold) + "EVAL " +
			strings.Repeat("EVALSHA ", yieldThreshold-1) + strings.Repeat("EVAL ", yieldThreshold-1)
		wantEqual(t, "sent", names(s.Received()), strings.TrimSpace(want))
		wantEqual(t, "executed", s.Executed(), maxSenders+yieldThreshold)
	})
}

// TestLeaversLoadTheScript checks that if a server does not know the script, callers that leave
// before it says so do not keep the script unknown.
func TestLeaversLoadTheScript(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		s.ForgetScripts()
		s.Always(servertest.Action{Delay: 100 * time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), 80*time.Millisecond)
		defer cancel()
		wantError(t, "a caller that leaves", ask(ctx, l, "e").err, health.ErrUncertain)
		servertest.Pass(time.Second)
		mustCount(t, l, "e")
		wantEqual(t, "sent", names(s.Received()), "EVALSHA EVAL EVALSHA")
	})
}

// TestScriptsOfABatchForgotten checks that limiters with different scripts share a batch, and that
// if the server knows neither script, each is sent once.
func TestScriptsOfABatchForgotten(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		other := beside(l, l.Timeout)
		other.script = lua.New("return 'another script'")
		executed, occupiers := 0, len(occupySenders(t, s, l))+1
		arrive(t.Context(), other, "occupier") // a fifth sender, since two limiters have requests
		s.Choose(func(servertest.Command) servertest.Action {
			executed++
			return servertest.Action{Forget: executed == occupiers+1}
		})
		var callers []*attempt
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
		wantEqual(t, "scripts", []string{commands[6].Script, commands[7].Script}, []string{servertest.Script.Source, "return 'another script'"})
		wantEqual(t, "executed", s.Executed(), occupiers+6)
	})
}
