// Package logs reads attempts from logs, in chronological order. It can read:
//
//   - messages of sshd and other programs in a syslog
//   - access logs of web servers and load balancers
//   - lines with named fields: JSON, logfmt, CSV
//   - the output of Go's package log
//   - lines of the form time,event
//   - any other lines that contain a time
//
// Docker and Kubernetes may have wrapped the lines.
package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Attempt represents the attempt that a line of a log records, possibly repeated.
type Attempt struct {
	At        time.Time
	Event     string
	Account   string // the account of a login; empty unless Options.Accounts is set
	Units     int64  // at least 1
	Times     int    // repetitions: syslog writes "message repeated 5 times"
	Succeeded bool   // according to the log, the password or key was right
	HasResult bool   // the log says whether the password or key was right
	Yearless  bool   // the line has no year, so one was assumed
}

// Options configures how logs are read.
type Options struct {
	By         By
	TimeField  string         // the field with the time, for lines with named fields; if empty, the first with a well-known name, and files may have any format
	TimeRegex  *regexp.Regexp // its single group finds the time in lines of any format; nil means that lines have a known format
	TimeFormat string         // the layout of the time in TimeField or TimeRegex, as in package time; empty means a known format
	Accounts   bool           // also set the account of each attempt; all files must then be logs of sshd
	Sort       bool           // sort all attempts by time; if not set, the files are only merged
	Stdin      io.Reader      // read for the file name "-"
}

// Stats describes what has been read so far.
type Stats struct {
	Lines           int
	NoAttempt       int    // readable lines that are not attempts, including empty lines
	FirstNoEvent    string // where the first line is that could be an attempt but has no event, and why; empty if there is none
	Unreadable      int
	FirstUnreadable string // where the first unreadable line is, and why it is unreadable; empty if there is none
	Attempts        int
	WithResult      int           // attempts for which the log says whether they succeeded
	Succeeded       int           // attempts that succeeded
	Yearless        int           // attempts from lines without a year
	OutOfOrder      int           // attempts with an earlier time than a line before them
	FurthestBack    time.Duration // the largest difference between the time of such an attempt and that of a line before it
	From, To        time.Time     // the times of the earliest and the latest attempt
}

// Reader merges the attempts of several files in chronological order, by always taking the file
// whose next attempt is the earliest. Within a file, the order of the lines is kept, so that clock
// steps in a log remain visible. A Reader holds one attempt per file in memory, or all attempts if
// Options.Sort is set.
type Reader struct {
	Stats

	options Options
	files   []*file
	begun   bool      // the next attempt of every file has been read
	sorted  []Attempt // the remaining attempts, if Options.Sort is set
}

// Open opens the named logs and detects their formats. The name "-" means standard input. When ctx
// is done, Open no longer waits for a pipe. Every error is a sentence for the user.
func Open(ctx context.Context, names []string, o Options) (*Reader, error) {
	if err := checkNames(names); err != nil {
		return nil, err
	}
	r := &Reader{options: o}
	for _, name := range names {
		f, err := r.open(ctx, name)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.files = append(r.files, f)
	}
	r.assumeYears()
	slices.SortStableFunc(r.files, func(a, b *file) int { return a.start.Compare(b.start) })
	return r, nil
}

// OpenText returns a Reader for a single log, given as text.
func OpenText(name, text string, o Options) (*Reader, error) {
	r := &Reader{options: o}
	f := newFile(name, io.NopCloser(strings.NewReader(text)), r)
	r.files = []*file{f}
	err := f.begin()
	r.assumeYears()
	return r, err
}

// Close closes the files.
func (r *Reader) Close() {
	for _, f := range r.files {
		f.close()
	}
}

// Next returns the next attempt. At the end, it returns io.EOF. Any other error is a sentence for
// the user, and final.
func (r *Reader) Next() (a Attempt, err error) {
	switch {
	case !r.options.Sort:
		a, err = r.merge()
	case !r.begun:
		if err = r.sort(); err == nil {
			return r.Next()
		}
	default:
		a, err = r.nextSorted()
	}
	if err == nil {
		r.count(a)
	}
	return a, err
}

// merge returns the earliest of the files' next attempts. Ties go to the file that starts first.
func (r *Reader) merge() (Attempt, error) {
	if err := r.begin(); err != nil {
		return Attempt{}, err
	}
	var earliest *file
	for _, f := range r.files {
		if !f.ended && (earliest == nil || f.next.At.Before(earliest.next.At)) {
			earliest = f
		}
	}
	if earliest == nil {
		return Attempt{}, r.anyAttempt()
	}
	a := earliest.next
	return a, earliest.advance()
}

func (r *Reader) begin() error {
	if r.begun {
		return nil
	}
	r.begun = true
	for _, f := range r.files {
		if err := f.advance(); err != nil {
			return err
		}
	}
	return nil
}

// sort reads all attempts and sorts them by time.
func (r *Reader) sort() error {
	held := map[string]string{}
	for {
		a, err := r.merge()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		a.Event, a.Account = intern(held, a.Event), intern(held, a.Account)
		r.sorted = append(r.sorted, a)
	}
	slices.SortStableFunc(r.sorted, func(a, b Attempt) int { return a.At.Compare(b.At) })
	return nil
}

// intern returns the copy of text in held, so that equal strings share their memory.
func intern(held map[string]string, text string) string {
	if first, ok := held[text]; ok {
		return first
	}
	held[text] = text
	return text
}

func (r *Reader) nextSorted() (Attempt, error) {
	if len(r.sorted) == 0 {
		return Attempt{}, io.EOF
	}
	a := r.sorted[0]
	r.sorted = r.sorted[1:]
	return a, nil
}

