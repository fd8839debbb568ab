package main

import (
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/replay"
)

// BenchmarkMillionLines replays a log of a million lines with the default limits. It also measures
// only reading the log. s-beyond is the time of the replay minus twice the time of reading.
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

// byOf returns the value of the flag --by that a format needs.
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
	if err := (&replay.Command{By: by, Files: []flags.Text{flags.Text(file)}}).Run(tb.Context(), cli.Streams{In: os.Stdin, Out: io.Discard, Err: io.Discard}); err != nil {
		tb.Fatal(err)
	}
}
