package lua_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHistories compares each script with readable histories, in testdata/*/*.txt. A line is one of
//
//	limits 1/5s@1ms 5/1h@1m    limits of the calls below: Max/Per@Resolution, or Max/Per for ar1
//	limits                     no limits, only for inspect
//	1.5s allow 2               an instant after midnight, a verb and its units
//	1.5s refund 2 of 1s        the same, and the instant at which they were counted
//	1s allow 1 x 300 every 2s  300 calls; shows the last reply
//	record                     shows the value, in hex, field by field
//	reset                      forgets the event
//
// The reply follows, indented. It starts with "yes" if the units are allowed, or if anything was
// given back. For the verbs that stand for n calls, it starts with how many units are allowed. Then
// come the time of the decision, if that is not now, and what was written and for how long. A line
// for each limit shows how many units are used, when the limit would allow the same request again,
// and when it is as if never used. For inspect, the line also shows the buckets, or the level of
// ar1. The lines for each and counteach start with the number of the call. After the limits,
// inspect shows the sections of limits that the call does not name.
//
// Each history is played in both forms: in calls for one event, and in calls for several events.
func TestHistories(t *testing.T) {
	each(t, func(t *testing.T, s script) {
		s.playsAll(t, func(t *testing.T, file string) (text, got string) {
			t.Helper()
			return s.play(t, file, s.forms(t).both())
		})
	})
}

// playsAll plays each history of a script, and compares the result with the text of the file.
func (s script) playsAll(t *testing.T, play func(t *testing.T, file string) (text, got string)) {
	for _, file := range s.histories() {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, got := play(t, file)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(text, got); diff != "" {
				t.Errorf("if Redis replies this, and it is correct: go test ./lua -update (-want +got)\n%s", diff)
			}
		})
	}
}

// play plays the history in a file. It returns the text of the file, and that text with the actual
// replies. An invalid line fails the test.
func (s script) play(tb testing.TB, file string, j judge) (text, got string) {
	tb.Helper()
	h := history{script: s, judge: j}
	return playLines(tb, file, func(words []string) (string, error) { return h.line(tb, words) })
}

// playLines passes the words of each line of a file to reply. It returns the text of the file, and
// that text with the actual replies below the lines.
func playLines(tb testing.TB, file string, reply func(words []string) (string, error)) (text, got string) {
	tb.Helper()
	text = string(must(os.ReadFile(file)))
	var out strings.Builder
	number := 0
	for line := range strings.Lines(text) {
		number++
		if strings.HasPrefix(line, "  ") {
			continue
		}
		out.WriteString(line)
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 0 {
			shown, err := reply(words)
			if err != nil {
				tb.Fatalf("%s:%d: %v", file, number, err)
			}
			out.WriteString(shown)
		}
	}
	return text, out.String()
}

// history is one event, as the file describes it.
type history struct {
	script
	judge
	limits []string // as written in the file
	args   []string // as arguments of the script
	stored string
}

// line runs a line, and returns the reply.
func (h *history) line(tb testing.TB, words []string) (reply string, err error) {
	tb.Helper()
	switch first, more := words[0], words[1:]; first {
	case "limits":
		h.limits = more
		h.args, err = h.parseLimits(more)
		return "", err
	case "record", "reset":
		return h.alone(tb, first, more)
	}
	calls, err := h.parseAttempts(words)
	if err != nil {
		return "", err
	}
	return h.call(tb, calls), nil
}

// alone runs a line that consists of the single word record or reset.
func (h *history) alone(tb testing.TB, word string, more []string) (reply string, err error) {
	tb.Helper()
	if len(more) > 0 {
		return "", fmt.Errorf("%q cannot follow %s: write %s alone", strings.Join(more, " "), word, word)
	}
	if word == "record" {
		return h.layout(h.stored), nil
	}
	return h.call(tb, attempts{verb: word, units: "1", now: h.midnight(), times: 1}), nil
}

// call makes one or more calls, and shows the last answer.
func (h *history) call(tb testing.TB, calls attempts) string {
	tb.Helper()
	now := calls.now - calls.every
	var a answer
	for range calls.times {
		now += calls.every
		args := append([]string{calls.verb, digits(now), calls.units}, h.args...)
		a = h.judge(tb, append(args, calls.since...)...)
	}
	if a.err != "" {
		return "  error " + a.err + "\n"
	}
	h.stored = a.stored
	return h.show(a, now, calls.verb)
}

// show formats an answer as in a history.
func (h *history) show(a answer, now int64, verb string) string {
	said := "  " + map[int64]string{0: "no", 1: "yes"}[a.reply[0]]
	if singles[verb] != "" {
		said = fmt.Sprintf("  %d allowed", a.reply[0])
	}
	if len(a.reply) > 1 && a.reply[1] != now {
		said += ", dated " + h.shown(a.reply[1])
	}
	if a.wrote == "SET" {
		said += fmt.Sprintf("; stored %d bytes for %s", len(a.stored), span(must(strconv.ParseInt(a.px, 10, 64))))
	} else if a.wrote != "" {
		said += "; " + a.wrote
	}
	lines, rest := []string{said}, a.reply[min(2, len(a.reply)):]
	for call := 1; len(rest) > 0 && len(h.limits) > 0; call++ {
		for _, limit := range h.limits {
			line := fmt.Sprintf("  %-12s %d used, again in %s, clear in %s", limit, rest[0], span(rest[1]), span(rest[2]))
			rest = rest[3:]
			if verb == "inspect" {
				shown, n := h.details(h.script, rest)
				line, rest = line+shown, rest[n:]
			} else if strings.HasSuffix(verb, "each") {
				line = fmt.Sprintf("  %d:%s", call, line[1:])
			}
			lines = append(lines, line)
		}
		if verb == "inspect" {
			break
		}
	}
	for len(rest) > 0 {
		line := fmt.Sprintf("  also %-7s ", span(rest[0]))
		shown, n := h.other(h.script, rest[1:])
		lines, rest = append(lines, line+shown), rest[1+n:]
	}
	return strings.Join(lines, "\n") + "\n"
}

// buckets formats the units and time of each bucket. If there are many, it shows only the first
// three and the last three.
func buckets(s script, rest []int64) (text string, n int) {
	var shown []string
	n = 1 + 2*int(rest[0])
	for pairs := rest[1:n]; len(pairs) > 0; pairs = pairs[2:] {
		shown = append(shown, fmt.Sprintf("%d at %s", pairs[1], s.shown(pairs[0])))
	}
	if len(shown) == 0 {
		return "", n
	}
	if n := len(shown); n > 7 {
		shown = slices.Replace(shown, 3, n-3, fmt.Sprintf("... %d more", n-6))
	}
	return ": " + strings.Join(shown, ", "), n
}

// ofLevel formats a level, which is in units of 10^-8.
func ofLevel(_ script, rest []int64) (text string, n int) {
	return fmt.Sprintf(", level %d.%08d", rest[0]/1e8, rest[0]%1e8), 1
}

// otherBuckets formats a section of window for a limit that the call does not name.
func otherBuckets(s script, rest []int64) (text string, n int) {
	text, n = buckets(s, rest[2:])
	return fmt.Sprintf("%d used, clear in %s", rest[0], span(rest[1])) + text, 2 + n
}

// otherLevel formats a section of ar1 for a limit that the call does not name.
func otherLevel(s script, rest []int64) (text string, n int) {
	text, n = ofLevel(s, rest[1:])
	return "clear in " + span(rest[0]) + text, 1 + n
}
