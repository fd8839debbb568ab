package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

var exactLine = regexp.MustCompile(`(?m)^(\w+ +\d+ \S+) \S+ sshd\[\d+\]: (?:message repeated (\d+) times: \[ )?(?:Failed|Accepted) \S+ for .* from ([0-9a-f.:]+) port \d+ `)

// readExactly replays a log on an exactLog. It parses the log with a single regular expression, and
// assumes that it starts in July.
func readExactly(tb testing.TB, log []byte, limits map[string]exactLimit) *exactLog {
	tb.Helper()
	exact := newExactLog(limits)
	for _, m := range exactLine.FindAllSubmatch(log, -1) {
		at, err := time.Parse("Jan _2 15:04:05", string(m[1]))
		if err != nil {
			tb.Fatal(err)
		}
		if at.Month() < time.July {
			at = at.AddDate(1, 0, 0)
		}
		times, _ := strconv.Atoi(string(m[2]))
		for range max(1, times) {
			exact.attempt(string(m[3]), at)
		}
	}
	return exact
}

// TestRealAttack replays a public log of a real attack. The log is not part of this repository.
func TestRealAttack(t *testing.T) {
	file := openSSH(t)
	log := []byte(text(t, file))
	exact := readExactly(t, log, map[string]exactLimit{"1/5s": {1, 5 * time.Second}, "5/1h": {5, time.Hour}})
	for place, args := range places(t) {
		got := replayed(t, append(args, "--limit", "1/5s", "--limit", "5/1h", file)...)
		if diff := cmp.Diff(exact.result(got.Sets[0].Top), countsOf(&got)); diff != "" {
			t.Errorf("%s differs from the exact log (-exact +replay):\n%s", place, diff)
		}
		checkForgotten(t, got.Limiter)
	}
	t.Logf("%+v", exact.counts)
}

func TestSampleIsDecidedExactly(t *testing.T) {
	exact := readExactly(t, []byte(text(t, sample)), map[string]exactLimit{"1/5s": {1, 5 * time.Second}, "5/1h": {5, time.Hour}, "20/1d": {20, 24 * time.Hour}})
	for place, args := range places(t) {
		got := replayed(t, args...)
		if diff := cmp.Diff(exact.result(got.Sets[0].Top), countsOf(&got)); diff != "" {
			t.Errorf("%s differs from the exact log (-exact +replay):\n%s", place, diff)
		}
		checkForgotten(t, got.Limiter)
	}
}

// TestEventsAreDecidedExactly replays lines of the form time,event, with odd events and millisecond
// times, and compares the result with an exactLog.
func TestEventsAreDecidedExactly(t *testing.T) {
	exact := newExactLog(map[string]exactLimit{"2/1s": {2, time.Second}, "7/1m": {7, time.Minute}})
	events := []string{"alice", "{}", "}x{", "a, \"b\"", "~", "%41", "\u00e9\x00", strings.Repeat("long", 99)}
	var lines strings.Builder
	for n := range 2000 {
		at, event := time.UnixMilli(1_700_000_000_000+int64(n*n%977)+int64(n)*61), events[n*n%len(events)]
		if at.Before(newest(exact.allowed[event])) {
			continue // TestClockStepsBack covers steps back
		}
		exact.attempt(event, at)
		lines.WriteString(at.UTC().Format(time.RFC3339Nano) + `,"` + strings.ReplaceAll(event, `"`, `""`) + "\"\n")
	}
	file := write(t, lines.String())
	for place, args := range places(t) {
		got := replayed(t, append(args, "--limit", "2/1s,7/1m", file)...)
		if diff := cmp.Diff(exact.result(got.Sets[0].Top), countsOf(&got)); diff != "" {
			t.Errorf("%s differs from the exact log (-exact +replay):\n%s", place, diff)
		}
		checkForgotten(t, got.Limiter)
	}
}

func newest(ts []time.Time) time.Time {
	return slices.MaxFunc(append(ts, time.Time{}), time.Time.Compare)
}

