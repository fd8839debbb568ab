package replay

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/connect"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/estimator"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/login"
)

// stream generates a log as it is read, so that tests do not need to keep the log in memory.
type stream struct {
	lines int
	line  func(n int) string
	at    func(n int) // called before line n is generated
	n     int
	rest  bytes.Buffer
}

func (s *stream) Read(p []byte) (int, error) {
	for s.rest.Len() == 0 {
		if s.n == s.lines {
			return 0, io.EOF
		}
		if s.at != nil {
			s.at(s.n)
		}
		s.rest.WriteString(s.line(s.n) + "\n")
		s.n++
	}
	return s.rest.Read(p)
}

// replayStream replays a stream in memory.
func replayStream(tb testing.TB, r *replay, s *stream) *Report {
	tb.Helper()
	log, err := logs.Open(tb.Context(), []string{"-"}, logs.Options{Stdin: s})
	if err != nil {
		tb.Fatal(err)
	}
	defer log.Close()
	if err := r.run(tb.Context(), log); err != nil {
		tb.Fatal(err)
	}
	return (&Command{Files: []flags.Text{"-"}}).report(r, log)
}

// inUse returns the number of bytes that are currently reachable. It runs the garbage collector
// twice, because a sync.Pool keeps its contents for one more collection.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// growth replays a stream. It returns how many more bytes are in use in the last quarter than in
// the second. It takes the minimum of each quarter, because memory rises and falls as idle events
// are swept.
func growth(tb testing.TB, s *stream) (grown int64, p *Report) {
	tb.Helper()
	r, err := newReplay(tb.Context(), flags.Sets{{{Max: 5, Per: time.Minute}}}, estimator.Window, connect.Addresses{}, true, 2000)
	if err != nil {
		tb.Fatal(err)
	}
	defer r.close()
	used := map[int][]int64{} // by quarter
	s.at = func(n int) {
		if quarter := 4 * n / s.lines; quarter%2 == 1 && n%(s.lines/40) == 0 {
			used[quarter] = append(used[quarter], inUse())
		}
	}
	p = replayStream(tb, r, s)
	return slices.Min(used[3]) - slices.Min(used[1]), p
}

// TestMemoryIsConstant checks that memory grows neither with the number of lines nor with the
// number of idle events. All lines together would take 14 MB, and in the second case the tallies of
// all events would take more than that.
func TestMemoryIsConstant(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs many lines")
	}
	for name, tt := range map[string]struct {
		event  func(n int) int
		events int
	}{
		"a thousand events": {func(n int) int { return n % 1000 }, 1000},
		"always new events": {func(n int) int { return n / 2 }, 100_000},
		"denied once, all":  {func(n int) int { return n / 12 }, 16_667},
		"one event only":    {func(int) int { return 0 }, 1},
		"two, long pauses":  {func(n int) int { return n / 25_000 % 2 }, 2},
	} {
		s := &stream{lines: 200_000, line: func(n int) string {
			return fmt.Sprintf("%d,event-%d-%s", 1_700_000_000+n/50, tt.event(n), "of-some-length-as-addresses-and-accounts-have")
		}}
		grown, p := growth(t, s)
		if grown > 2<<20 || p.Lines != s.lines {
			t.Errorf("%s: %d lines, %d bytes more in use at the end", name, p.Lines, grown)
		}
		if off := p.Events - tt.events; max(off, -off) > tt.events*3/100 || p.Estimated != (tt.events > 10_000) {
			t.Errorf("%s: %d events, estimated: %v; want %d", name, p.Events, p.Estimated, tt.events)
		}
		t.Logf("%s: grown by %d bytes, %d events", name, grown, p.Events)
	}
}

// TestLoginMemoryIsConstant checks that memory grows neither with the number of lines nor with the
// number of idle subjects, inside the guard and outside it.
func TestLoginMemoryIsConstant(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs many lines")
	}
	const name = "of-some-length-as-accounts-have"
	r, err := newGuardReplay(t.Context(), login.Config{Name: "replay"}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2025, time.March, 4, 5, 6, 7, 0, time.UTC)
	var used []int64                                        // sampled often, because memory rises and falls as idle subjects are swept
	s := &stream{lines: 120_000, line: func(n int) string { // ten attempts by each address on each account, one every five minutes
		at := begin.Add(time.Duration(n) * 5 * time.Minute)
		return fmt.Sprintf("%s h sshd[1]: Failed password for %s%d from 2001:db8:%x:%x::1 port 22 ssh2", at.Format(time.RFC3339), name, n/10, n/10>>8, n/10&255)
	}}
	s.at = func(n int) {
		if n >= s.lines/2 && n%(s.lines/40) == 0 {
			used = append(used, inUse())
		}
	}
	log, err := logs.Open(t.Context(), []string{"-"}, logs.Options{Stdin: s, Accounts: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := r.run(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	p := r.report(logReport{})
	for kind, s := range map[string]subjectReport{"addresses": p.Addresses, "accounts": p.Accounts, "pairs": p.Pairs} {
		if off := s.Count - 12_000; max(off, -off) > 12_000*3/100 || !s.Estimated {
			t.Errorf("%d %s, estimated: %v", s.Count, kind, s.Estimated)
		}
	}
	grown := slices.Min(used[10:]) - slices.Min(used[:10])
	if grown > 2<<20 || p.Allowed != s.lines {
		t.Errorf("%d allowed, %d bytes more in use at the end", p.Allowed, grown)
	}
	t.Logf("grown by %d bytes: %d", grown, used)
}
