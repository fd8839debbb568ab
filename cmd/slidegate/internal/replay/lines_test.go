package replay

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
)

// A slowLog is the standard input of a program to which another program slowly writes.
type slowLog struct {
	text  io.Reader
	pause time.Duration // before the first byte
}

func (s *slowLog) Read(b []byte) (int, error) {
	time.Sleep(s.pause) //nolint:forbidigo // in a bubble
	s.pause = 0
	return s.text.Read(b)
}

// TestProgressLines checks that --suggest writes a line every ten seconds while it reads a log, and
// that replay without --suggest does not.
func TestProgressLines(t *testing.T) {
	for suggest, want := range map[bool]string{true: strings.Repeat("slidegate: 0.0 MB read\n", 2), false: ""} {
		synctest.Test(t, func(t *testing.T) {
			var lines strings.Builder
			c := Command{Suggest: suggest, Files: []flags.Text{"-"}}
			log := &slowLog{strings.NewReader("1,alice\n900,bob\n"), 25 * time.Second}
			if err := c.Run(t.Context(), cli.Streams{In: log, Out: io.Discard, Err: &lines}); err != nil || lines.String() != want {
				t.Errorf("suggest: %t, %v, %q", suggest, err, lines.String())
			}
		})
	}
}

// TestReportProgress checks that each line describes the current progress, and that no line is
// written after the end.
func TestReportProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			lines strings.Builder
			n     bytesRead
		)
		stop := reportProgress(&lines, func() string { return n.of(20_000_000) })
		for range 2 {
			if _, err := n.Write(make([]byte, 5_000_000)); err != nil {
				t.Error(err)
			}
			time.Sleep(progressEvery + time.Second) //nolint:forbidigo // in a bubble
		}
		stop()
		time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
		if want := "slidegate: 5.0 MB read of 20.0\nslidegate: 10.0 MB read of 20.0\n"; lines.String() != want {
			t.Errorf("%q, not %q", lines.String(), want)
		}
	})
}
