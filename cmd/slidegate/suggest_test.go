package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/replay"
	"github.com/slidegate/slidegate/window"
)

// A knownAttempt is an attempt whose origin the test knows.
type knownAttempt struct {
	at       time.Time
	event    string
	honest   bool // must not be delayed
	attacker bool
}

// suggested runs replay --suggest and parses the output.
func suggested(tb testing.TB, args ...string) (p replay.SuggestReport) {
	tb.Helper()
	stdout, stderr, status := command(tb.Context(), append([]string{"replay", "--suggest", "--json"}, args...)...)
	if status != 0 { // standard error may contain progress lines
		tb.Fatalf("status %d: %s", status, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), &p); err != nil {
		tb.Fatal(err)
	}
	return p
}

// judge decides on all attempts under the given limits, using a model that keeps the times of all
// allowed attempts. It shares no code with the program.
func judge(all []knownAttempt, limits []window.Limit) (stopped, honest, attackers int) {
	allowed := map[string][]time.Time{}
	for _, a := range all {
		denied := false
		for _, l := range limits {
			held := 0
			for _, t := range allowed[a.event] {
				if t.Add(l.Per).After(a.at) {
					held++
				}
			}
			denied = denied || held >= int(l.Max)
		}
		if !denied {
			allowed[a.event] = append(allowed[a.event], a.at)
			continue
		}
		stopped++
		if a.honest {
			honest++
		}
		if a.attacker {
			attackers++
		}
	}
	return stopped, honest, attackers
}

// checkSuggestions compares each set with the model, and the first set with the next tighter limit.
func checkSuggestions(t *testing.T, p replay.SuggestReport, all []knownAttempt) {
	t.Helper()
	honest := 0
	for _, a := range all {
		if a.honest {
			honest++
		}
	}
	if len(p.Sets) == 0 || p.Attempts != len(all) || p.Honest != honest || p.MayWait != honest/1000 {
		t.Fatalf("%d attempts, %d honest, %d may wait; want %d, %d, %d; %d sets", p.Attempts, p.Honest, p.MayWait, len(all), honest, honest/1000, len(p.Sets))
	}
	for i, s := range p.Sets {
		if slices.ContainsFunc(s.Limits, func(l window.Limit) bool { return l.Max > 60 }) {
			t.Fatalf("%v counts in slices, which this judge does not", s.Limits)
		}
		stopped, delayed, _ := judge(all, s.Limits)
		if stopped != s.Stopped || delayed != s.Delayed || delayed > p.MayWait || len(s.Limits) <= i {
			t.Errorf("%v: %d stopped and %d honest delayed; exactly %d and %d", s.Limits, s.Stopped, s.Delayed, stopped, delayed)
		}
	}
	if l := p.Sets[0].Limits[0]; l.Max > 1 {
		steps := []int64{1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60}
		l.Max = steps[slices.Index(steps, l.Max)-1]
		if _, delayed, _ := judge(all, []window.Limit{l}); delayed <= p.MayWait {
			t.Errorf("%v delays only %d, so it is tighter, and as good", l, delayed)
		}
	}
}

// TestSuggestOnARealAttack checks the suggestions for a public log, which is not part of this
// repository.
func TestSuggestOnARealAttack(t *testing.T) {
	file := openSSH(t)
	line := regexp.MustCompile(`(?m)^(\w+ +\d+ \S+) \S+ sshd\[\d+\]: (message repeated 5 times: \[ )?(Failed|Accepted) \S+ for .* from ([0-9a-f.:]+) port \d+ `)
	var all []knownAttempt
	for _, m := range line.FindAllStringSubmatch(text(t, file), -1) {
		at, err := time.Parse("Jan _2 15:04:05", m[1])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, slices.Repeat([]knownAttempt{{at, m[4], m[3] == "Accepted", false}}, 1+4*min(1, len(m[2])))...)
	}
	checkSuggestions(t, suggested(t, file), all)
}

// A plan describes who makes attempts in a simulated log, and how often.
type plan struct {
	people    int
	most      int           // the maximum number of attempts per person and session
	pause     time.Duration // the longest time between two of these attempts
	attackers int
	every     time.Duration // the longest time between two attempts by an attacker
	succeeds  bool          // the log has results, and each session ends in success
}

// simulate returns an invented log of two days.
func (p plan) simulate(seed uint64) (all []knownAttempt) {
	r := rand.New(rand.NewPCG(seed, 7))
	begin := time.Date(2025, 3, 4, 0, 0, 0, 0, time.UTC)
	span := func(most time.Duration) time.Duration {
		return time.Second * time.Duration(1+r.IntN(int(most/time.Second)))
	}
	for n := range p.people {
		event := fmt.Sprintf("192.0.%d.%d", n/250, n%250)
		for range 1 + r.IntN(3) {
			at := begin.Add(span(47 * time.Hour))
			for left := r.IntN(p.most); left >= 0; left-- {
				all = append(all, knownAttempt{at, event, !p.succeeds || left == 0, false})
				at = at.Add(span(p.pause))
			}
		}
	}
	for n := range p.attackers {
		event := fmt.Sprintf("203.0.113.%d", n)
		for at := begin.Add(span(time.Hour)); at.Before(begin.Add(40 * time.Hour)); at = at.Add(span(p.every)) {
			all = append(all, knownAttempt{at, event, false, true})
		}
	}
	slices.SortStableFunc(all, func(a, b knownAttempt) int { return a.at.Compare(b.at) })
	return all
}

