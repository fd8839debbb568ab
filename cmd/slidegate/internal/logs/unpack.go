package logs

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// compressed lists the first bytes of compressed files, with the program that decompresses each.
var compressed = []struct{ start, program string }{
	{"\x1f\x8b", "gzip -dc"},
	{"\xfd7zXZ\x00", "xz -dc"},
	{"BZh", "bzip2 -dc"},
	{"\x28\xb5\x2f\xfd", "zstd -dc"},
	{"PK\x03\x04", "unzip -p"},
}

// unpack decompresses gzip. It returns an error for a file that is certainly not a plain-text log.
func (s *source) unpack() error {
	if start, _ := s.in.Peek(2); string(start) == compressed[0].start {
		s.gzipped = true
		unpacked, err := gzip.NewReader(s.in)
		if err != nil {
			return s.failed(err)
		}
		s.in = bufio.NewReaderSize(unpacked, buffer)
	}
	start, err := s.in.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) {
		return s.failed(err)
	}
	return s.checkText(start)
}

func (s *source) checkText(start []byte) error {
	for _, c := range compressed {
		if bytes.HasPrefix(start, []byte(c.start)) {
			return fmt.Errorf("%q has a compression that is not supported; unpack it, as in: %s FILE | slidegate replay -", s.name, c.program)
		}
	}
	switch {
	case bytes.IndexByte(start, 0) >= 0:
		return fmt.Errorf("%q is a binary file; name a log in plain text (UTF-8), or one compressed with gzip", s.name)
	case bytes.HasPrefix(start, []byte("\ufeff")): // a byte order mark, which some editors write
		_, err := s.in.Discard(len("\ufeff"))
		return err
	}
	return nil
}

// failed returns an error that says why reading stopped before the end of the file.
func (s *source) failed(err error) error {
	switch {
	case s.gzipped && errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%q ends in the middle of its gzip data; copy it again, or replay the part that is there: gzip -dc FILE | slidegate replay -", s.name)
	case s.gzipped && !errors.As(err, new(*fs.PathError)):
		return fmt.Errorf("%q contains damaged gzip data (%w); copy it again", s.name, err)
	}
	return unreadable(s.name, err)
}
