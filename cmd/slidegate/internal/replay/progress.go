package replay

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

// newProgress returns a bar that is told of the bytes read, or nil where nobody watches: anywhere but on a terminal.
func newProgress(to io.Writer, files []string) *progressbar.ProgressBar {
	if len(files) == 0 || !output.IsTerminal(to) {
		return nil
	}
	return progressbar.NewOptions64(logs.Size(files), progressbar.OptionSetWriter(&patient{Writer: to, begin: time.Now()}),
		progressbar.OptionSetDescription("reading"), progressbar.OptionSetWidth(30), progressbar.OptionShowBytes(true), progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetRenderBlankState(false), progressbar.OptionSpinnerType(14))
}

// silent is how long nobody asks what is going on.
const silent = time.Second

// patient writes nothing for so long: what is soon over needs no bar.
type patient struct {
	io.Writer
	begin time.Time
}

func (p *patient) Write(b []byte) (int, error) {
	if time.Since(p.begin) < silent {
		return len(b), nil
	}
	return p.Writer.Write(b)
}
