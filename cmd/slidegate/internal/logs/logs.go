// Package logs reads the attempts that logs tell of, in the order of their times: lines of sshd and of other programs in
// syslog form, access logs, lines of named fields (JSON, logfmt, CSV), what package log writes, lines time,event, and any other
// lines that have a time. Docker may have written them.
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

// An Attempt is what one line of a log asks for.
type Attempt struct {
	At        time.Time
	Event     string
	Account   string // who wants to log in; empty unless Options.Accounts asks for it
	Units     int64  // 1 or more
	Times     int    // how often: syslog writes "message repeated 5 times"
	Succeeded bool   // the log says that the right password or key was given
	HasResult bool   // the log says whether it was
	Yearless  bool   // the line has no year, so it was assumed
}

// Options say how logs are to be read.
type Options struct {
	By         By
	TimeField  string         // of lines whose fields have names; empty: the first that has a well-known name, and files may have any format
	TimeRegex  *regexp.Regexp // finds the time by its one group, in lines of any kind; nil: lines have a known format
	TimeFormat string         // the layout of the time in TimeField or TimeRegex, as package time has it; empty: a known form
	Accounts   bool           // also tell the account of each attempt, as logs of sshd can; the files must be such logs
	Sort       bool           // put all attempts in order of time first; else only the files are merged
	Stdin      io.Reader      // what the name "-" stands for
	Progress   io.Writer      // is told every byte that is read from files; nil: nobody is
}

// Stats are what was read so far.
type Stats struct {
	Lines           int
	NoAttempt       int    // lines that can be read and ask for nothing, empty ones too
	FirstNoEvent    string // why the first line that could be an attempt has no event, if one has none
	Unreadable      int
	FirstUnreadable string // where, and why
	Attempts        int
	WithResult      int           // attempts of which the log says whether they succeeded
	Succeeded       int           // attempts of which it says that they did
	Yearless        int           // attempts in lines without a year
	OutOfOrder      int           // attempts dated before one that stands above them
	FurthestBack    time.Duration // by how much, at most
	From, To        time.Time     // the earliest and the latest attempt
}

// A Reader reads the attempts of several files in the order of their times: again and again the file whose next attempt
// is the earliest. Within a file the order of the lines stays, so that a clock that steps back there is seen. It holds
// one attempt per file, unless it sorts.
type Reader struct {
	Stats

	options Options
	files   []*file
	begun   bool      // every file has its next attempt
	sorted  []Attempt // all that remain, if it sorts
}

// Open opens the logs and finds out their formats. The name "-" is the standard input. If the context ends, so does the
// wait for a pipe. Every error is one sentence for the user.
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

// OpenText reads one log that is in memory.
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

// Next returns the next attempt, or io.EOF. Another error is one sentence for the user, and the end.
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

// merge takes the earliest of the files' next attempts; if several are at the same time, that of the file that begins first.
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

// sort reads everything.
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
		a.Event, a.Account = once(held, a.Event), once(held, a.Account)
		r.sorted = append(r.sorted, a)
	}
	slices.SortStableFunc(r.sorted, func(a, b Attempt) int { return a.At.Compare(b.At) })
	return nil
}

// once is a text that is held once, however often it is read.
func once(held map[string]string, text string) string {
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

// skip counts a line that asks for nothing, or that cannot be read.
func (s *Stats) skip(name string, number int, why error) {
	switch {
	case errors.Is(why, errNoAttempt):
		s.NoAttempt++
		if s.FirstNoEvent == "" && why != errNoAttempt { //nolint:errorlint // wrapped, it names a reason
			s.FirstNoEvent = fmt.Sprintf("line %d of %s: %v", number, Shown(name), why)
		}
	default:
		s.Unreadable++
		if s.FirstUnreadable == "" {
			s.FirstUnreadable = fmt.Sprintf("line %d of %s: %v", number, Shown(name), why)
		}
	}
}

// anyAttempt is io.EOF, but for logs that hold no attempt, which are rather the wrong ones.
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

// Field returns the field that is the event in the first log whose fields have names, unless By names one.
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

// Shown is a text as a terminal may show it: quoted if it holds what could control one, or is no UTF-8.
func Shown(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

func lines(n int) string {
	if n == 1 {
		return "1 line"
	}
	return fmt.Sprintf("%d lines", n)
}

// assumeYears dates the files that name no year. Such a file begins in the year that brings it nearest to the file that
// names one and begins last. If none names a year, the files stand in a circle of one year, and the first is the one after
// the largest gap: so rotated logs follow each other over the new year, whatever the order of their names.
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

// chain lets each file begin after the one before it.
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

// inYear is how long after the beginning of its year a time is, in a leap year.
func inYear(t time.Time) time.Duration {
	const leap = 2000
	return time.Date(leap, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC).Sub(time.Date(leap, 1, 1, 0, 0, 0, 0, time.UTC))
}

// nearest moves t to the year that brings it nearest to the other time.
func nearest(t, other time.Time) (best time.Time) {
	for year := other.Year() - 8; year <= other.Year()+8; year++ { // a leap day may be 8 years away
		c := sameDate(t, year)
		if c.Day() == t.Day() && (best.IsZero() || c.Sub(other).Abs() < best.Sub(other).Abs()) {
			best = c
		}
	}
	return best
}
