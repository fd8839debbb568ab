package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed" // for the sample
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

//go:embed sample.log
var sample []byte

const (
	maxLine    = 1 << 20 // the longest line in bytes; a longer one is skipped, and counted as unreadable
	maxUnknown = 20      // how many lines may pass before one shows the format of its file
)

// checkFiles finds the files that cannot be read before any is.
func checkFiles(names []string) error {
	for _, name := range names {
		if name == "-" {
			return errors.New(`standard input cannot be read as "-" yet; name a file, or /dev/stdin`)
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

// unreadable says why a file cannot be read, and what to do.
func unreadable(name string, err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err // which does not name the file once more
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no file %q; name a log (slidegate help replay tells how to get one), or none for the built-in sample", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%q may be read by others only; try sudo, or copy it", name)
	}
	return fmt.Errorf("cannot read %q: %w", name, err)
}

// readAll replays the files in the order given.
func (r *replay) readAll(ctx context.Context) error {
	if r.report.Sample {
		return r.read(ctx, "the sample", bytes.NewReader(sample))
	}
	for _, name := range r.files {
		if err := r.readFile(ctx, name); err != nil {
			return err
		}
	}
	return r.anyAttempt()
}

func (r *replay) readFile(ctx context.Context, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return unreadable(name, err)
	}
	closeFile := func() { _ = f.Close() }     // it was only read
	defer context.AfterFunc(ctx, closeFile)() // an interrupt ends the wait for a pipe
	defer closeFile()
	return r.read(ctx, name, f)
}

// anyAttempt refuses logs that hold none, which are rather the wrong ones.
func (r *replay) anyAttempt() error {
	switch names := strings.Join(r.files, ", "); {
	case r.report.Attempts > 0:
		return nil
	case r.report.Lines == 0:
		return fmt.Errorf("nothing to replay: %s is empty", names)
	case r.report.Unreadable > 0:
		return fmt.Errorf("no attempt in %s of %s; unreadable: %d, the first is %s",
			number(r.report.Lines, "line"), names, r.report.Unreadable, r.report.FirstUnreadable)
	default:
		return fmt.Errorf("no attempt in %s of %s; "+
			`one is "Failed password for root from 192.0.2.1 port 22 ssh2", written by sshd, or a line time,event`, number(r.report.Lines, "line"), names)
	}
}

// A logFile is a file while it is read.
type logFile struct {
	name    string
	lines   int
	parse   parser    // nil until a line shows the format
	waiting []logLine // the lines until then
}

type logLine struct {
	number int
	text   string
}

// read replays one file. It holds one line at a time, whatever the size of the file.
func (r *replay) read(ctx context.Context, name string, src io.Reader) error {
	in := bufio.NewReaderSize(src, maxLine)
	if err := checkText(name, in); err != nil {
		return err
	}
	f := &logFile{name: name}
	for ctx.Err() == nil {
		text, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return f.checkFormat()
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return unreadable(name, err)
		}
		f.lines++
		r.report.Lines++
		if err != nil {
			r.report.skip(f.name, f.lines, errors.New("it is longer than 1 MiB"))
		} else if err = r.replayText(ctx, f, text); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// compressed are how files begin that the programs unpack.
var compressed = []struct{ start, program string }{
	{"\x1f\x8b", "gzip -dk"},
	{"\xfd7zXZ\x00", "xz -dk"},
	{"BZh", "bzip2 -dk"},
	{"\x28\xb5\x2f\xfd", "zstd -d"},
	{"PK\x03\x04", "unzip"},
}

// checkText refuses what is certainly no log in plain text.
func checkText(name string, in *bufio.Reader) error {
	start, _ := in.Peek(512)
	for _, c := range compressed {
		if bytes.HasPrefix(start, []byte(c.start)) {
			return fmt.Errorf("%q is compressed; unpack it first, with %s", name, c.program)
		}
	}
	switch {
	case bytes.IndexByte(start, 0) >= 0:
		return fmt.Errorf("%q is a binary file; name a log in plain text (UTF-8)", name)
	case bytes.HasPrefix(start, []byte("\ufeff")): // some editors begin a text so
		_, err := in.Discard(len("\ufeff"))
		return err
	}
	return nil
}

// readLine returns the next line without its end, or bufio.ErrBufferFull for one that is too long, and skips that.
func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		return "", bufio.ErrBufferFull
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil // the last line has no end
	}
	return strings.TrimRight(string(line), "\r\n"), err
}

// replayText replays a line, or keeps it until the format of its file is known. Journalctl begins a log with lines such as
// "-- Boot 5c1a --".
func (r *replay) replayText(ctx context.Context, f *logFile, text string) error {
	if strings.TrimSpace(text) == "" || f.parse == nil && strings.HasPrefix(text, "-- ") {
		return nil
	}
	if f.parse == nil {
		f.waiting = append(f.waiting, logLine{f.lines, text})
		if f.parse = r.calendar.recognise(text); f.parse == nil {
			return f.checkWaiting()
		}
		return r.replayWaiting(ctx, f)
	}
	return r.replayLine(ctx, f, logLine{f.lines, text})
}

// replayWaiting replays the lines up to the one that showed the format, but for a header.
func (r *replay) replayWaiting(ctx context.Context, f *logFile) error {
	if isHeader(f.waiting[0].text) {
		f.waiting = f.waiting[1:]
	}
	for _, l := range f.waiting {
		if err := r.replayLine(ctx, f, l); err != nil {
			return err
		}
	}
	f.waiting = nil
	return nil
}

// replayLine decides what the line asks for. A line that cannot be read is counted, and does not stop the replay.
func (r *replay) replayLine(ctx context.Context, f *logFile, l logLine) error {
	a, err := f.parse(l.text)
	switch {
	case errors.Is(err, errNoAttempt):
		return nil
	case err != nil:
		r.report.skip(f.name, l.number, err)
		return nil
	}
	return r.decide(ctx, a)
}

// checkWaiting gives up a file whose first lines are of no known format.
func (f *logFile) checkWaiting() error {
	if len(f.waiting) > maxUnknown {
		return f.checkFormat()
	}
	return nil
}

func (f *logFile) checkFormat() error {
	if len(f.waiting) > 0 && isHeader(f.waiting[0].text) {
		f.waiting = f.waiting[1:]
	}
	if len(f.waiting) == 0 {
		return nil
	}
	for _, l := range f.waiting {
		if saidBySSHD.MatchString(l.text) {
			return fmt.Errorf("%q is a log of sshd, but in its line %d, %.60q, %w", f.name, l.number, l.text, errHeader)
		}
	}
	l := f.waiting[0]
	_, err := parseEvent(l.text)
	return fmt.Errorf("%q is no log of sshd, and its line %d, %.60q, is not time,event: %w", f.name, l.number, l.text, err)
}
