package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/connect"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/estimator"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
)

// A stream generates a log while it is read, so that no test holds one.
type stream struct {
	lines int
	line  func(n int) string
	at    func(n int) // is told how many lines are out
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
func replayStream(tb testing.TB, r *replay, s *stream) *report {
	tb.Helper()
	log, err := logs.Open(tb.Context(), []string{"-"}, logs.Options{Stdin: s})
	if err != nil {
		tb.Fatal(err)
	}
	defer log.Close()
	if err := r.run(tb.Context(), log); err != nil {
		tb.Fatal(err)
	}
	return (&replayCommand{Files: []flags.Text{"-"}}).report(r, log)
}

// inUse is the memory that is reachable now.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// growth replays a stream and returns how much more memory is in use at its end than after a quarter of it.
func growth(tb testing.TB, s *stream) (grown int64, p *report) {
	tb.Helper()
	r, err := newReplay(tb.Context(), flags.Sets{{limit(tb, "5/1m")}}, estimator.Window, connect.Addresses{}, true, 2000)
	if err != nil {
		tb.Fatal(err)
	}
	defer r.close()
	var early int64
	s.at = func(n int) {
		switch n {
		case s.lines / 4:
			early = inUse()
		case s.lines - 1:
			grown = inUse() - early
		}
	}
	return grown, replayStream(tb, r, s)
}

// TestMemoryIsConstant: neither the number of lines nor the number of events that have gone quiet needs memory. All
// lines would be 14 MB, the tallies of all events of the second case more than that.
func TestMemoryIsConstant(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs many lines")
	}
	for name, tt := range map[string]struct {
		event  func(n int) int
		events int
	}{
		"a thousand events":  {func(n int) int { return n % 1000 }, 1000},
		"always new events":  {func(n int) int { return n / 2 }, 100_000},
		"denied once, all":   {func(n int) int { return n / 12 }, 16_667},
		"one event only":     {func(int) int { return 0 }, 1},
		"two, long silences": {func(n int) int { return n / 25_000 % 2 }, 2},
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

// BenchmarkMillionLines replays a log of a million lines under the default limits, and reads it without deciding. Beyond is
// what the replay takes more than twice the reading.
func BenchmarkMillionLines(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(formats)) {
		b.Run(name, func(b *testing.B) {
			file, by := millionLines(b, name), byOf(b, name)
			var read, all time.Duration
			for b.Loop() {
				read += elapsed(func() { readOnly(b, file, by) })
				all += elapsed(func() { replayFile(b, file, by) })
			}
			n := time.Duration(b.N)
			b.ReportMetric((read / n).Seconds(), "s-reading")
			b.ReportMetric((all / n).Seconds(), "s-replay")
			b.ReportMetric(((all - 2*read) / n).Seconds(), "s-beyond")
		})
	}
}

// byOf is the flag --by that a format needs.
func byOf(tb testing.TB, format string) (b flags.By) {
	tb.Helper()
	if len(formatFlags[format]) == 0 {
		return b
	}
	var err error
	if b.By, err = logs.ParseBy(formatFlags[format][1]); err != nil {
		tb.Fatal(err)
	}
	return b
}

// millionLines is a log of 20,000 addresses; one in ten lines is of one that hammers.
func millionLines(tb testing.TB, format string) string {
	tb.Helper()
	var b strings.Builder
	b.WriteString(headers[format])
	at := time.Date(2025, time.March, 4, 5, 6, 7, 0, time.UTC)
	for n := range 1_000_000 {
		address := fmt.Sprintf("10.0.%d.%d", n*7919%20_000/250, n*7919%250)
		if n%10 == 0 {
			address = fmt.Sprintf("192.0.2.%d", n/100_000)
		}
		b.WriteString(formats[format](moment{at.Add(time.Duration(n/10) * time.Second), address}) + "\n")
	}
	return write(tb, b.String())
}

func elapsed(f func()) time.Duration {
	begin := time.Now()
	f()
	return time.Since(begin)
}

func readOnly(tb testing.TB, file string, by flags.By) {
	tb.Helper()
	log, err := logs.Open(tb.Context(), []string{file}, logs.Options{By: by.By})
	for err == nil {
		_, err = log.Next()
	}
	if !errors.Is(err, io.EOF) || log.Attempts != 1_000_000 {
		tb.Fatal(err)
	}
	log.Close()
}

func replayFile(tb testing.TB, file string, by flags.By) {
	tb.Helper()
	if err := (&replayCommand{By: by, Files: []flags.Text{flags.Text(file)}}).Run(tb.Context(), cli.Streams{In: os.Stdin, Out: io.Discard, Err: io.Discard}); err != nil {
		tb.Fatal(err)
	}
}