// TestUnits checks that an attempt with several units counts entirely or not at all, and that an
// attempt with more units than a limit's Max is denied.
func TestUnits(t *testing.T) {
	file := write(t, "time,event,units\n0,alice,3\n1,alice,3\n2,alice,2\n3,bob,6\n4,bob,5\n5,carol,9007199254740993\n")
	for place, args := range places(t) {
		got := replayed(t, append(args, "--limit", "5/1h,9/1d", file)...)
		want := counts{6, 3, 3, 3, map[string]int{"5/1h": 3, "9/1d": 1}, map[string]time.Duration{"alice": time.Hour - time.Second, "bob": 0, "carol": 0}}
		if diff := cmp.Diff(want, countsOf(&got)); diff != "" || got.Sets[0].NeverAllowed != 2 {
			t.Errorf("%s: %d never allowed, %s", place, got.Sets[0].NeverAllowed, diff)
		}
	}
}

// TestClockStepsBack checks that an attempt dated before the last attempt of its event is decided
// at the time of that last attempt.
func TestClockStepsBack(t *testing.T) {
	file := write(t, "100,alice\n90,alice\n104.999,alice\n105,alice\n95,bob\n")
	for place, args := range places(t) {
		got := replayed(t, append(args, "--limit", "1/5s", file)...)
		want := counts{5, 3, 2, 2, map[string]int{"1/5s": 2}, map[string]time.Duration{"alice": 5 * time.Second}}
		got.Sets[0].Top[0].Longest = min(got.Sets[0].Top[0].Longest, 5000) // measured from 100, or from 90
		if diff := cmp.Diff(want, countsOf(&got)); diff != "" || got.OutOfOrder != 2 {
			t.Errorf("%s: %d steps back, %s", place, got.OutOfOrder, diff)
		}
	}
}

func TestSeveralFiles(t *testing.T) {
	old := write(t, "Dec 31 23:59:58 h sshd[1]: Failed password for root from 192.0.2.1 port 22 ssh2\n")
	empty := write(t, "")
	recent := write(t, "\ufeffJan  1 00:00:01 h sshd[1]: Failed password for root from 192.0.2.1 port 22 ssh2\r\n\r\n1009843201,192.0.2.1\r\n")
	events := write(t, "1009843203.000,192.0.2.1")
	got := replayed(t, "--limit", "1/4s", old, empty, recent, events)
	if got.Attempts != 3 || got.Sets[0].Denied != 1 || got.Period != 5000 || got.Lines != 5 || got.YearsAssumed != 2 {
		t.Errorf("%+v", got)
	}
}

// TestOtherHeaders checks that attempts with an unknown header count as unreadable, and that lines
// written by journalctl itself do not.
func TestOtherHeaders(t *testing.T) {
	const failed = "sshd[9]: Failed password for root from 192.0.2.1 port 22 ssh2\n"
	file := write(t, "-- Logs begin at Tue 2025-03-04 05:00:00 UTC. --\nTue 2025-03-04 06:00:05 UTC h "+failed+
		"2025-03-04T06:00:06+0000 h "+failed+"-- Boot 5c1a --\n2025-03-04 06:00:10 h "+failed+"2025-03-04T06:00:11+0000 "+failed+"<38>2025-03-04T06:00:12+00:00 h "+failed)
	got := replayed(t, file)
	if got.Attempts != 2 || got.Unreadable != 3 || got.FirstUnreadable != "line 2 of "+file+": "+"the header before sshd has an unknown format; write the log with journalctl -u ssh -o short-iso" {
		t.Errorf("%+v", got)
	}
}

// TestPeriod checks the line that shows the period: both ends are in the same zone, an assumed year
// is omitted or noted, and the time between them is not rounded up.
func TestPeriod(t *testing.T) {
	const failed = " h sshd[9]: Failed password for root from 192.0.2.1 port 22 ssh2\n"
	for _, tt := range []struct{ log, period, note string }{
		{"2025-03-04T06:00:04+01:00" + failed + "2025-03-04T06:00:09Z" + failed, "2025-03-04 05:00:04 to 2025-03-04 06:00:09 UTC, 1h0m5s", ""},
		{"Mar  4 06:00:04" + failed + "Mar  4 06:00:09.9999" + failed, "Mar  4 06:00:04 to Mar  4 06:00:09, 5.999s", ""},
		{"Mar  4 06:00:04" + failed + "2025-03-04T05:06:20Z" + failed, "2001-03-04 06:00:04 to 2025-03-04 05:06:20 UTC, 8765d23h6m16s", "Years assumed: 1 attempt. "},
	} {
		stdout, stderr, _ := command(t.Context(), "replay", write(t, tt.log))
		if !regexp.MustCompile(`\nperiod +`+regexp.QuoteMeta(tt.period)+`\n`).MatchString(stdout) || !strings.Contains(stdout, tt.note) || tt.note == "" && strings.Contains(stdout, "Years assumed") {
			t.Errorf("%s\ngot %s%s\nwant %s, %s", tt.log, stdout, stderr, tt.period, tt.note)
		}
	}
}

