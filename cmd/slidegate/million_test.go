package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
)

// BenchmarkMillionLines replays a log of a million lines with the default limits, and also only
// reads it. s-beyond is the time of the replay minus twice that of the reading.
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

// millionLines returns a log of 20,000 addresses. One in ten lines is of an address that keeps
// retrying.
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
