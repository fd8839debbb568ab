package logs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"time"
)

const (
	maxLine = 1 << 20 // the longest line in bytes, without its newline; longer lines are skipped and counted as unreadable
	buffer  = 1 << 16
)

// source reads the lines of a file, which may be compressed with gzip.
type source struct {
	name    string
	in      *bufio.Reader
	opened  io.Closer
	stop    func() bool // keeps the file from being closed when the context is done
	gzipped bool
	lines   int // the number of lines read so far
}

// logLine is one line of a log.
type logLine struct {
	number int
	text   string
	at     time.Time // the time in the envelope, if there is one
	err    error     // why the line cannot be read
}

// newSource returns a source for an open file.
func newSource(name string, opened io.ReadCloser) source {
	return source{name: name, in: bufio.NewReaderSize(opened, buffer), opened: opened, stop: func() bool { return true }}
}

func (s *source) close() {
	s.stop()
	_ = s.opened.Close() // the file was only read
}

// readLine returns the next line without its newline. At the end, it returns io.EOF. Any other
// error is a sentence for the user.
func (s *source) readLine() (logLine, error) {
	text, err := s.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		text, err = s.readLong(slices.Clone(text))
	}
	s.lines++
	l := logLine{number: s.lines, text: string(bytes.TrimRight(text, "\r\n"))}
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		l.err, err = errors.New("it is longer than 1 MiB"), nil
	case errors.Is(err, io.EOF) && len(text) > 0:
		err = nil // the last line has no newline
	case err != nil && !errors.Is(err, io.EOF):
		err = s.failed(err)
	}
	return l, err
}

// readLong reads the rest of a line that does not fit into the buffer. If the line is too long,
// readLong discards it.
func (s *source) readLong(text []byte) ([]byte, error) {
	for {
		more, err := s.in.ReadSlice('\n')
		if len(text) <= maxLine+len("\r\n") {
			text = append(text, more...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(bytes.TrimRight(text, "\r\n")) > maxLine && (err == nil || errors.Is(err, io.EOF)) {
			return nil, bufio.ErrBufferFull
		}
		return text, err
	}
}