// TestMoreDenied checks that the report counts the denied events that it does not list after the
// first ten.
func TestMoreDenied(t *testing.T) {
	var lines strings.Builder
	for n := range 60 {
		fmt.Fprintf(&lines, "%d,event-%d\n", n, n%30)
	}
	file := write(t, lines.String())
	if got := replayed(t, "--limit", "1/1h", file); len(got.Sets[0].Top) != 10 || got.Sets[0].MoreDenied != 20 {
		t.Errorf("%d events, and %d more", len(got.Sets[0].Top), got.Sets[0].MoreDenied)
	}
	if stdout, _, _ := command(t.Context(), "replay", "--limit", "1/1h", file); !strings.Contains(stdout, ", from 30 events\n") || !strings.Contains(stdout, "  event-17\n\n") {
		t.Error(stdout)
	}
}

// TestRedisThatForbids checks the errors about a user who may not call the script, and about a user
// who may not run a command that the script calls.
func TestRedisThatForbids(t *testing.T) {
	server := redistest.Start(t)
	for user, missing := range map[string]string{"blind": "-evalsha", "halfblind": "-set"} {
		if err := server.Do(t.Context(), "ACL", "SETUSER", user, "on", ">pass", "~*", "+@all", missing).Error(); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, status := command(t.Context(), "replay", "--redis", "redis://"+user+":pass@"+server.Addr())
		want := "; name a user who may, as in redis://user:password@host:6379, or leave out --redis to decide in memory\n"
		if status != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasSuffix(stderr, want) {
			t.Errorf("%s: status %d: %s%s\nwant %s", user, status, stdout, stderr, want)
		}
	}
}

// TestTimesAnywhere checks that attempts dated days ahead or behind get the same decisions in
// memory and on Redis. No event may be forgotten because another one is dated ahead.
func TestTimesAnywhere(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it needs many lines")
	}
	var far, twice strings.Builder
	far.WriteString("1750000000,future\n")
	for n := range 20_000 {
		fmt.Fprintf(&far, "%d,event-%d\n", 1_700_000_000+n/10, n%10_000)
	}
	for n := range 40_000 {
		fmt.Fprintf(&twice, "%d,event-%d\n", 1_700_000_000+n%20_000*20, n%180)
	}
	for name, tt := range map[string]struct {
		log, limit string
		allowed    int
	}{
		"one far ahead": {far.String(), "1/6h", 10_001},
		"a log twice":   {twice.String(), "1/1h", 40_000 - 2*180}, // in the second pass, each event waits until its last bucket is an hour old
	} {
		for place, args := range map[string][]string{"memory": nil, "redis": {"--redis", redistest.Addr(t)}} {
			got := replayed(t, append(args, "--limit", tt.limit, write(t, tt.log))...)
			if got.Sets[0].Allowed != tt.allowed {
				t.Errorf("%s, %s: %d allowed, want %d", name, place, got.Sets[0].Allowed, tt.allowed)
			}
		}
	}
}

// TestRedisForgetsAfterAnError checks that a damaged file ends the replay, and that the keys
// written before that are removed.
func TestRedisForgetsAfterAnError(t *testing.T) {
	whole := packed(t, manyEvents(30_000))
	cut := write(t, whole[:len(whole)-100])
	for _, place := range []string{redistest.Addr(t), clusterAddresses(t)} {
		_, stderr, status := command(t.Context(), "replay", "--redis", place, cut)
		if status != 1 || !strings.Contains(stderr, "ends in the middle of its gzip data") {
			t.Errorf("status %d: %s", status, stderr)
		}
		checkForgotten(t, "")
	}
}

// manyEvents returns lines of the form time,event for a thousand events in rotation.
func manyEvents(lines int) string {
	var b strings.Builder
	for n := range lines {
		fmt.Fprintf(&b, "%d,event-%d\n", n/100, n%1000)
	}
	return b.String()
}
