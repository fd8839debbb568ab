package limiter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/servertest"
)

// malformed lists replies that no script sends to an attempt under two limits.
var malformed = []string{
	"+OK", ":1", "_", "$-1", "$5\r\nhello", "*0", "*-1", "%1\r\n+a\r\n:1", "*1\r\n:1", "*2\r\n:1\r\n:1", integers(7), integers(9), integers(10), integers(15),
	"*1\r\n*2\r\n:1\r\n:1", "*8" + strings.Repeat("\r\n+x", 8), "*8" + strings.Repeat("\r\n_", 8), "*8" + strings.Repeat("\r\n$20\r\n99999999999999999999", 8),
	"*8" + strings.Repeat("\r\n*0", 8), "*8" + strings.Repeat("\r\n,1.5", 8),
}

// TestMalformedReplies checks that a malformed reply results in an error: ErrUncertain for an
// attempt, because the script may have counted it, and ErrOutage for a peek.
func TestMalformedReplies(t *testing.T) {
	for _, reply := range malformed {
		servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
			l := limiter(t, s.Client(t))
			s.Next(servertest.Action{Reply: reply})
			wantError(t, fmt.Sprintf("%q", reply), attemptOne(t, l, "event").err, health.ErrUncertain)
			s.Next(servertest.Action{Reply: reply})
			wantError(t, fmt.Sprintf("%q to peek", reply), ask(t.Context(), l, Peek, "event", 1).err, health.ErrOutage)
			mustAllow(t, l, "event")
		})
	}
}

// TestShortReply checks that a Call returns an error that names the script if its reply has fewer
// than Least integers.
func TestShortReply(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := limiter(t, s.Client(t), func(c *Config) { c.File = "test.lua" })
		for n, want := range map[int]string{3: "", 2: `slidegate: limiter "test": the reply does not match the header of test.lua; remove the script that Redis holds under this hash`} {
			s.Next(servertest.Action{Reply: integers(n)})
			if _, err := l.Call(t.Context(), Call{Verb: "reset", Event: "event", Units: 1, Least: 3}); fmt.Sprint(err) != cmp.Or(want, "<nil>") {
				t.Errorf("%d integers: %v", n, err)
			}
		}
	})
}

// TestMalformedRepliesToMergedAttempts checks that each merged attempt gets an error.
func TestMalformedRepliesToMergedAttempts(t *testing.T) {
	for _, reply := range malformed {
		forEachMerging(t, func(t *testing.T, verb string, s *servertest.Server, l *Limiter) {
			hot := l.Key("hot")
			s.Choose(func(c servertest.Command) servertest.Action {
				if c.Key == hot {
					return servertest.Action{Reply: reply}
				}
				return servertest.Action{}
			})
			for _, c := range batched(t, s, l, slices.Repeat([]query{{Allow, "hot", 1}}, together)) {
				wantError(t, fmt.Sprintf("%q to %s", reply, verb), c.err, health.ErrUncertain)
			}
		})
	}
}

// TestWrongNumberOfRows checks that a wrong number of rows results in an error, except with the
// verb each, whose last row also applies to all later attempts.
func TestWrongNumberOfRows(t *testing.T) {
	forEachMerging(t, func(t *testing.T, verb string, s *servertest.Server, l *Limiter) {
		hot := l.Key("hot")
		s.Choose(func(c servertest.Command) servertest.Action {
			if c.Key == hot {
				return servertest.Action{Reply: integers(2 + 6*2)}
			}
			return servertest.Action{}
		})
		callers := batched(t, s, l, slices.Repeat([]query{{Allow, "hot", 1}}, together))
		if last := callers[together-1]; verb == verbEach {
			wantError(t, verb, last.err, nil)
		} else {
			wantError(t, verb, last.err, health.ErrUncertain)
		}
	})
}

// TestStrangeIntegers checks that a reply with meaningless integers does not cause a panic.
func TestStrangeIntegers(t *testing.T) {
	for _, n := range []string{"-1", "-9223372036854775808", "9223372036854775807", "4096"} {
		forEachMerging(t, func(t *testing.T, _ string, s *servertest.Server, l *Limiter) {
			s.Always(servertest.Action{Reply: "*8" + strings.Repeat("\r\n:"+n, 8)})
			batched(t, s, l, slices.Repeat([]query{{Allow, "hot", 1}}, together))
		})
	}
}

// TestPeekIsNeverUncertain checks that a peek that gets no reply never returns ErrUncertain, because
// it counts nothing.
func TestPeekIsNeverUncertain(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := limiter(t, s.Client(t))
		s.Hold()
		wantError(t, "peek", ask(t.Context(), l, Peek, "a", 1).err, health.ErrOutage)
	})
}

// TestLateCallerIsNotSent checks that nothing is sent for a caller whose context is already done.
func TestLateCallerIsNotSent(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := limiter(t, s.Client(t))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := ask(ctx, l, Allow, "a", 1).err
		wantError(t, "late", err, context.Canceled)
		if health.IsOutage(err) || !strings.Contains(err.Error(), "nothing was sent") {
			t.Error(err)
		}
		wantEqual(t, "received", len(s.Received()), 0)
	})
}
