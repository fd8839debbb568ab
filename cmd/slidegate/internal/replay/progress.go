package replay

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
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

// progressEvery is the time between two progress lines.
const progressEvery = 10 * time.Second

// reportProgress writes a progress line every progressEvery until stop is called.
func reportProgress(to io.Writer, progress func() string) (stop func()) {
	ticker, ending := time.NewTicker(progressEvery), make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() {
		for {
			select {
			case <-ticker.C:
				_, _ = fmt.Fprintf(to, "slidegate: %s\n", progress())
			case <-ending:
				return
			}
		}
	})
	return func() {
		ticker.Stop()
		close(ending)
		reporter.Wait()
	}
}

// bytesRead counts the bytes read from files.
type bytesRead struct{ atomic.Int64 }

func (n *bytesRead) Write(b []byte) (int, error) {
	n.Add(int64(len(b)))
	return len(b), nil
}

// of says how much of the given total has been read. A negative total means that it is unknown.
func (n *bytesRead) of(total int64) string {
	text := fmt.Sprintf("%.1f MB read", float64(n.Load())/1e6)
	if total < 0 {
		return text
	}
	return text + fmt.Sprintf(" of %.1f", float64(total)/1e6)
}
