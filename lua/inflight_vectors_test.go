package lua_test

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestInflightVectors plays the histories in testdata/inflight. A line is a call: a time after
// midnight, and the arguments listed in the header of inflight.lua. A token is written as its time:
//
//	0s acquire 10000 lease-00 1 2 pod-1
//	4s renew 10000 lease-00 1 2 0s
//
// The reply follows, indented, with all times relative to midnight, and the commands that write. A
// line with the word record shows the sorted set, one member per line, with non-text bytes as \XX.
func TestInflightVectors(t *testing.T) {
	inflight.playsAll(t, func(t *testing.T, file string) (text, got string) {
		t.Helper()
		return playHeld(t, file, heldOnRedis(t))
	})
}

// TestInflightOnOtherLuas plays the same histories, and random ones, on the Lua interpreters that
// it finds.
func TestInflightOnOtherLuas(t *testing.T) {
	eachLua(t, func(t *testing.T, path string) {
		inflight.playsAll(t, func(t *testing.T, file string) (text, got string) {
			t.Helper()
			return playHeld(t, file, heldOnLua(t, path))
		})
		for seed := range uint64(6) {
			newHeldPlay(seed, heldOnLua(t, path)).plays(t)
		}
	})
}

// playHeld plays a history. It returns its text, and the text with the actual replies.
func playHeld(t *testing.T, file string, ask heldJudge) (text, got string) {
	t.Helper()
	stored := ""
	return playLines(t, file, func(words []string) (string, error) {
		if len(words) == 1 {
			return showMembers(stored), nil
		}
		a := ask(t, heldArgs(words)...)
		stored = a.stored
		return showHeld(a), nil
	})
}

// showMembers formats a sorted set as in a history.
func showMembers(stored string) string {
	var out strings.Builder
	for member := range strings.FieldsSeq(stored) {
		i := strings.LastIndex(member, "=")
		out.WriteString("  " + member[:i] + " = " + shownInstant(member[i+1:]) + "\n")
	}
	return out.String()
}

// heldArgs returns a line as arguments of the script.
func heldArgs(words []string) []string {
	args := []string{words[1], inflight.at(words[0])}
	for _, word := range words[2:] {
		if _, err := time.ParseDuration(word); err == nil && strings.HasSuffix(word, "s") {
			word = inflight.at(word)
		}
		args = append(args, word)
	}
	return args
}

// shownInstant formats a number as in a history: as a time after midnight, if it is a time close to
// midnight.
func shownInstant(number string) string {
	n, err := strconv.ParseInt(number, 10, 64)
	size := max(n, -n)
	if err != nil || size < inflight.midnight()/2 || size > 2*inflight.midnight() {
		return number
	}
	if n < 0 {
		return "-(" + inflight.shown(size) + ")"
	}
	return inflight.shown(n)
}

// showHeld formats an answer as in a history.
func showHeld(a heldAnswer) string {
	if a.err != "" {
		return "  error " + a.err + "\n"
	}
	words := strings.Fields(a.reply)
	for i, word := range words {
		words[i] = shownInstant(word)
	}
	said := "  " + strings.Join(words, " ")
	if a.wrote != "" {
		said += "; " + a.wrote
	}
	return said + "\n"
}
