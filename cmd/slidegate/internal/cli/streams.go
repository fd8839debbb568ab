package cli

import (
	"io"
	"strconv"
	"time"
)

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Now      func() time.Time // the clock of tests; nil: Redis says what time it is
}

// ExitStatus is the answer of a command that ran well, if that is not 0. A command returns it as an
// error.
type ExitStatus int

// Error returns the status as text. Nobody sees it, since it is no error of the command.
func (s ExitStatus) Error() string { return "exit status " + strconv.Itoa(int(s)) }
