package logs

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	maxLine    = 1 << 20 // the longest line in bytes, without its end; longer lines are skipped, and counted as unreadable
	maxUnknown = 20      // how many lines are read to find the format of a file
	maxAhead   = 1000    // how many lines, of at most 1 MiB in all, are read to choose the event
	buffer     = 1 << 16
)

// checkNames returns an error if one of the files cannot be read. Open calls it before it reads
// any.
func checkNames(names []string) error {
	for i, name := range names {
		if name == "-" {
			if slices.Contains(names[:i], "-") {
				return errors.New(`standard input is named twice; write "-" once`)
			}
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return unreadable(name, err)
		}
		if info.IsDir() {
			return fmt.Errorf("%q is a directory; name the logs in it", name)
		}
	}
	return nil
}

// Size returns the number of bytes of all files, or -1 if one is not a regular file, whose size is
// unknown.
func Size(names []string) (bytes int64) {
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return -1
		}
		bytes += info.Size()
	}
	return bytes
}

// unreadable returns an error that says why a file cannot be read, and what to do.
func unreadable(name string, err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err // does not repeat the name of the file
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no file %q; name a log (slidegate help replay shows how to get one), or none for the built-in sample", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%q may not be read by this user; try sudo, or copy it", name)
	}
	return fmt.Errorf("cannot read %q (%w); name a log that can be read", name, err)
}

// A file is one log that is being read.
type file struct {
	name    string
	in      *bufio.Reader
	source  io.ReadCloser
	stop    func() bool // cancels the close at the end of the context
	gzipped bool
	r       *Reader

	envelope envelope        // opens each line; nil: there is no envelope
	cut      map[string]bool // the streams whose last line was cut
	format   format          // nil until it is known
	lines    int
	waiting  []logLine // lines that were read, and not yet taken
	header   int       // the number of the line with the names of the columns, if there is one
	start    time.Time // the time of the line that showed the format
	yearless bool      // start has no year
	next     Attempt
	ended    bool
	inQuotes bool // a quoted field of CSV continues in the next line, whose text a client may have chosen
}

// A logLine is one line of a log.
type logLine struct {
	number int
	text   string
	at     time.Time // the time of the envelope, if there is one
	err    error
}

