package logs

import (
	"errors"
	"io"
	"strings"
	"time"
)

// file represents a log that is being read.
type file struct {
	source   // where its lines come from
	wrapping // the envelope around each line
	r        *Reader

	// Set by begin, from the first lines.
	format   format    // nil until the format is known
	header   int       // the number of the line that names the columns, if there is one
	start    time.Time // the time of the line that revealed the format
	yearless bool      // whether start has no year
	waiting  []logLine // lines that were read but not yet used

	// Set by advance.
	next     Attempt
	ended    bool
	inQuotes bool // a quoted CSV field continues on the next line, whose text may come from a client
}

func newFile(name string, opened io.ReadCloser, r *Reader) *file {
	return &file{source: newSource(name, opened), r: r}
}

// advance reads up to the next attempt in the file. It skips and counts other lines.
func (f *file) advance() error {
	for {
		l, err := f.take()
		if errors.Is(err, io.EOF) {
			f.ended = true
			return nil
		}
		if err != nil {
			return err
		}
		if f.next, err = f.attempt(l); err == nil {
			return nil
		}
		f.r.skip(f.name, l.number, err)
	}
}

// take returns the first waiting line. If none is waiting, it reads one.
func (f *file) take() (logLine, error) {
	if len(f.waiting) == 0 {
		return f.read()
	}
	l := f.waiting[0]
	f.waiting = f.waiting[1:]
	return l, nil
}

// read returns the next line, without its envelope.
func (f *file) read() (logLine, error) {
	l, err := f.readLine()
	if err != nil {
		return l, err
	}
	f.r.Lines++
	if f.envelope == nil && f.format == nil {
		f.envelope = envelopeOf(l.text)
	}
	return f.unwrap(l), nil
}

// attempt returns the attempt of a line.
func (f *file) attempt(l logLine) (Attempt, error) {
	switch {
	case l.err != nil:
		return Attempt{}, l.err
	case l.number == f.header || isEmpty(l.text):
		return Attempt{}, errNoAttempt
	}
	if f.inQuotes {
		f.inQuotes = strings.Count(l.text, `"`)%2 == 0
		return Attempt{}, errOpen
	}
	a, err := f.r.options.By.event(f.format, l.text)
	f.inQuotes = errors.Is(err, errOpen)
	a.Account = f.r.options.account(a)
	return l.dated(a), err
}

// dated replaces the time of a with that of the envelope, if there is one.
func (l logLine) dated(a Attempt) Attempt {
	if !l.at.IsZero() {
		a.At, a.Yearless = l.at, false
	}
	return a
}

// isEmpty reports whether a line is blank. Lines such as "-- Boot 5c1a --", which journalctl adds
// to a log, count as blank.
func isEmpty(text string) bool {
	return strings.TrimSpace(text) == "" || strings.HasPrefix(text, "-- ")
}