func (s *Stats) count(a Attempt) {
	s.Attempts += a.Times
	if s.From.IsZero() || a.At.Before(s.From) {
		s.From = a.At
	}
	if a.At.Before(s.To) {
		s.OutOfOrder += a.Times
		s.FurthestBack = max(s.FurthestBack, s.To.Sub(a.At))
	}
	s.To = later(s.To, a.At)
	if a.Yearless {
		s.Yearless += a.Times
	}
	if a.HasResult {
		s.WithResult += a.Times
	}
	if a.Succeeded {
		s.Succeeded += a.Times
	}
}

// skip counts a line that is not an attempt or cannot be read.
func (s *Stats) skip(name string, number int, why error) {
	switch {
	case errors.Is(why, errNoAttempt):
		s.NoAttempt++
		if s.FirstNoEvent == "" && why != errNoAttempt { //nolint:errorlint // if wrapped, the error states a reason
			s.FirstNoEvent = fmt.Sprintf("line %d of %s: %v", number, Shown(name), why)
		}
	default:
		s.Unreadable++
		if s.FirstUnreadable == "" {
			s.FirstUnreadable = fmt.Sprintf("line %d of %s: %v", number, Shown(name), why)
		}
	}
}

// anyAttempt returns io.EOF. If the logs contain no attempt at all, it returns an error instead,
// because they are probably the wrong logs.
func (r *Reader) anyAttempt() error {
	switch names := r.names(); {
	case r.Attempts > 0 || len(r.sorted) > 0:
		return io.EOF
	case r.Lines == 0:
		return fmt.Errorf("nothing to replay: %s is empty", names)
	case r.Unreadable > 0:
		return fmt.Errorf("no attempt in %s of %s; unreadable: %d, the first is %s", lines(r.Lines), names, r.Unreadable, r.FirstUnreadable)
	case r.FirstNoEvent != "":
		return fmt.Errorf("no attempt in %s of %s; the first is %s", lines(r.Lines), names, r.FirstNoEvent)
	case r.options.By.Pattern != nil:
		return fmt.Errorf("no attempt in %s of %s: none matches '%s'", lines(r.Lines), names, Shown(r.options.By.Pattern.String()))
	default:
		return fmt.Errorf("no attempt in %s of %s; in a syslog one is "+
			`"Failed password for root from 192.0.2.1 port 22 ssh2", written by sshd, unless --by is a regular expression`, lines(r.Lines), names)
	}
}

// Field returns the event field of the first log with named fields, or "" if By names the event.
func (r *Reader) Field() string {
	if r.options.By.Field != "" || r.options.By.Pattern != nil {
		return ""
	}
	for _, f := range r.files {
		if log, ok := f.format.(interface{ eventField() string }); ok {
			return log.eventField()
		}
	}
	return ""
}

func (r *Reader) names() string {
	var s []string
	for _, f := range r.files {
		s = append(s, Shown(f.name))
	}
	return strings.Join(s, ", ")
}

// Shown returns text in a form that is safe to print on a terminal. It quotes text that contains
// control characters or is not valid UTF-8.
func Shown(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// ShellQuoted quotes text for a shell. It uses single quotes if quotes are needed, so that a
// regular expression looks the way it was typed.
func ShellQuoted(text string) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.,:/@%+"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(Shown(text), "'", `'\''`) + "'"
}

func lines(n int) string {
	if n == 1 {
		return "1 line"
	}
	return fmt.Sprintf("%d lines", n)
}

// assumeYears assigns years to files whose lines have none. If some files have years, each other
// file starts in the year that brings it closest to whichever of those files starts last. If no
// file has years, all starts are placed on a circle of one year, and the first file is the one
// after the largest gap. Rotated logs therefore follow each other across New Year, whatever the
// order of their names.
func (r *Reader) assumeYears() {
	var dated time.Time
	var yearless []*file
	for _, f := range r.files {
		if f.yearless {
			yearless = append(yearless, f)
		} else {
			dated = later(dated, f.start)
		}
	}
	if dated.IsZero() {
		r.chain(yearless)
		return
	}
	for _, f := range yearless {
		f.startsAt(nearest(f.start, dated))
	}
}

// startsAt makes a file whose lines have no year start at t.
func (f *file) startsAt(t time.Time) {
	f.start = t
	if c, ok := f.format.(interface{ startAt(time.Time) }); ok {
		c.startAt(t)
	}
}

// chain makes each file start after the previous one.
func (r *Reader) chain(files []*file) {
	slices.SortStableFunc(files, func(a, b *file) int { return cmp.Compare(inYear(a.start), inYear(b.start)) })
	first, largest := 0, time.Duration(-1)
	for i, f := range files {
		gap := inYear(f.start) - inYear(files[(i+len(files)-1)%len(files)].start)
		if i == 0 {
			gap += 366 * 24 * time.Hour
		}
		if gap > largest {
			first, largest = i, gap
		}
	}
	var c calendar
	for i := range files {
		f := files[(first+i)%len(files)]
		f.startsAt(c.withYear(f.start))
	}
}

// inYear returns the time elapsed since the start of t's year, counted as in a leap year.
func inYear(t time.Time) time.Duration {
	const leap = 2000
	return time.Date(leap, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC).Sub(time.Date(leap, 1, 1, 0, 0, 0, 0, time.UTC))
}

// nearest moves t into the year that brings it closest to other.
func nearest(t, other time.Time) (best time.Time) {
	for year := other.Year() - 8; year <= other.Year()+8; year++ { // a leap day may be 8 years away
		c := sameDate(t, year)
		if c.Day() == t.Day() && (best.IsZero() || c.Sub(other).Abs() < best.Sub(other).Abs()) {
			best = c
		}
	}
	return best
}
