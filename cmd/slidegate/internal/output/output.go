// Package output prints reports: tables, counts and durations for people, and JSON for programs.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/slidegate/slidegate/internal/clock"
)

// JSON writes v as an indented JSON object.
func JSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Table aligns all columns except the last, which is not padded. flags are those of package
// tabwriter.
func Table(b *strings.Builder, flags uint, rows [][]string) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', flags)
	for _, row := range rows {
		_, _ = io.WriteString(t, strings.Join(row, "\t")+"\n") // a strings.Builder never returns an error
	}
	_ = t.Flush()
}

// Count formats a number with its noun, as in "1 attempt" or "2 attempts".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Duration formats a number of milliseconds in the notation of limits, such as 1h30m. Durations of
// a minute or more are shown in whole seconds.
func Duration(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d >= time.Minute {
		d = d.Truncate(time.Second)
	}
	return clock.Format(d)
}

// IsTerminal reports whether stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
