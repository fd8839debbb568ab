package lua_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the server replies into testdata/*.txt")

// midnight is what the instants in a history count from: 2023-11-15 00:00 UTC, in ms.
const midnight = 1_700_006_400_000

// TestHistories holds window.lua against histories that a person can read, in testdata/*.txt. A line is one of
//
//	limits 1/5s@1ms 5/1h@1m       what the calls below it ask for: Max/Per@Resolution
//	1.5s allow 2                  an instant after midnight, a verb and its units
//	1.5s refund 2 of 1s           the instant at which they were counted
//	1s allow 1 x 300 every 2s     as many calls; the last reply is shown
//	record                        shows the value, in hex, field by field
//	reset                         forgets the event
//
// and is followed by its reply, indented: "yes" if the units are admitted (or anything was given back); the instant at
// which it was decided, if that is not now; what was written and for how long; then for each limit what is used, when it
// would admit the same request again, and when it is as if never used; and for inspect its buckets.
func TestHistories(t *testing.T) {
	for _, file := range must(filepath.Glob("testdata/*.txt")) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text := string(must(os.ReadFile(file)))
			got := play(t, text, onRedis(t))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(text, got); diff != "" {
				t.Errorf("if this is as it should be: go test ./lua -update (-want +got)\n%s", diff)
			}
		})
	}
}

// play runs a history and returns it with the replies that it got.
func play(tb testing.TB, text string, j judge) string {
	tb.Helper()
	h := history{judge: j}
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		out.WriteString(line)
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 0 {
			out.WriteString(h.line(tb, words))
		}
	}
	return out.String()
}

// history is one event, as it is told.
type history struct {
	judge
	limits []string // as told
	args   []string // as the script takes them
	stored string
}

func (h *history) line(tb testing.TB, words []string) string {
	tb.Helper()
	switch words[0] {
	case "limits":
		h.limits, h.args = words[1:], nil
		for _, l := range h.limits {
			h.args = append(h.args, limit(l)...)
		}
		return ""
	case "record":
		return layout(h.stored)
	case "reset":
		words = []string{"0s", "reset"}
	}
	return h.call(tb, instant(words[0]), words[1], words[2:])
}

// call makes a call, or many; more is its units and what follows them.
func (h *history) call(tb testing.TB, now int64, verb string, more []string) string {
	tb.Helper()
	more = append(more, "1")
	times, every, since := 1, int64(0), []string(nil)
	if verb == "refund" {
		since = []string{strconv.FormatInt(instant(more[2]), 10)}
	} else if len(more) > 2 {
		times, every = must(strconv.Atoi(more[2])), instant(more[4])-midnight
	}
	var a answer
	for ; times > 0; times-- {
		args := append([]string{verb, strconv.FormatInt(now, 10), more[0]}, h.args...)
		a = h.judge(tb, append(args, since...)...)
		now += every
	}
	if a.err != "" {
		return "  error " + a.err + "\n"
	}
	h.stored = a.stored
	return h.show(a, now-every, verb == "inspect")
}

// show is an answer as a person reads it.
func (h *history) show(a answer, now int64, inspect bool) string {
	said := "  " + map[int64]string{0: "no", 1: "yes"}[a.reply[0]]
	if len(a.reply) > 1 && a.reply[1] != now {
		said += ", dated " + span(a.reply[1]-midnight)
	}
	if a.wrote == "SET" {
		said += fmt.Sprintf("; stored %d bytes for %s", len(a.stored), span(must(strconv.ParseInt(a.px, 10, 64))))
	} else if a.wrote != "" {
		said += "; " + a.wrote
	}
	lines, rest := []string{said}, a.reply[min(2, len(a.reply)):]
	for i := 0; len(rest) > 0; i++ {
		line := fmt.Sprintf("  %-12s %d used, again in %s, clear in %s", h.limits[i], rest[0], span(rest[1]), span(rest[2]))
		rest = rest[3:]
		if inspect {
			line += buckets(rest[1 : 1+2*rest[0]])
			rest = rest[1+2*rest[0]:]
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n") + "\n"
}

// buckets shows the units and time of each, or of the first and last three where they are many.
func buckets(pairs []int64) string {
	var shown []string
	for ; len(pairs) > 0; pairs = pairs[2:] {
		shown = append(shown, fmt.Sprintf("%d at %s", pairs[1], span(pairs[0]-midnight)))
	}
	if len(shown) == 0 {
		return ""
	}
	if n := len(shown); n > 7 {
		shown = slices.Replace(shown, 3, n-3, fmt.Sprintf("... %d more", n-6))
	}
	return ": " + strings.Join(shown, ", ")
}

// limit is Max/Per@Resolution as the script takes it.
func limit(text string) []string {
	most, rest, ok1 := strings.Cut(text, "/")
	per, width, ok2 := strings.Cut(rest, "@")
	if !ok1 || !ok2 {
		panic("no Max/Per@Resolution: " + text)
	}
	return []string{strconv.FormatInt(instant(per)-midnight, 10), most, strconv.FormatInt(instant(width)-midnight, 10)}
}

// instant reads a time after midnight, such as 1h30m or -5s.
func instant(text string) int64 {
	return midnight + must(time.ParseDuration(text)).Milliseconds()
}

// span is a time in ms as a person reads it.
func span(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
