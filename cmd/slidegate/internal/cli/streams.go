package cli

import (
	"io"
	"strconv"
	"time"
)

// Streams holds the input and output streams of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Now      func() time.Time // the clock, set by tests; nil means the Redis clock
}

// ExitStatus is the nonzero exit status of a command that did not fail, such as 3 for a denied
// event. A command returns it as an error.
type ExitStatus int

// Error returns "exit status" and the number. It is never printed, because the command did not
// fail.
func (s ExitStatus) Error() string { return "exit status " + strconv.Itoa(int(s)) }