// open opens a file, and reads it until its format is known.
func (r *Reader) open(ctx context.Context, name string) (*file, error) {
	if name == "-" {
		f := newFile("standard input", interruptible(ctx, r.options.Stdin), r)
		return f, f.begin()
	}
	source, err := openFile(ctx, name)
	if err != nil {
		return nil, unreadable(name, err)
	}
	f := newFile(name, source, r)
	f.stop = context.AfterFunc(ctx, func() { _ = source.Close() }) // an interrupt ends the wait for a pipe
	if err := f.begin(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// openFile opens a file. The end of the context ends the wait for a program that writes to a pipe.
func openFile(ctx context.Context, name string) (*os.File, error) {
	type opened struct {
		*os.File
		err error
	}
	result := make(chan opened, 1)
	go func() {
		f, err := os.Open(name)
		result <- opened{f, err}
	}()
	select {
	case r := <-result:
		return r.File, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// interruptible returns a reader of the input that ends with the context. Closing a terminal would
// not end the wait for it.
func interruptible(ctx context.Context, in io.Reader) io.ReadCloser {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(w, in)
		w.CloseWithError(err)
	}()
	return r
}

func newFile(name string, source io.ReadCloser, r *Reader) *file {
	f := &file{name: name, source: source, stop: func() bool { return true }, r: r}
	var in io.Reader = source
	if r.options.Progress != nil {
		in = io.TeeReader(source, r.options.Progress)
	}
	f.in = bufio.NewReaderSize(in, buffer)
	return f
}

func (f *file) close() {
	f.stop()
	_ = f.source.Close() // it was only read
}

// begin reads lines until the format is known, or the file ends.
func (f *file) begin() error {
	if err := f.unpack(); err != nil {
		return err
	}
	for len(f.waiting) <= maxUnknown {
		l, err := f.readLine()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return f.failed(err)
		}
		f.waiting = append(f.waiting, f.open(l))
		if f.recognised(f.waiting[len(f.waiting)-1]) {
			break
		}
	}
	if f.format == nil {
		f.findText()
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

// chooseEvent chooses the field that is the event by a vote of the first lines, unless --by names
// one. One line is not enough, because a program logs other fields when it starts than later.
func (f *file) chooseEvent() error {
	format, ok := f.format.(voters)
	if by := f.r.options.By; !ok || by.Field != "" || by.Pattern != nil {
		return nil
	}
	if err := f.readAhead(); err != nil {
		return err
	}
	votes := map[string]int{}
	for _, l := range f.waiting {
		votes[format.vote(l.text)]++
	}
	most := slices.MaxFunc(eventNames, func(a, b string) int { return cmp.Compare(votes[a], votes[b]) }) // the first of the largest
	if votes[most] > 0 {
		format.setEvent(most)
	}
	return nil
}

// readAhead reads the first lines of a file.
func (f *file) readAhead() error {
	for size := 0; len(f.waiting) < maxAhead && size < maxLine; {
		l, err := f.readLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return f.failed(err)
		}
		size += len(l.text)
		f.waiting = append(f.waiting, f.open(l))
	}
	return nil
}

// open takes a line out of its envelope. If the first lines have an envelope, all lines must have
// it.
func (f *file) open(l logLine) logLine {
	if f.envelope == nil && f.format == nil {
		f.envelope = envelopeOf(l.text)
	}
	if f.envelope == nil || l.err != nil {
		return l
	}
	c, ok := f.envelope(l.text)
	switch {
	case !ok:
		l.err = errEnvelope
		return l
	case f.cut[c.stream]:
		l.err = errContinues
	}
	if l.text, l.at = c.text, c.at; c.cut || l.err != nil {
		f.setCut(c)
	}
	return l
}

// setCut remembers whether the next line of a stream continues this one.
func (f *file) setCut(c content) {
	if f.cut == nil {
		f.cut = map[string]bool{}
	}
	f.cut[c.stream] = c.cut
}

// recognised tries to find the format with this line. It reports whether the format and the first
// time of the file are now known.
func (f *file) recognised(l logLine) bool {
	if f.format == nil {
		f.format = recognise(l.text, f.r.options, f.envelope != nil)
	}
	if f.format == nil {
		return false
	}
	a, err := f.read(l, anyField)
	f.start, f.yearless = a.At, a.Yearless
	return err == nil
}

// findText reads a file of no known format as free text, if --by is a regular expression. A date in
// any of the first lines takes precedence over a number that could be a time.
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

// read reads a line, with the time of its envelope if it has one.
func (f *file) read(l logLine, field string) (Attempt, error) {
	a, err := f.format.read(l.text, field)
	return l.dated(a), err
}

// dated returns an attempt with the time of the envelope, if there is one.
func (l logLine) dated(a Attempt) Attempt {
	if !l.at.IsZero() {
		a.At, a.Yearless = l.at, false
	}
	return a
}

// startsAt makes a file without years begin at that time.
func (f *file) startsAt(t time.Time) {
	f.start = t
	if c, ok := f.format.(interface{ startAt(time.Time) }); ok {
		c.startAt(t)
	}
}

// compressed are the first bytes of compressed files, with the programs that decompress them.
var compressed = []struct{ start, program string }{
	{"\x1f\x8b", "gzip -dc"},
	{"\xfd7zXZ\x00", "xz -dc"},
	{"BZh", "bzip2 -dc"},
	{"\x28\xb5\x2f\xfd", "zstd -dc"},
	{"PK\x03\x04", "unzip -p"},
}

// unpack decompresses gzip, and returns an error for a file that is certainly no log in plain text.
func (f *file) unpack() error {
	if start, _ := f.in.Peek(2); string(start) == compressed[0].start {
		f.gzipped = true
		unpacked, err := gzip.NewReader(f.in)
		if err != nil {
			return f.failed(err)
		}
		f.in = bufio.NewReaderSize(unpacked, buffer)
	}
	start, err := f.in.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) {
		return f.failed(err)
	}
	return f.checkText(start)
}

func (f *file) checkText(start []byte) error {
	for _, c := range compressed {
		if bytes.HasPrefix(start, []byte(c.start)) {
			return fmt.Errorf("%q has a compression that is not supported; unpack it, as in: %s FILE | slidegate replay -", f.name, c.program)
		}
	}
	switch {
	case bytes.IndexByte(start, 0) >= 0:
		return fmt.Errorf("%q is a binary file; name a log in plain text (UTF-8), or one packed by gzip", f.name)
	case bytes.HasPrefix(start, []byte("\ufeff")): // some editors write this first
		_, err := f.in.Discard(len("\ufeff"))
		return err
	}
	return nil
}

// failed returns an error that says why reading stopped in the middle of the file.
func (f *file) failed(err error) error {
	switch {
	case f.gzipped && errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%q ends in the middle of its gzip data; copy it again, or replay what there is: gzip -dc FILE | slidegate replay -", f.name)
	case f.gzipped && !errors.As(err, new(*fs.PathError)):
		return fmt.Errorf("%q holds damaged gzip data (%w); copy it again", f.name, err)
	}
	return unreadable(f.name, err)
}

// readLine returns the next line without its end.
func (f *file) readLine() (logLine, error) {
	text, err := f.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		text, err = f.readLong(slices.Clone(text))
	}
	if errors.Is(err, io.EOF) && len(text) > 0 {
		err = nil // the last line has no end
	}
	f.lines++
	l := logLine{number: f.lines, text: string(bytes.TrimRight(text, "\r\n"))}
	if errors.Is(err, bufio.ErrBufferFull) {
		l.err, err = errors.New("it is longer than 1 MiB"), nil
	}
	if err == nil {
		f.r.Lines++
	}
	return l, err
}

// readLong reads the rest of a line that does not fit the buffer. It keeps nothing of a line that
// is too long.
func (f *file) readLong(text []byte) ([]byte, error) {
	for {
		more, err := f.in.ReadSlice('\n')
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

// advance reads up to the next attempt of the file. It counts other lines and skips them.
func (f *file) advance() error {
	for {
		l, err := f.take()
		if errors.Is(err, io.EOF) {
			f.ended = true
			return nil
		}
		if err != nil {
			return f.failed(err)
		}
		if f.next, err = f.attempt(l); err == nil {
			return nil
		}
		f.r.skip(f.name, l.number, err)
	}
}

// take returns the first waiting line, or else reads one.
func (f *file) take() (logLine, error) {
	if len(f.waiting) == 0 {
		l, err := f.readLine()
		return f.open(l), err
	}
	l := f.waiting[0]
	f.waiting = f.waiting[1:]
	return l, nil
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

// isEmpty reports whether a line holds nothing. Lines such as "-- Boot 5c1a --", which journalctl
// writes around a log, count as empty.
func isEmpty(text string) bool {
	return strings.TrimSpace(text) == "" || strings.HasPrefix(text, "-- ")
}

// findHeader looks for a header in the first line that is not empty. If it names three columns or
// more, the lines below are CSV, because the third column need not hold units.
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