// TestSuggestOnPlantedAttackers checks that on simulated logs the figures are exact and the
// attackers are stopped.
func TestSuggestOnPlantedAttackers(t *testing.T) {
	if testing.Short() {
		t.Skip("it works in one goroutine, for half a minute under the race detector")
	}
	t.Parallel()
	for name, tt := range map[string]struct {
		plan   plan
		line   func(knownAttempt) string
		caught float64 // the minimum share of the attackers' attempts that must be stopped
	}{
		"logins with results": {
			plan{people: 1200, most: 4, pause: 40 * time.Second, attackers: 5, every: 2 * time.Minute, succeeds: true},
			func(a knownAttempt) string {
				result := map[bool]string{true: "Accepted", false: "Failed"}[a.honest]
				return a.at.Format(time.Stamp) + " bastion sshd[7]: " + result + " password for alice from " + a.event + " port 4022 ssh2"
			}, 0.97,
		},
		"slow guesses": {
			plan{people: 1500, most: 3, pause: 20 * time.Second, attackers: 8, every: 40 * time.Minute, succeeds: true},
			func(a knownAttempt) string {
				result := map[bool]string{true: "Accepted", false: "Failed"}[a.honest]
				return a.at.Format("2006-01-02T15:04:05-0700") + " bastion sshd[7]: " + result + " password for alice from " + a.event + " port 4022 ssh2"
			}, 0.7,
		},
		"requests without results": {
			plan{people: 800, most: 15, pause: 10 * time.Second, attackers: 8, every: 3 * time.Minute},
			func(a knownAttempt) string {
				return "time=" + a.at.Format(time.RFC3339) + " level=INFO msg=request ip=" + a.event
			}, 0.94,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, log := tt.plan.simulate(3), strings.Builder{}
			for _, a := range all {
				log.WriteString(tt.line(a) + "\n")
			}
			p := suggested(t, write(t, log.String()))
			if !p.BySuccess { // 8 of 808 events are the top 1 %, and the event after them sets the threshold
				for i := range all {
					all[i].honest = !all[i].attacker
				}
			}
			checkSuggestions(t, p, all)
			attacks := 0
			for _, a := range all {
				if a.attacker {
					attacks++
				}
			}
			last := p.Sets[len(p.Sets)-1]
			if _, _, caught := judge(all, last.Limits); float64(caught) < tt.caught*float64(attacks) {
				t.Errorf("%v stops %d of %d attempts of the attackers", last.Limits, caught, attacks)
			}
			t.Logf("%d attempts, %d of attackers: %+v", len(all), attacks, p.Sets)
		})
	}
}

// TestSuggestPrints compares the output for the sample with a golden file, and checks the chart.
func TestSuggestPrints(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "x.svg")
	stdout, stderr, status := command(t.Context(), "replay", "--suggest", "--picture", svg)
	if status != 0 || stderr != "" {
		t.Fatalf("status %d: %s", status, stderr)
	}
	checkGolden(t, filepath.Join("testdata", "suggest.golden"), strings.ReplaceAll(stdout, svg, "PICTURE"))
	checkSVG(t, text(t, svg), "Attempts stopped by one, two and three limits")
}

// TestSuggestNothing checks that if no limits are proposed, the text says why, and the JSON
// contains an empty list.
func TestSuggestNothing(t *testing.T) {
	var guesses strings.Builder // each from a different address
	for n := range 60 {
		fmt.Fprintf(&guesses, "2025-03-04T05:%02d:00Z h sshd[1]: Failed password for root from 192.0.2.%d port 1 ssh2\n", n, n)
	}
	for log, want := range map[string]struct{ verdict, note string }{
		"2025-03-04T05:06:07Z,alice\n2025-03-04T05:06:07.5Z,alice\n": {"the log is too short; the shortest window that is tried is 1s", ""},
		strings.Repeat("1,alice\n9,bob\n", 3) + "1,alice\n":          {"no attack is visible in this log", "The busiest is alice, with 4 of 7 attempts."},
		guesses.String(): {"none stops the attack without delaying more honest attempts", ""},
	} {
		file := write(t, log)
		stdout, _, status := command(t.Context(), "replay", "--suggest", "--sort", file)
		if text := strings.Join(strings.Fields(stdout), " "); status != 0 || !strings.Contains(text, "no limits are proposed: "+want.verdict+" next: ") || !strings.Contains(text, want.note) || strings.Contains(text, "would stop") {
			t.Errorf("status %d: %s\nwant %s", status, stdout, want)
		}
		if stdout, _, status := command(t.Context(), "replay", "--suggest", "--sort", "--json", file); status != 0 || !strings.Contains(stdout, `"sets": []`) {
			t.Errorf("status %d: %s", status, stdout)
		}
	}
}

// TestFieldIsNamed checks that the report names the field that is the event in most lines.
func TestFieldIsNamed(t *testing.T) {
	log := write(t, `{"ts":1741064767,"address":"localhost:2019"}
{"ts":1741064768,"request":{"remote_ip":"192.0.2.1"}}
{"ts":1741064769,"request":{"remote_ip":"192.0.2.1"}}
`)
	if stdout, _, status := command(t.Context(), "replay", log); status != 0 || !strings.Contains(stdout, "from 1 event by request.remote_ip\n") {
		t.Errorf("status %d: %s", status, stdout)
	}
}
