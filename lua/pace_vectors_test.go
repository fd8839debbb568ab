package lua_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestPaceVectors plays the histories in testdata/pace. A line is a call:
//
//	0s book 2 5/1s 50/1m within 10s x 3   3 turns of 2 units, at most 10s ahead
//	0s cancel 2 5/1s of 1s under 0s       the turn that was booked for 1s under that shift
//	0s pause 1 for 3s
//	0s due 1
//	0s inspect 1 5/1s
//	0s reset 1
//
// The reply follows, indented: the integers in the order of the header of pace.lua, with instants
// as times after midnight, and what is written. A line with the word record shows the stored record
// in hex: its head and then each section, as in testdata/window.
func TestPaceVectors(t *testing.T) {
	pace.playsAll(t, func(t *testing.T, file string) (text, got string) {
		t.Helper()
		return playPace(t, file, pace.onRedis(t))
	})
}

// TestPaceOnOtherLuas plays the same histories, and random ones, on the Lua interpreters that it
// finds.
func TestPaceOnOtherLuas(t *testing.T) {
	eachLua(t, func(t *testing.T, path string) {
		pace.playsAll(t, func(t *testing.T, file string) (text, got string) {
			t.Helper()
			return playPace(t, file, pace.spyOnLua(t, path).about("turns"))
		})
		for seed := range uint64(20) {
			newPacedEvent(seed, pace.spyOnLua(t, path).about("turns")).plays(t, seed%3 == 0)
		}
	})
}

// playPace plays a history. It returns its text, and the text with the actual replies.
func playPace(t *testing.T, file string, ask judge) (text, got string) {
	t.Helper()
	stored := ""
	return playLines(t, file, func(words []string) (string, error) {
		if len(words) == 1 {
			return paceLayout(stored), nil
		}
		a := ask(t, paceArgs(words)...)
		stored = a.stored
		return showPace(a), nil
	})
}

// paceArgs returns a line as arguments of the script.
func paceArgs(words []string) []string {
	args := []string{words[1], pace.at(words[0]), words[2]}
	last, turns := []string(nil), "1"
	for i := 3; i < len(words); i++ {
		if strings.Contains(words[i], "/") {
			args = append(args, pace.limit(words[i])...)
			continue
		}
		i++
		switch words[i-1] {
		case "x":
			turns = words[i]
		case "of":
			last = append(last, pace.at(words[i]))
		case "within", "under", "for":
			last = append(last, digits(pace.instant(words[i])-midnight))
		default:
			panic("no such word: " + words[i-1])
		}
	}
	if words[1] == "book" {
		args[2], last = turns, append(last, words[2])
	}
	return slices.Concat(args, last)
}

// showPace formats a reply as in a history. It shows an integer that is a time close to midnight as
// a time after midnight.
func showPace(a answer) string {
	if a.err != "" {
		return "  error " + a.err + "\n"
	}
	var shown []string
	for _, n := range a.reply {
		if n > midnight/2 && n < 2*midnight {
			shown = append(shown, pace.shown(n))
		} else {
			shown = append(shown, digits(n))
		}
	}
	said := "  " + strings.Join(shown, " ")
	if a.wrote == "SET" {
		said += fmt.Sprintf("; stored %d bytes for %s ms", len(a.stored), a.px)
	} else if a.wrote != "" {
		said += "; " + a.wrote
	}
	return said + "\n"
}

// paceLayout formats a record in hex: its head, then a line for each section.
func paceLayout(record string) string {
	if record == "" {
		return "  none\n"
	}
	b, head := []byte(record), []int{1, 1, 6, 6}
	if b[0] == 249 {
		head = append(head, 6, 6)
	}
	shown, n := take(b, head)
	lines := []string{"  " + shown}
	for b = b[n:]; len(b) > 0; b = b[n:] {
		shown, n = take(b, widths(b))
		lines = append(lines, "  "+shown)
	}
	return strings.Join(lines, "\n") + "\n"
}
