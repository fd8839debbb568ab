// Package smallfile reads small files that flags name, such as one with a password.
package smallfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// most is the maximum size of a file in bytes. A bound is needed because some files, such as
// /dev/zero, never end.
const most = 1 << 20

// Read returns the contents of a file of 1 byte to 1 MiB. For any other file, it returns an error
// that asks for the file with the given contents, such as "the secret".
func Read(file, holds string) ([]byte, error) {
	text, err := read(file)
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		name := strconv.Quote(file)
		if !strings.ContainsAny(file, "/.") {
			name = "that file" // its name may be the secret itself
		}
		return nil, fmt.Errorf("cannot read %s (%w); name the file that holds %s", name, path.Err, holds)
	}
	switch {
	case err != nil:
		return nil, err
	case len(text) > most:
		return nil, fmt.Errorf("%q holds more than 1 MiB; name the file that holds %s", file, holds)
	case len(text) == 0:
		return nil, Empty(file, holds)
	}
	return text, nil
}

// Empty returns the error for an empty file.
func Empty(file, holds string) error {
	return fmt.Errorf("%q is empty; name the file that holds %s", file, holds)
}

func read(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the file was only read
	return io.ReadAll(io.LimitReader(f, most+1))
}
