package replay

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

// newProgress returns a progress bar to which the bytes read are written. It returns nil if the
// output is not a terminal.
func newProgress(to io.Writer, files []string) *progressbar.ProgressBar {
	if len(files) == 0 || !output.IsTerminal(to) {
		return nil
	}
	return progressbar.NewOptions64(logs.Size(files), progressbar.OptionSetWriter(&delayedWriter{Writer: to, begin: time.Now()}),
		progressbar.OptionSetDescription("reading"), progressbar.OptionSetWidth(30), progressbar.OptionShowBytes(true), progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetRenderBlankState(false), progressbar.OptionSpinnerType(14))
}

// barDelay is how long a read must take before a progress bar appears.
const barDelay = time.Second

// delayedWriter discards everything written before barDelay has passed, so that a short read shows
// no progress bar.
type delayedWriter struct {
	io.Writer
	begin time.Time
}

func (p *delayedWriter) Write(b []byte) (int, error) {
	if time.Since(p.begin) < barDelay {
		return len(b), nil
	}
	return p.Writer.Write(b)
}
