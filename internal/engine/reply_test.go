package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// malformed are replies that no script gives to an attempt under two limits.
var malformed = []string{
	"+OK", ":1", "_", "$-1", "$5\r\nhello", "*0", "*-1", "%1\r\n+a\r\n:1", "*1\r\n:1", "*2\r\n:1\r\n:1", integers(7), integers(9), integers(10), integers(15),
	"*1\r\n*2\r\n:1\r\n:1", "*8" + strings.Repeat("\r\n+x", 8), "*8" + strings.Repeat("\r\n_", 8), "*8" + strings.Repeat("\r\n$20\r\n99999999999999999999", 8),
	"*8" + strings.Repeat("\r\n*0", 8), "*8" + strings.Repeat("\r\n,1.5", 8),
}

// integers returns a reply of so many ones.
func integers(n int) string { return fmt.Sprintf("*%d", n) + strings.Repeat("\r\n:1", n) }

// TestMalformedReplies are errors. The script may have counted.
func TestMalformedReplies(t *testing.T) {
	for _, reply := range malformed {
		onFakeTime(t, func(t *testing.T, s *server) {
			l := limiter(t, s.client(t))
			s.next(fate{reply: reply})
			wantError(t, fmt.Sprintf("%q", reply), attemptOne(t, l, "event").err, ErrUncertain)
			s.next(fate{reply: reply})
			wantError(t, fmt.Sprintf("%q to peek", reply), ask(t.Context(), l, Peek, "event", 1).err, ErrOutage)
			mustAllow(t, l, "event")
		})
	}
}

// TestMalformedRepliesToMergedAttempts are errors for each of them.
func TestMalformedRepliesToMergedAttempts(t *testing.T) {
	for _, reply := range malformed {
		eachMerging(t, func(t *testing.T, verb string, s *server, l *Limiter) {
			hot := l.Key("hot")
			s.judgeBy(func(c command) fate {
				if c.key == hot {
					return fate{reply: reply}
				}
				return fate{}
			})
			for _, c := range together(t, s, l, slices.Repeat([]order{{l.Attempt(), "hot", 1}}, crowd)) {
				wantError(t, fmt.Sprintf("%q to %s", reply, verb), c.err, ErrUncertain)
			}
		})
	}
}

// TestWrongNumberOfRows is an error, except that the last row of each stands for all attempts that come after it.
func TestWrongNumberOfRows(t *testing.T) {
	eachMerging(t, func(t *testing.T, verb string, s *server, l *Limiter) {
		hot := l.Key("hot")
		s.judgeBy(func(c command) fate {
			if c.key == hot {
				return fate{reply: integers(2 + 6*2)}
			}
			return fate{}
		})
		callers := together(t, s, l, slices.Repeat([]order{{l.Attempt(), "hot", 1}}, crowd))
		if last := callers[crowd-1]; verb == verbEach {
			wantError(t, verb, last.err, nil)
		} else {
			wantError(t, verb, last.err, ErrUncertain)
		}
	})
}

// TestStrangeIntegers checks that a reply whose integers make no sense causes no panic.
func TestStrangeIntegers(t *testing.T) {
	for _, n := range []string{"-1", "-9223372036854775808", "9223372036854775807", "4096"} {
		eachMerging(t, func(t *testing.T, _ string, s *server, l *Limiter) {
			s.always(fate{reply: "*8" + strings.Repeat("\r\n:"+n, 8)})
			together(t, s, l, slices.Repeat([]order{{l.Attempt(), "hot", 1}}, crowd))
			wantEqual(t, "answers", len(l.AttemptEach(t.Context(), []string{"hot", "hot"})), 2)
		})
	}
}
