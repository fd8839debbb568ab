package logs

import (
	"cmp"
	"errors"
	"io"
	"slices"
)

const (
	maxUnknown = 20   // the number of lines read to detect the format of a file
	maxAhead   = 1000 // the number of lines, of at most 1 MiB in total, read to choose the event field
)

// begin reads lines until the format is known or the file ends.
func (f *file) begin() error {
	if err := f.unpack(); err != nil {
		return err
	}
	if err := f.detect(); err != nil {
		return err
	}
	if f.format == nil {
		return f.unrecognised()
	}
	f.findHeader()
	if err := f.r.options.checkOptions(f.name, f.format); err != nil {
		return err
	}
	return f.chooseEvent()
}

// detect detects the format from the first lines.
func (f *file) detect() error {
	err := f.lookAhead(func(l logLine) bool { return f.recognised(l) || len(f.waiting) > maxUnknown })
	if err == nil && f.format == nil {
		f.findText()
	}
	return err
}

// lookAhead reads lines into waiting, up to and including the first line for which isLast returns
// true.
func (f *file) lookAhead(isLast func(logLine) bool) error {
	for {
		l, err := f.read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		f.waiting = append(f.waiting, l)
		if isLast(l) {
			return nil
		}
	}
}

// recognised tries to detect the format from the given line. It reports whether the format and the
// first time in the file are now known.
func (f *file) recognised(l logLine) bool {
	if f.format == nil {
		f.format = recognise(l.text, f.r.options, f.envelope != nil)
	}
	if f.format == nil {
		return false
	}
	a, err := f.format.read(l.text, anyField)
	a = l.dated(a)
	f.start, f.yearless = a.At, a.Yearless
	return err == nil
}

// findText treats a file of unknown format as free text, provided that --by is a regular
// expression. A date in any of the first lines takes precedence over a number that could be a time.
func (f *file) findText() {
	if f.r.options.By.Pattern == nil || f.r.options.TimeRegex != nil {
		return
	}
	for _, as := range []func(string, Options, bool) format{asText, asUnixText} {
		for _, l := range f.waiting {
			if f.format = as(l.text, f.r.options, f.envelope != nil); f.format != nil && f.recognised(l) {
				return
			}
		}
	}
}

// findHeader looks for a header in the first non-empty line. If the header names three or more
// columns, the file is read as CSV, because its third column need not contain units.
func (f *file) findHeader() {
	first := slices.IndexFunc(f.waiting, func(l logLine) bool { return !isEmpty(l.text) })
	_, timed := f.format.(*columns)
	if !timed && f.format != nil || first < 0 || !isHeader(f.waiting[first].text) {
		return
	}
	f.header = f.waiting[first].number
	if c := newCSV(f.waiting[first].text, f.r.options); timed && c != nil && len(c.header) > 2 {
		c.timeField = c.header[0]
		f.format = c
	}
}

// chooseEvent lets the first lines vote for the event field, unless --by names one. A single line
// is not enough, because programs often log different fields at startup.
func (f *file) chooseEvent() error {
	format, ok := f.format.(voters)
	if by := f.r.options.By; !ok || by.Field != "" || by.Pattern != nil {
		return nil
	}
	size := 0
	err := f.lookAhead(func(l logLine) bool {
		size += len(l.text)
		return len(f.waiting) >= maxAhead || size >= maxLine
	})
	if most, votes := mostVotes(format, f.waiting); votes > 0 {
		format.setEvent(most)
	}
	return err
}

// mostVotes returns the name that gets the most votes, and their number. Ties go to the name that
// comes first in eventNames.
func mostVotes(format voters, lines []logLine) (name string, n int) {
	votes := map[string]int{}
	for _, l := range lines {
		votes[format.vote(l.text)]++
	}
	name = slices.MaxFunc(eventNames, func(a, b string) int { return cmp.Compare(votes[a], votes[b]) })
	return name, votes[name]
}
